"""The split a run is asked to train on; where it is not there, what may be meant and how it is made."""

from functools import lru_cache
from pathlib import Path

from fedrec.config.protocol import SWITCHES, full_name
from fedrec.data.split import Split, how_to_split
from fedrec.data.temporal import split_in
from fedrec.errors import SplitError, did_you_mean, nearest

_FILE, _CANDIDATES = "split.parquet", "candidates.parquet"
_KINDS = ("clean", "published", *(f"{extent}-{switch}" for extent in ("only", "upto") for switch in SWITCHES))
"""The protocols there are without anybody's doing, as a command names them."""


def split_of(data: Path, protocol: str, paper: str, option: str = "--protocol") -> Split:
    """The split of `protocol`, which may be short for the paper's own and is asked for by an option."""
    name = full_name(protocol, paper)
    folder = data / name
    if not data.is_dir():
        beside = [path.name for path in data.parent.glob("*/") if path.is_dir()]
        near_by = data.with_name(nearest(data.name, beside) or data.name)
        raise SplitError(
            f"--data {data}: there is no such folder.{did_you_mean(data.name, beside)} A split is made with: "
            f"{how_to_split(near_by / name)}"
        )
    if not (folder / _FILE).is_file():
        made = sorted(path.parent.name for path in data.glob(f"*/{_FILE}"))
        known = protocol in _KINDS
        meant = protocol if known else nearest(protocol, (*made, *_KINDS)) or protocol
        near = "" if meant == protocol else f" Did you mean '{meant}'?"
        how = how_to_split(data / full_name(meant, paper))
        raise SplitError(
            f"{option} {protocol}: {data} has no split '{name}'.{near} It has: "
            f"{', '.join(made) or 'none'}. A split is made with: {how}"
        )
    return _read(folder, *(_state(folder / file) for file in (_FILE, _CANDIDATES)))


def _state(path: Path) -> tuple[int, int]:
    """What changes when a file is written again; nothing for one that is not there."""
    if not path.is_file():
        return 0, 0
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


@lru_cache(maxsize=8)
def _read(folder: Path, *_states: tuple[int, int]) -> Split:
    """Runs that follow each other in a process are most often of one split; nobody changes it."""
    return split_in(folder)
