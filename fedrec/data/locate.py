"""Where a raw file lies on this machine."""

from pathlib import Path

from fedrec.config.catalogue import RawFile


def located(file: RawFile, raw: Path, home: Path) -> Path | None:
    """The path of `file`: where its entry says, from the project's folder `home`, or below `raw`.

    One's own file is read where it lies, so that a change of it is seen.
    """
    return next((place for place in (home / file.written, raw / file.path) if place.is_file()), None)


def places_looked_at(file: RawFile, raw: Path, home: Path) -> str:
    """Every place where `located` looks for `file`, in words."""
    return f"{(home / file.written).absolute()}, {(raw / file.path).absolute()}"
