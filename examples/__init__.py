"""Worked experiments: each prints what it measured and draws its picture into docs/img."""
