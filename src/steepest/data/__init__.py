"""Bytes become chunks: the types every learner is fed with, and the readers that make them."""
