"""Files that are written atomically and carry checksums: parquet tables, tensors, JSON, archives."""
