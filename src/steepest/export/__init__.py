"""A fitted model as one file for other places: C99, Python without dependencies, or ONNX."""
