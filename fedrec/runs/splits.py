"""Find the split for a run; errors propose the split that may be meant and the command that makes it."""

import shlex
from functools import lru_cache
from pathlib import Path

from fedrec.config.protocol import SWITCHES, full_name
from fedrec.data.split import Split, how_to_split
from fedrec.data.temporal import split_in
from fedrec.errors import SplitError, nearest

_FILE, _CANDIDATES = "split.parquet", "candidates.parquet"
_USUAL = Path("results/data")
"""The workflow's folder of prepared datasets."""
_KINDS = ("clean", "published", *(f"{extent}-{switch}" for extent in ("only", "upto") for switch in SWITCHES))
"""The protocols that exist without configuration, by their short names."""


def split_of(data: Path, protocol: str, paper: str, option: str = "--protocol") -> Split:
    """Read the split of `protocol`, a full or short name; errors name the `option` that gave it."""
    name = full_name(protocol, paper)
    folder = data / name
    if not (folder / _FILE).is_file():
        _check_folder(data, name)
        made = sorted(path.parent.name for path in data.glob(f"*/{_FILE}"))
        known = protocol in _KINDS
        meant = protocol if known else nearest(protocol, (*made, *_KINDS)) or protocol
        near = "" if meant == protocol else f" Did you mean '{meant}'?"
        how = how_to_split(data / full_name(meant, paper))
        raise SplitError(
            f"{option} {protocol}: {data} has no split '{name}'.{near} It has: {', '.join(made) or 'none'}. "
            f"Make the split with: {how}"
        )
    return _read(folder, *(_state(folder / file) for file in (_FILE, _CANDIDATES)))


def _check_folder(data: Path, split: str) -> None:
    """Raise `SplitError` for a folder that is not a dataset's, with the one that is probably meant."""
    inside = next((path for path in data.parents[:2] if any(path.glob(f"*/{_FILE}"))), None)
    if inside is not None:
        verb = "lies in" if data.exists() else "would lie in"
        raise SplitError(
            f"--data {data}: {verb} the folder of a dataset. Give that folder, --data {inside}, and the "
            "split as --protocol."
        )
    if data.is_file():
        raise SplitError(
            f"--data {data}: is a file, but must be the folder of a prepared dataset. For a table of "
            f"interactions, `fedrec new dataset NAME {shlex.quote(str(data))}` writes an entry and prints "
            "how to prepare it."
        )
    if not data.is_dir():
        usual = _USUAL / data.name if len(data.parts) == 1 else data
        siblings = [path.name for path in usual.parent.glob("*/") if path.is_dir()]
        near = nearest(usual.name, siblings)
        meant = usual.with_name(near) if near else usual
        hint = f" Did you mean '{meant}'?" if near else ""
        how = how_to_split(meant / split)
        raise SplitError(f"--data {data}: no such folder.{hint} Make a split with: {how}")


def _state(path: Path) -> tuple[int, int]:
    """A key that changes when a file is written again; zeros for a missing file."""
    if not path.is_file():
        return 0, 0
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


@lru_cache(maxsize=8)
def _read(folder: Path, *_states: tuple[int, int]) -> Split:
    """Read a split; cached, since successive runs of a process mostly use the same split."""
    return split_in(folder)
