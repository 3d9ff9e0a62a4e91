"""Training runs: train on a split, write the files of a finished run, and read them."""
