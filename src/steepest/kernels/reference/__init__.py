"""The slow, obvious NumPy definition of each kernel."""
