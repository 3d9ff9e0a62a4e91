"""Raw files to frozen splits: catalogue, download, parse, filter, split. Knows no torch."""
