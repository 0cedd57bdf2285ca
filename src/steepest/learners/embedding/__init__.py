"""Embeddings of words with a linear head."""
