"""Ranks of held-out items, and metrics of these ranks, for any method."""
