"""The configuration files that are read where nobody names others."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fedrec.config.methods import Methods


def configured(variable: str, usual: str) -> Path:
    """The default of an option that names a file: what Snakemake's environment names, or the usual one.

    Through the environment a path is no parameter of a job, so that another path to the same content
    re-runs nothing.
    """
    return Path(os.environ.get(variable) or usual)


def usual_method_file() -> Path:
    """The file of methods' settings."""
    return configured("FEDREC_METHODS", "config/methods.yaml")


def usual_found_file() -> Path | None:
    """The file of what searches found; None for the one beside the file of methods."""
    found = os.environ.get("FEDREC_FOUND")
    return Path(found) if found else None


def usual_protocol_file() -> Path:
    """The file of protocols."""
    return configured("FEDREC_PROTOCOLS", "config/protocols.yaml")


def usual_catalogue() -> Path:
    """The catalogue of datasets."""
    return configured("FEDREC_CATALOGUE", "config/datasets.yaml")


def usual_methods() -> "Methods":
    """The methods of these files."""
    # Imported here: commands that read no methods ask for the names of files alone.
    from fedrec.config.methods import load_methods

    return load_methods(usual_method_file(), usual_found_file())
