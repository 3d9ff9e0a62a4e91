"""The graph of a loss: nodes, dimensions and index expressions."""
