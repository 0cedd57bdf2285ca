"""Factor models: matrix factorization."""
