"""Where the reference lies, finished runs that come with the project, and what says what it is to hold."""

from pathlib import Path

STORED_REFERENCE = Path("results/reference")
"""The folder of packed runs, with the tables, figures and the page that were built from them."""
BUILT_REFERENCE = Path("results/from-reference")
"""The folder into which all of it is built, unless another is named."""
REFERENCE_CONFIGURATION = Path("config/reference.yaml")
"""By which its runs are planned, trained and shown, unless others are named."""
