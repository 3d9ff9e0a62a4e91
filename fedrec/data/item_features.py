"""Read item features: a user's file of numbers, brought into the order of a dataset's items.

The file is parquet or CSV. Its column `item` holds original ids, as the raw file of the dataset spells them;
every other column holds numbers.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedrec.errors import DataError, did_you_mean
from fedrec.files.atomic import sha256_of_file
from fedrec.files.parquet import read_table

_ITEM = "item"


@dataclass(frozen=True)
class ItemFeatures:
    """The features of every item of a dataset, `(items, columns)`, and their file."""

    path: str
    sha256: str
    columns: tuple[str, ...]
    values: NDArray[np.float64]


def item_features(path: Path, data: Path) -> ItemFeatures:
    """Read the features of the items of the dataset in the folder `data` from the file `path`.

    Raise `DataError` unless every item has exactly one row of finite numbers.
    """
    table = _read(path)
    columns = tuple(name for name in table.column_names if name != _ITEM)
    if _ITEM not in table.column_names or not columns:
        hint = did_you_mean(_ITEM, columns)
        raise DataError(f"{path}: needs a column '{_ITEM}' with original ids, and columns of numbers.{hint}")
    given = _ids(path, table[_ITEM])
    rows = _rows(path, given, data)
    values = np.column_stack([_numbers(path, name, table[name]) for name in columns])[rows]
    # Runs use single precision, in which a larger number is infinite.
    broken = np.argwhere(~(np.abs(values) <= np.finfo(np.float32).max))
    if len(broken):
        row, column = broken[0]
        raise DataError(
            f"{path}: column '{columns[column]}' has no finite 32-bit number for item '{given[rows[row]]}'. "
            "Fill it in, or scale the column."
        )
    return ItemFeatures(str(path), sha256_of_file(path), columns, values)


def _read(path: Path) -> pa.Table:
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise DataError(f"{path}: {what}. Give a parquet or csv file with a column '{_ITEM}'.")
    try:
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path).read()
        else:
            # Ids are text: 007 differs from 7.
            options = pv.ConvertOptions(column_types={_ITEM: pa.string()})
            table = pv.read_csv(path, convert_options=options)
        names = Counter(table.column_names)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a table ({error}).") from error
    twice = [name for name, times in names.items() if times > 1]
    if twice:
        raise DataError(f"{path}: two columns have the name '{twice[0]}'. Rename or remove one.")
    return table


def _ids(path: Path, column: pa.ChunkedArray) -> list[str | None]:
    """Original ids as text."""
    try:
        ids: list[str | None] = column.cast(pa.string()).to_pylist()
    except pa.ArrowException as error:
        raise DataError(
            f"{path}: column '{_ITEM}' has the type {column.type}. Write original ids, as text or integers."
        ) from error
    return ids


def _rows(path: Path, given: Sequence[str | None], data: Path) -> list[int]:
    """The index of each item's row in the file."""
    row_of: dict[str | None, int] = {}
    for row, item in enumerate(given):
        if row_of.setdefault(item, row) != row:
            raise DataError(f"{path}: item '{item}' has two rows. Keep one.")
    known, _ = read_table(data / "items.parquet", columns=("item", "original_id"))
    wanted = known.sort_by("item")["original_id"].to_pylist()
    missing = [item for item in wanted if item not in row_of]
    if missing:
        raise DataError(
            f"{path}: {len(missing):,} of {len(wanted):,} items of {data.name} have no row, for example "
            f"'{missing[0]}'. Use the ids of the dataset's raw file."
        )
    return [row_of[item] for item in wanted]


def _numbers(path: Path, name: str, column: pa.ChunkedArray) -> NDArray[np.float64]:
    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)):
        raise DataError(f"{path}: column '{name}' has the type {kind}. Write numbers.")
    # Integers with too many digits become the nearest float.
    values: NDArray[np.float64] = pc.cast(column, pa.float64(), safe=False).to_numpy()
    return values
