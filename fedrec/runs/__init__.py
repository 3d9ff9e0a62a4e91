"""Training runs: from a split to a finished run's files, and reading them again."""
