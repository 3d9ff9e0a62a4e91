"""Settings that name files: read the tables of item features, and record the checksums of their files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import Methods, entries_of, settings_in
from fedrec.config.names import parse
from fedrec.data.item_features import item_features
from fedrec.errors import DataError
from fedrec.federation.model.parameters import GivenTable

FILE_CHECKSUMS = "given"
"""The key of `run.json` with the checksums of files that settings name."""


def setting_paths(methods: Methods, method: str, settings: Mapping[str, Any]) -> dict[str, str]:
    """The files that settings of a composition name, by setting."""
    known = settings_in(entries_of(methods, parse(method)))
    return {name: settings[name] for name, one in known.items() if one.type == "path" and settings[name]}


def with_file_tables(settings: Mapping[str, Any], paths: Mapping[str, str], data: Path) -> dict[str, Any]:
    """The settings with the table of each file instead of its path."""
    return {**settings, **{name: _table(path, data) for name, path in paths.items()}}


def checksums(settings: Mapping[str, Any]) -> dict[str, str]:
    """The checksums of tables among the settings, by setting."""
    return {name: value.sha256 for name, value in settings.items() if isinstance(value, GivenTable)}


def trained_settings(summary: Mapping[str, Any], data: Path) -> dict[str, Any]:
    """The settings of a finished run, with its tables; `DataError` if a file has changed since training."""
    wanted: Mapping[str, str] = summary.get(FILE_CHECKSUMS, {})
    settings = with_file_tables(
        summary["settings"], {name: summary["settings"][name] for name in wanted}, data
    )
    for name, checksum in checksums(settings).items():
        if checksum != wanted[name]:
            path = summary["settings"][name]
            raise DataError(
                f"{path}: has changed since the run was trained with it ({name}). Train the run again."
            )
    return settings


def _table(path: str, data: Path) -> GivenTable:
    numbers = item_features(Path(path), data)
    values = torch.from_numpy(numbers.values).to(torch.get_default_dtype())
    return GivenTable(numbers.path, numbers.sha256, numbers.columns, values)
