"""The page of all results: one html file that loads nothing from anywhere."""
