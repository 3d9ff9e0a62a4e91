"""The tables of README and docs, each a function that returns Markdown."""
