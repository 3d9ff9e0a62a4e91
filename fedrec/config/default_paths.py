"""The configuration files that fedrec reads by default."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrec.config.methods import Methods


def path_or_default(variable: str, default: str) -> Path:
    """The default path of an option: from an environment variable of Snakemake's jobs, else `default`.

    The path is not a parameter of a job, so that another path to the same content re-runs nothing.
    """
    return Path(os.environ.get(variable) or default)


def default_method_file() -> Path:
    """The file of methods' settings."""
    return path_or_default("FEDREC_METHODS", "config/methods.yaml")


def default_found_file() -> Path | None:
    """The file of what searches found; None for the one beside the file of methods."""
    found = os.environ.get("FEDREC_FOUND")
    return Path(found) if found else None


def default_protocol_file() -> Path:
    """The file of protocols."""
    return path_or_default("FEDREC_PROTOCOLS", "config/protocols.yaml")


def default_catalogue() -> Path:
    """The catalogue of datasets."""
    return path_or_default("FEDREC_CATALOGUE", "config/datasets.yaml")


def default_methods() -> "Methods":
    """The methods of these files."""
    # Imported here: commands that read no methods ask for the names of files alone.
    from fedrec.config.methods import load_methods

    return load_methods(default_method_file(), default_found_file())
