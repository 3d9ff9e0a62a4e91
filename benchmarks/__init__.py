"""Speed, measured as ratios within one run; not part of the package."""
