"""The pages, and what makes their tables and picture."""
