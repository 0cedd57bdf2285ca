"""Who runs the step: the training loop, its history, and what stops it."""
