"""Readers of line formats and of arrays in memory."""
