"""Ranks of held-out items and the metrics that follow from them. Knows no method."""
