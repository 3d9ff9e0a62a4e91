"""The pages, and the code that fills in their tables and draws their picture."""
