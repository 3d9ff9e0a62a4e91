"""Statements for a CPU."""
