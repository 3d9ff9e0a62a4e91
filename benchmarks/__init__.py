"""Speed, measured as ratios within one run, and growth; not part of the package."""
