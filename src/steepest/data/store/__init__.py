"""Rows parsed once: in memory, in a temporary file, or in a named cache."""
