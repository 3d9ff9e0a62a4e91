"""Passes over the graph of a loss: which stage computes a tensor, how, and where it is stored."""
