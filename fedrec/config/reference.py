"""Paths of the reference: the finished runs that come with the project, and their configuration."""

from pathlib import Path

STORED_REFERENCE = Path("results/reference")
"""The folder of packed runs, with the tables, figures and the page that were built from them."""
BUILT_REFERENCE = Path("results/from-reference")
"""The default folder for tables, figures and the page built from the reference."""
REFERENCE_CONFIGURATION = Path("config/reference.yaml")
"""The default configuration to plan, train and show its runs."""
