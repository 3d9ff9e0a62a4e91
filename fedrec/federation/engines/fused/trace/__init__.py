"""The trace: it runs a loss in torch once for a symbolic client and writes down a graph."""
