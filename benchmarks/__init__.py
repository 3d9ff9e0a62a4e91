"""Benchmarks of speed, as ratios within one run, and of growth; not part of the package."""
