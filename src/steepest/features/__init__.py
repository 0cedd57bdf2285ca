"""Raw columns become sparse features: hashing, kinds of columns, and names that survive hashing."""
