"""Paths of raw files on this machine."""

from pathlib import Path

from fedrec.config.catalogue import RawFile


def located(file: RawFile, raw: Path, home: Path) -> Path | None:
    """The path of `file`: the one of its entry, relative to the project's folder `home`, or a path below
    `raw`.

    A file of your own is used in path, so fedrec notices its changes.
    """
    return next((path for path in (home / file.written, raw / file.path) if path.is_file()), None)


def places_looked_at(file: RawFile, raw: Path, home: Path) -> str:
    """The paths where `located` looks for `file`, as text."""
    return f"{(home / file.written).absolute()}, {(raw / file.path).absolute()}"
