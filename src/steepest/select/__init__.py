"""Choosing among models: cross-validation, tuning, races and regularization paths."""
