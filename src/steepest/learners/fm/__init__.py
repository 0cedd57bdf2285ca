"""Factorization machines, with fields and without."""
