"""Statements for the lanes of a GPU."""
