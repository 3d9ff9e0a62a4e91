"""Turn a loss that torch runs into a graph."""
