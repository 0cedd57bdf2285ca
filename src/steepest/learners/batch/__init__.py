"""Solvers over the whole data."""
