"""A log of sampled training negatives from any training loop: read, checked and counted.

The file is parquet or CSV, with a row per draw: the columns `user`, `item` and `round`. A log of one round
needs no `round`. Ids are those of the dataset's raw file, or the numbers that fedrec gives users and items.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedrec.errors import DataError, did_you_mean
from fedrec.runs.score_files import IdKind, Ids

USER, ITEM, ROUND = "user", "item", "round"
_MISSING = ["", "nan", "NaN"]
_MOST_SHOWN = 3
"""The most unknown ids that an error shows."""


@dataclass(frozen=True)
class DrawLog:
    """The number of draws of each distinct (user, item) pair, sorted by user and item."""

    rounds: int
    user: NDArray[np.int64]
    item: NDArray[np.int64]
    count: NDArray[np.int64]

    @classmethod
    def of(cls, user: NDArray[np.int64], item: NDArray[np.int64], rounds: int = 1) -> "DrawLog":
        """Count single draws."""
        width = int(item.max(initial=0)) + 1
        pair, count = np.unique(user * width + item, return_counts=True)
        return cls(rounds, pair // width, pair % width, count)


def read_draw_log(path: Path, data: Path, ids: IdKind = "original") -> DrawLog:
    """Read the log `path` of draws on the dataset in the folder `data`.

    Raise `DataError` if a column or a value is missing, or an id is unknown.
    """
    table = _read(path)
    if not len(table):
        raise DataError(f"{path}: has no draws. Write a row for each sampled negative.")
    known = Ids.of(ids, data)
    user = _numbers(path, table[USER], _Known(USER, known.user, ids, data))
    item = _numbers(path, table[ITEM], _Known(ITEM, known.item, ids, data))
    return DrawLog.of(user, item, _rounds(path, table))


@dataclass(frozen=True)
class _Known:
    """The valid ids of a column, and advice about other ids."""

    what: str
    ids: Sequence[str]
    """The id of each number."""
    kind: IdKind
    data: Path

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each id."""
        return {spelled: number for number, spelled in enumerate(self.ids)}

    def cure(self, unknown: Sequence[str]) -> str:
        """Advice for ids that are not valid."""
        known = range(len(self.ids))
        if all(_decimal(one) in self.numbers for one in unknown):
            return "Write ids without decimals."
        if any(one.startswith("-") for one in unknown):
            return "Leave out the draws of placeholders, such as -1 for no item."
        if self.kind == "original" and all(one.isdecimal() and int(one) in known for one in unknown):
            return f"If they are fedrec's numbers, 0 to {known[-1]:,}, add --ids fedrec."
        if self.kind == "fedrec":
            return f"Its {self.what}s have the numbers 0 to {known[-1]:,}. Leave out --ids for original ids."
        file = self.data / f"{self.what}s.parquet"
        return f"Ids are those of the raw file, in the column original_id of {file}."


def _decimal(text: str) -> str | None:
    """`12` for `12.0`; None for other spellings."""
    return text.removesuffix(".0") if text.endswith(".0") else None


def _read(path: Path) -> pa.Table:
    """The columns of the log, with ids as they are spelled."""
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "no such file"
        raise DataError(f"{path}: {what}. Name a parquet or CSV file with the columns '{USER}' and '{ITEM}'.")
    is_parquet = path.suffix == ".parquet"
    try:
        if not is_parquet and not path.stat().st_size:
            raise DataError(f"{path}: is empty. Write a header line user,item,round and a row for each draw.")
        names = pq.read_schema(path).names if is_parquet else pv.open_csv(path).schema.names
        wanted = _columns(path, names)
        if is_parquet:
            return pq.ParquetFile(path).read(columns=wanted)
        # Ids are text, so 007 differs from 7; a dictionary stores each spelling once.
        types = dict.fromkeys(wanted, pa.dictionary(pa.int32(), pa.string()))
        options = pv.ConvertOptions(
            include_columns=wanted, column_types=types, null_values=_MISSING, strings_can_be_null=True
        )
        return pv.read_csv(path, convert_options=options)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as a table ({error}).") from error


def _columns(path: Path, names: Sequence[str]) -> list[str]:
    """The columns of a file that are read."""
    for name in (USER, ITEM):
        if name not in names:
            hint = did_you_mean(name, names)
            raise DataError(f"{path}: has no column '{name}'.{hint} It has: {', '.join(names)}.")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{path}: has two columns '{twice[0]}'. Rename one, or leave it out.")
    return [USER, ITEM, *([ROUND] if ROUND in names else [])]


def _numbers(path: Path, column: pa.ChunkedArray, known: _Known) -> NDArray[np.int64]:
    """The number of the user or item of each draw."""
    index, spelled = _spelled(path, known.what, column)
    number = np.array([known.numbers.get(one, -1) for one in spelled], dtype=np.int64)
    unknown = [one for one, user_or_item in zip(spelled, number, strict=True) if user_or_item < 0]
    if unknown:
        draws = int(np.count_nonzero(number[index] < 0))
        shown = ", ".join(f"'{one}'" for one in unknown[:_MOST_SHOWN])
        more = " and more" if len(unknown) > _MOST_SHOWN else ""
        raise DataError(
            f"{path}: {draws:,} of {len(index):,} draws name {known.what}s that {known.data.name} does not "
            f"have. Unknown ids: {len(unknown):,}, which are {shown}{more}. {known.cure(unknown)}"
        )
    return number[index]


def _spelled(path: Path, name: str, column: pa.ChunkedArray) -> tuple[NDArray[np.int64], list[str]]:
    """The index of each value among the distinct values, and these as text."""
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_nan(array), None, array)
    if array.null_count:
        row = pc.index(pc.is_null(array), True).as_py() + 1
        raise DataError(
            f"{path}: column '{name}' has no value in {array.null_count:,} of {len(array):,} rows, row "
            f"{row:,} for one. Fill it in, or leave such rows out."
        )
    try:
        if pa.types.is_floating(array.type):
            array = array.cast(pa.int64())
        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        spelled: list[str] = array.dictionary.cast(pa.string()).to_pylist()
    except pa.ArrowException as error:
        raise DataError(
            f"{path}: column '{name}' holds {array.type} where text or whole numbers are needed ({error})."
        ) from error
    return array.indices.to_numpy().astype(np.int64), spelled


def _rounds(path: Path, table: pa.Table) -> int:
    """The number of distinct rounds of a log."""
    if ROUND not in table.column_names:
        return 1
    _, spelled = _spelled(path, ROUND, table[ROUND])
    wrong = [one for one in spelled if not one.isdecimal()]
    if wrong:
        raise DataError(f"{path}: column '{ROUND}' holds '{wrong[0]}'. Number rounds from 0 or 1.")
    return len(spelled)
