"""Files that appear whole or not at all: parquet tables, tensors, text."""
