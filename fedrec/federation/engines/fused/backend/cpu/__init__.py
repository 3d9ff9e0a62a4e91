"""Statements that only a CPU has: tiles, and loops over rows."""
