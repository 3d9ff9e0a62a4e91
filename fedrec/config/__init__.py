"""The configuration files as typed values, with errors that name file, line and key. No torch, no polars."""
