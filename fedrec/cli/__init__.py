"""The `fedrec` command: options in, one call, files out."""
