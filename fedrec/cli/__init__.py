"""The `fedrec` command: each command parses options, makes one call, and writes files."""
