"""Tables: CSV, JSON lines, Parquet and Arrow."""
