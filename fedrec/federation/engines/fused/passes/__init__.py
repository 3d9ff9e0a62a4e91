"""Passes from the graph of a loss to its schedule: the stage, strategy and storage of every tensor."""
