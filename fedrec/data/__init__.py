"""From raw files to splits: download, parse, filter, split; without torch."""
