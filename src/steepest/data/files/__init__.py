"""Bytes: files as blocks of whole lines, packing, and reading ahead."""
