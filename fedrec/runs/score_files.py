"""Read the scores of another system, translate its ids to fedrec's numbers, and refuse incomplete scores.

A file has a row per user and item (parquet, csv), or is a matrix (users, items) (npy). Scores of a user's
training items are ignored unless the item is also held out: no rank depends on them.
"""

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray
from typing_extensions import override

from fedrec.data.split import TRAIN, Split
from fedrec.errors import ConfigurationError, DataError, ResultError, did_you_mean
from fedrec.files.atomic import sha256_of_file
from fedrec.files.parquet import content_hash, read_table

IdKind = Literal["original", "fedrec"]
"""The ids in a file: those of the dataset's raw file, or fedrec's numbers."""
_COLUMNS = ("user", "item", "score")
_SUFFIXES = (".parquet", ".csv", ".npy")
_ROWS_AT_ONCE = 1 << 20
_NUMBERS_AT_ONCE = 1 << 22
_DENSE = 4
"""Use a matrix of all pairs if it has at most this many times the pairs of the file."""
_MOST_NAMED = 3
"""Users, items or rows that a message names."""
PairNumbers: TypeAlias = NDArray[np.int64]
"""Pairs as one number each, user x items + item, sorted."""


@dataclass(frozen=True)
class ScoreFile(ABC):
    """Scores of another system, in fedrec's numbers of users and items."""

    in_catalogue: bool
    """Whether every user has scores of all items, but for its training items."""
    checksum: str
    """Checksum of the scores."""

    @abstractmethod
    def of(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[Any]:
        """The score of each pair; it may be NaN for a training item."""


@dataclass(frozen=True)
class Ids:
    """The ids that users and items have outside fedrec, each at its number."""

    user: Sequence[str]
    item: Sequence[str]
    where: str
    """The place of the ids, for messages."""
    are_numbers: bool = False
    """Whether they are fedrec's own numbers."""

    @classmethod
    def of(cls, kind: str, data: Path, split: Split | None = None) -> "Ids":
        """The original ids, from the files that `fedrec prepare` wrote beside the splits, or the numbers.

        With `split`, their number must match it. Without it the files decide the number.
        """
        counts = None if split is None else (split.users, split.items)
        if kind == "fedrec":
            users, items = counts or map(len, _both_original_ids(data, None))
            return cls(_numerals(users), _numerals(items), "numbers from 0 on", are_numbers=True)
        if kind not in get_args(IdKind):
            raise ConfigurationError(
                f"--ids {kind}: unknown kind of ids.{did_you_mean(kind, get_args(IdKind))} Write original, "
                "for the ids of the dataset's raw file, or fedrec, for the numbers in the split."
            )
        return cls(
            *_both_original_ids(data, counts),
            f"column original_id of users.parquet and items.parquet in {data}",
        )


def numbers_of_ids(given: object, column: Literal["user", "item"], ids: Ids) -> NDArray[np.int64]:
    """fedrec's numbers of ids; `ResultError` names an unknown id."""
    try:
        words = np.asarray(given, dtype=None if ids.are_numbers else object)
    except ValueError:
        raise ResultError(f"{column}s: the lists have different lengths. Give lists of one length.") from None
    if not words.ndim:
        raise ResultError(f"{column}s: {given!r} is a single {column}. Give a list: [{given!r}].")
    if ids.are_numbers:
        return _checked_numbers(words, column, ids)
    known = {original: number for number, original in enumerate(ids.user if column == "user" else ids.item)}
    texts = [str(word) for word in words.flat]
    strangers = [text for text in texts if text not in known]
    if strangers:
        raise ResultError(
            f"{column}s: there is no {column} {strangers[0]}.{did_you_mean(strangers[0], known)} Use these "
            f'ids only: {ids.where}. For the numbers in the split, add ids="fedrec".'
        )
    return np.array([known[text] for text in texts], dtype=np.int64).reshape(words.shape)


def _checked_numbers(words: NDArray[Any], column: Literal["user", "item"], ids: Ids) -> NDArray[np.int64]:
    if words.size and words.dtype.kind not in "iu":
        raise ResultError(
            f"{column}s: {words.tolist()!r} are not numbers of the split. Give integers; or, for the ids of "
            'the dataset\'s raw file, add ids="original".'
        )
    count = len(ids.user if column == "user" else ids.item)
    numbers = words.astype(np.int64)
    outside = numbers[(numbers < 0) | (numbers >= count)]
    if outside.size:
        raise ResultError(
            f"{column}s: there is no {column} {outside[0]}. The split's numbers go from 0 to {count - 1}."
        )
    return numbers


@dataclass(frozen=True)
class _Needed:
    """The pairs whose scores decide a rank in a split."""

    split: Split

    @cached_property
    def users(self) -> NDArray[np.int64]:
        """The users that take part; sorted."""
        return np.unique(self.split.user).astype(np.int64)

    @cached_property
    def unread(self) -> PairNumbers:
        """Pairs of users and their training items, without items that are also held out."""
        held_out = self.split.part != TRAIN
        return np.setdiff1d(self._pairs(~held_out), self._pairs(held_out))

    @cached_property
    def sampled(self) -> PairNumbers:
        """Pairs of users with their held-out items and candidates."""
        lists = self.split.candidates
        user = lists.user.astype(np.int64)[:, None] * self.split.items
        return np.unique(
            np.concatenate(
                (
                    self._pairs(self.split.part != TRAIN),
                    (user + lists.validation).ravel(),
                    (user + lists.test).ravel(),
                )
            )
        )

    @cached_property
    def in_catalogue(self) -> NDArray[np.int64]:
        """The number of catalogue items that each of `users` needs."""
        hidden = np.bincount(self.unread // self.split.items, minlength=self.split.users)[self.users]
        return self.split.items - hidden

    def is_read(self, pairs: PairNumbers) -> NDArray[np.bool_]:
        """Whether each pair has a participating user and no training item."""
        takes_part = np.zeros(self.split.users, dtype=bool)
        takes_part[self.users] = True
        read: NDArray[np.bool_] = takes_part[pairs // self.split.items]
        # There are far fewer training items than scores.
        index = np.searchsorted(pairs, self.unread)
        found = index < len(pairs)
        found[found] = pairs[index[found]] == self.unread[found]
        read[index[found]] = False
        return read

    def items_of(self, user: int) -> NDArray[np.int64]:
        """All items that a user needs for its rank in the catalogue."""
        first = user * self.split.items
        own = np.arange(first, first + self.split.items)
        return np.setdiff1d(own, self.unread) - first

    def _pairs(self, chosen: NDArray[np.bool_]) -> PairNumbers:
        user, item = self.split.user[chosen].astype(np.int64), self.split.item[chosen]
        return np.unique(user * self.split.items + item)


@dataclass(frozen=True)
class _Listed(ScoreFile):
    """Scores in rows of user, item and score."""

    pairs: PairNumbers
    score: NDArray[Any]
    items: int

    @override
    def of(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[Any]:
        wanted = user * self.items + item
        index = np.searchsorted(self.pairs, wanted)
        index[index == len(self.pairs)] = 0
        return np.where(self.pairs[index] == wanted, self.score[index], np.array(np.nan, self.score.dtype))


@dataclass(frozen=True)
class _Matrix(ScoreFile):
    """Scores of all items for all users, in fedrec's order."""

    score: NDArray[Any]

    @override
    def of(self, user: NDArray[np.int64], item: NDArray[np.int64]) -> NDArray[Any]:
        scores: NDArray[Any] = self.score[user, item]
        return scores.astype(_kind(scores.dtype))


def read_scores(source: object, ids: Ids, split: Split) -> ScoreFile:
    """Read scores from a file, a matrix of numpy, or any frame that arrow can read.

    `DataError` reports what is wrong: the scores must decide every rank of the split.
    """
    name = str(source) if isinstance(source, str | Path) else "scores"
    if isinstance(source, str | Path):
        path = _checked_path(Path(source))
        if path.suffix == ".npy":
            return _matrix(name, _loaded(path), sha256_of_file(path), ids, split)
        return _listed(name, _batches(path), sha256_of_file(path), ids, split)
    if isinstance(source, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(source).tobytes()).hexdigest()
        return _matrix(name, source, digest, ids, split)
    if not hasattr(source, "__arrow_c_stream__"):
        raise DataError(
            f"scores: fedrec cannot read an object of type {type(source).__name__}. Give the path of a "
            "file, a numpy matrix, or a polars, pandas or pyarrow frame with the columns user, item, score."
        )
    table = pa.table(source)
    _check_columns(name, table.column_names)
    table = table.select(_COLUMNS)
    return _listed(name, iter(table.to_batches(_ROWS_AT_ONCE)), content_hash(table), ids, split)


def _checked_path(path: Path) -> Path:
    if path.suffix not in _SUFFIXES:
        mistake = (
            f"the file type '{path.suffix}' is unknown.{did_you_mean(path.suffix, _SUFFIXES)}"
            if path.suffix
            else "the file name has no extension."
        )
        raise DataError(
            f"{path}: {mistake} Write scores as .parquet or .csv with the columns user, item and score, or "
            "as .npy with a row for each user."
        )
    if not path.is_file():
        raise DataError(f"{path}: no such file. Give the file of scores.")
    return path


def _numerals(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _both_original_ids(data: Path, counts: tuple[int, int] | None) -> tuple[list[str], list[str]]:
    """The ids of users and items; with `counts`, their numbers must match."""
    users, items = counts or (None, None)
    return (
        _original_ids(data / "users.parquet", "user", users),
        _original_ids(data / "items.parquet", "item", items),
    )


def _original_ids(path: Path, name: str, count: int | None) -> list[str]:
    again = (
        "Prepare the dataset again with `fedrec prepare`; or write the numbers of the split, and add "
        "--ids fedrec."
    )
    table, _ = read_table(path, columns=(name, "original_id"), rebuild=again)
    if count is not None and len(table) != count:
        raise DataError(
            f"{path}: has {len(table):,} {name}s, but the split has {count:,}: they belong to two datasets. "
            f"{again}"
        )
    ids: list[str] = table.sort_by(name)["original_id"].to_pylist()
    return ids


def _loaded(path: Path) -> NDArray[Any]:
    try:
        matrix: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path}: is not a numpy matrix ({error}). Write it with numpy.save.") from None
    return matrix


def _kind(dtype: np.dtype[Any]) -> type[np.float32 | np.float64]:
    """The precision for ranking: single for 16 and 32 bits, else double."""
    return np.float32 if dtype in (np.float16, np.float32) else np.float64


def _matrix(name: str, score: NDArray[Any], checksum: str, ids: Ids, split: Split) -> _Matrix:
    wanted = (split.users, split.items)
    if score.shape != wanted:
        turned = " If it is transposed, write its transpose." if score.shape == wanted[::-1] else ""
        raise DataError(
            f"{name}: its shape is {score.shape}, but {split.dataset} has {wanted[0]:,} users and "
            f"{wanted[1]:,} items.{turned} Write a row for each user of users.parquet and a column for each "
            "item of items.parquet, in their order."
        )
    if score.dtype.kind not in "fiu":
        raise DataError(f"{name}: its numbers have the type {score.dtype}. Write real numbers.")
    needed = _Needed(split)
    at_once = max(1, _NUMBERS_AT_ONCE // split.items)
    wrong: list[PairNumbers] = []
    for first in range(0, len(needed.users), at_once):
        users = needed.users[first : first + at_once]
        row, item = np.nonzero(~np.isfinite(score[users]))
        wrong.append(np.setdiff1d(users[row] * split.items + item, needed.unread))
    _refuse_broken(name, np.concatenate(wrong), ids, split.items)
    return _Matrix(True, checksum, score)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches; ids of a csv stay texts."""
    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                _check_columns(str(path), file.schema_arrow.names)
                yield from file.iter_batches(_ROWS_AT_ONCE, columns=list(_COLUMNS))
            return
        types = {"user": pa.string(), "item": pa.string(), "score": pa.float64()}
        with pa_csv.open_csv(path, convert_options=pa_csv.ConvertOptions(column_types=types)) as stream:
            _check_columns(str(path), stream.schema.names)
            yield from stream
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}: cannot be read ({error}). Write the columns user, item and score, with scores as "
            "numbers."
        ) from None


def _check_columns(name: str, columns: Sequence[str]) -> None:
    missing = [column for column in _COLUMNS if column not in columns]
    strange = [column for column in columns if column not in _COLUMNS]
    if sorted(columns) == sorted(_COLUMNS):
        return
    known = missing or _COLUMNS
    hints = "".join(f" Unknown column '{column}'.{did_you_mean(column, known)}" for column in strange)
    without = f" It has no column {' and no column '.join(missing)}." if missing else ""
    twice = "" if strange or missing else " A column occurs twice."
    raise DataError(
        f"{name}: its columns are {', '.join(columns) or 'none'}.{without}{hints}{twice} Write the columns "
        "user, item and score, and no others; the first line of a csv has their names."
    )


def _listed(name: str, batches: Iterator[pa.RecordBatch], checksum: str, ids: Ids, split: Split) -> ScoreFile:
    pairs, score = _numbered(name, batches, ids, split)
    if not (np.diff(pairs) > 0).all():
        pairs, score = _sorted(pairs, score, split.users * split.items)
    repeated = np.unique(pairs[1:][np.diff(pairs) == 0])
    if len(repeated):
        raise DataError(
            f"{name}: {_counted(repeated, 'pair')} of user and item {_has(repeated)} several scores: "
            f"{_pairs_named(repeated, ids, split.items)}. Write one score for each pair."
        )
    needed = _Needed(split)
    is_read = needed.is_read(pairs)
    pairs, score = pairs[is_read], score[is_read]
    _refuse_broken(name, pairs[~np.isfinite(score)], ids, split.items)
    if not _covers_catalogue(name, pairs, needed, ids):
        return _Listed(False, checksum, pairs, score, split.items)
    matrix = np.full((split.users, split.items), np.nan, score.dtype)
    matrix.reshape(-1)[pairs] = score
    return _Matrix(True, checksum, matrix)


def _sorted(pairs: PairNumbers, score: NDArray[Any], cells: int) -> tuple[PairNumbers, NDArray[Any]]:
    """Sort pairs and their scores; `cells` is users x items."""
    if _DENSE * len(pairs) > cells:
        # With most pairs present, a table with a cell for each pair is faster than sorting.
        seen = np.zeros(cells, dtype=bool)
        seen[pairs] = True
        present = np.flatnonzero(seen)
        if len(present) == len(pairs):
            ordered = np.empty(cells, score.dtype)
            ordered[pairs] = score
            return present, ordered[present]
    order = np.argsort(pairs)
    return pairs[order], score[order]


def _numbered(
    name: str, batches: Iterable[pa.RecordBatch], ids: Ids, split: Split
) -> tuple[PairNumbers, NDArray[Any]]:
    """The pairs of all rows in the order of the file, and their scores."""
    known = {"user": pa.array(ids.user, pa.string()), "item": pa.array(ids.item, pa.string())}
    pairs: list[PairNumbers] = []
    scores: list[NDArray[Any]] = []
    unknown: dict[str, set[str]] = {"user": set(), "item": set()}
    for batch in batches:
        number = {}
        for column, names in known.items():
            number[column], strangers = _places(batch[column], names)
            unknown[column] |= strangers
        scores.append(_score_column(name, batch["score"]))
        pairs.append(number["user"] * split.items + number["item"])
    if not any(map(len, pairs)):
        raise DataError(f"{name}: the table is empty. Write a row for each user and item.")
    for column, strangers in unknown.items():
        if strangers:
            raise DataError(
                f"{name}: {_counted(strangers, column)} of the file {_are(strangers)} not in "
                f"{split.dataset}: {_first(sorted(strangers))}.{_meant(strangers, ids, column)} Use these "
                f"ids only: {ids.where}."
            )
    return np.concatenate(pairs), np.concatenate(scores)


def _places(column: pa.Array, names: pa.Array) -> tuple[NDArray[np.int64], set[str]]:
    """The number of each id, and the unknown ids."""
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    words = pc.cast(encoded.dictionary, pa.string())
    index = pc.index_in(words, value_set=names).fill_null(-1).to_numpy(zero_copy_only=False)
    strangers = set(words.filter(pa.array(index < 0)).to_pylist())
    if encoded.indices.null_count:
        strangers.add("an empty id")
    rows = encoded.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
    # The last entry is for an empty id.
    return np.append(index, -1).astype(np.int64)[rows], strangers


def _score_column(name: str, column: pa.Array) -> NDArray[Any]:
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise DataError(f"{name}: its column score has the type {column.type}. Write numbers.")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values.astype(_kind(values.dtype), copy=False)


def _covers_catalogue(name: str, pairs: PairNumbers, needed: _Needed, ids: Ids) -> bool:
    """Whether the pairs cover the catalogue; `DataError` if they cover neither it nor the candidates."""
    items = needed.split.items
    count = np.bincount(pairs // items, minlength=needed.split.users)[needed.users]
    without = needed.users[count == 0]
    if len(without):
        raise DataError(
            f"{name}: {_counted(without, 'user')} of {len(needed.users):,} in the split {_has(without)} no "
            f"scores: {_first([ids.user[user] for user in without])}. Score every user of the split."
        )
    if (count == needed.in_catalogue).all():
        return True
    lacking = np.setdiff1d(needed.sampled, pairs, assume_unique=True)
    if not len(lacking) and len(pairs) == len(needed.sampled):
        return False
    users = np.unique(lacking // items) if len(lacking) else needed.users[count < needed.in_catalogue]
    own = pairs[pairs // items == users[0]] % items
    wanted = lacking[lacking // items == users[0]] % items if len(lacking) else needed.items_of(users[0])
    missing = np.setdiff1d(wanted, own)
    what = (
        "held-out items or candidates"
        if len(lacking)
        else "items, and the file scores more than the candidates"
    )
    raise DataError(
        f"{name}: {_counted(users, 'user')} {_has(users)} no score of some {what}; user "
        f"{ids.user[users[0]]} has none of {_counted(missing, 'item')}: "
        f"{_first([ids.item[item] for item in missing])}. Score every item that a user did not train on, or "
        "held-out items and candidates only."
    )


def _refuse_broken(name: str, wrong: PairNumbers, ids: Ids, items: int) -> None:
    if len(wrong):
        raise DataError(
            f"{name}: {_counted(wrong, 'score')} {_are(wrong)} not a number, or infinite: "
            f"{_pairs_named(wrong, ids, items)}. Write finite numbers, for example a very low one for an "
            "item that the system would never recommend."
        )


def _meant(strangers: Iterable[str], ids: Ids, column: str) -> str:
    """A hint if the unknown ids look like fedrec's numbers, or like fractions."""
    if any(re.fullmatch(r"\d+\.0*", stranger) for stranger in strangers):
        return " They look like fractions: write whole numbers."
    count = len(ids.user if column == "user" else ids.item)
    if all(stranger.isdecimal() and int(stranger) < count for stranger in strangers):
        return " If they are the numbers of the split, add --ids fedrec."
    return ""


def _pairs_named(pairs: PairNumbers, ids: Ids, items: int) -> str:
    named = [f"user {ids.user[pair // items]}, item {ids.item[pair % items]}" for pair in pairs[:_MOST_NAMED]]
    return f"{'; '.join(named)}{_more(len(pairs))}"


def _first(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_MOST_NAMED])}{_more(len(names))}"


def _more(count: int) -> str:
    return f" and {count - _MOST_NAMED:,} more" if count > _MOST_NAMED else ""


def _counted(those: Sized, what: str) -> str:
    return f"{len(those):,} {what}{'' if len(those) == 1 else 's'}"


def _are(those: Sized) -> str:
    return "is" if len(those) == 1 else "are"


def _has(those: Sized) -> str:
    return "has" if len(those) == 1 else "have"
