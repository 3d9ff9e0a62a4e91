"""Default files of the configuration, for folders that have none of their own.

They are the files of the project's `config` folder. A built package contains them in
`fedrec/config/defaults`. A checkout, and an editable installation, read the folder itself.
"""

from pathlib import Path

_FOLDER = Path("config")
_CARRIED = Path(__file__).with_name("defaults")
DEFAULTS = _CARRIED if _CARRIED.is_dir() else Path(__file__).parents[2] / _FOLDER
"""The folder of default files."""


def file_or_default(path: Path, root: Path = Path()) -> Path:
    """`path` below `root`, if it exists; for a missing `config/NAME`, the default file NAME."""
    own = root / path
    if own.exists() or not path.is_relative_to(_FOLDER):
        return own
    default = DEFAULTS / path.relative_to(_FOLDER)
    return default if default.exists() else own
