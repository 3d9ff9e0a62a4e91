"""The server: collects uploads and combines them."""
