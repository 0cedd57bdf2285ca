"""k-means: mini-batches and Lloyd's algorithm."""
