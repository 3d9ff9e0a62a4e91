"""Counter-based random numbers: the same words in numpy and in torch."""
