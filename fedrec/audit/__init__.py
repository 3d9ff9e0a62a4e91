"""Audits of protocols, runs and uploads for leaks, and tests of differences between methods."""
