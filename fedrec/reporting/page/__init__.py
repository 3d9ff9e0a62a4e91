"""The page of all results: one html file without external resources."""
