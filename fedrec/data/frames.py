"""Prepare and split a user's own interactions, a frame or a file, without an entry in the catalogue.

Columns are recognised as by `fedrec new dataset`: a frame is written as a text table and read like one. So a
frame and a file with the same rows give the same dataset.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from fedrec.config.catalogue import Dataset, load_catalogue
from fedrec.config.default_paths import default_catalogue, default_protocol_file
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.config.scaffold import check_new_name
from fedrec.data.guess import Guess, guess_format
from fedrec.data.interactions import Interactions, read_interactions_file
from fedrec.data.parse import read_interactions
from fedrec.data.prepare import INTERACTIONS_FILE, ITEMS_FILE, USERS_FILE, Prepared, tidy, write_tidy
from fedrec.data.split import Split, write_split
from fedrec.data.temporal import split_by, split_in
from fedrec.errors import ConfigurationError, DataError, SplitError, did_you_mean
from fedrec.files.atomic import sha256_of_file
from fedrec.files.parquet import read_table

DATA = Path("results/data")
"""The folder of prepared datasets that the workflow uses."""
_SURE = 2**53
"""Integers below it are exact in double precision."""


@dataclass(frozen=True)
class PreparedData:
    """A prepared dataset with its splits, usable as the path of its folder."""

    folder: Path
    """The folder with the interactions, the original ids of users and items, and a folder for each split."""
    protocols: tuple[str, ...]
    """The protocols of the requested splits."""
    users: int
    items: int
    interactions: int
    notes: tuple[str, ...]
    """Notes on the columns that were read, and the rows that were left out."""

    def __fspath__(self) -> str:
        """The path of the folder."""
        return str(self.folder)


@dataclass(frozen=True)
class _Read:
    """Interactions as read, with their source."""

    table: pl.DataFrame
    guess: Guess
    columns: Mapping[str, object]
    """The source's own names of the columns that were read."""
    source: Mapping[str, str]
    """Its name and checksum."""


def split_frame(
    frame: object,
    name: str,
    protocols: Sequence[str],
    folder: Path | None,
    named: Mapping[str, str],
    min_rows: int,
) -> PreparedData:
    """Prepare and split interactions, as `fedrec.split`; `named` has the given columns by kind."""
    _check_name(name, folder)
    rules = [protocol_named(load_protocols(default_protocol_file()), protocol) for protocol in protocols]
    read = _read(frame, named)
    is_timed = "time" in read.columns
    dataset = Dataset(name, name, min_rows, "file" if is_timed else "first_appearance")
    prepared = tidy(read.table, dataset)
    notes = [*_read_notes(read, name), *_left_out(read.table, prepared.interactions, name, min_rows)]
    where = folder or DATA / name
    splits = [split_by(prepared.interactions, protocol) for protocol in rules]
    _write(prepared, where, {"recipe": dataset.recipe(), "raw": read.source})
    for split in splits:
        _write_split(split, where)
        notes += dropped_notes(split)
    for note in notes:
        print(note, file=sys.stderr)
    interactions = prepared.interactions
    return PreparedData(
        where, tuple(protocols), interactions.users, interactions.items, len(interactions), tuple(notes)
    )


def dropped_notes(split: Split) -> list[str]:
    """A note on the users that a split drops; empty if it drops none."""
    if not len(split.dropped):
        return []
    where = "" if split.protocol.cut is None else " before or after the cut time"
    return [
        f"{split.dataset}, {split.protocol.name}: left out {len(split.dropped)} users with too few "
        f"rows{where}, or too few unrated items. The metadata of split.parquet lists them."
    ]


def _check_name(name: str, folder: Path | None) -> None:
    """Raise `ConfigurationError` unless a user's own dataset can have this name."""
    check_new_name(name)
    if name in load_catalogue(default_catalogue()):
        raise ConfigurationError(
            f"'{name}' is a dataset of {default_catalogue()}, which `fedrec prepare {name}` prepares. Choose "
            "another name for your own."
        )
    if folder is not None and folder.name != name:
        raise ConfigurationError(
            f"{folder}: the folder must have the name of the dataset, {name}. Give, for example, "
            f"{folder / name}."
        )


def _read(frame: object, named: Mapping[str, str]) -> _Read:
    """The interactions of a file or of a frame."""
    if not isinstance(frame, str | os.PathLike):
        return _of_frame(_polars(frame), named, "the frame")
    path = Path(frame)
    if path.suffix == ".parquet":
        return replace(_of_frame(_parquet(path), named, str(path)), source=_file_source(path))
    guess = guess_format(path)
    if named:
        texts = _texts(path, guess)
        return replace(_of_frame(texts, named, str(path)), source=_file_source(path))
    table = read_interactions(path, guess.format)
    return _Read(table, guess, guess.format.columns, _file_source(path))


def _file_source(path: Path) -> dict[str, str]:
    return {path.name: sha256_of_file(path)}


def _polars(frame: Any) -> pl.DataFrame:  # noqa: ANN401
    """Convert any frame to polars; a named pandas index becomes a column."""
    if isinstance(frame, pl.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, pl.DataFrame):
        return frame
    if any(getattr(getattr(frame, "index", None), "names", ())):
        frame = frame.reset_index()
    if not hasattr(frame, "__arrow_c_stream__") and not hasattr(frame, "__dataframe__"):
        raise DataError(
            f"an object of type {type(frame).__name__} is not a table of interactions. Give a polars, pandas "
            "or pyarrow frame, or the path of a csv or parquet file."
        )
    return pl.DataFrame(frame)


def _parquet(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Give the path of a table of interactions.") from None
    except (OSError, pl.exceptions.PolarsError) as error:
        raise DataError(f"{path}: cannot be read ({error}). Write the table again.") from None


def _texts(path: Path, guess: Guess) -> pl.DataFrame:
    """The columns of a text table as text."""
    form = guess.format
    if len(form.separator) != 1:
        raise DataError(
            f"{path}: columns cannot be chosen by name if the separator is {form.separator!r}. Read the "
            "file into a frame, and give the frame."
        )
    quote = '"' if form.quoted else None
    try:
        return pl.read_csv(path, separator=form.separator, quote_char=quote, infer_schema=False)
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path}: cannot be read ({error}). Correct the line, or give a frame.") from None


def _of_frame(frame: pl.DataFrame, named: Mapping[str, str], name: str) -> _Read:
    """The interactions of a frame, through a text table of its columns."""
    dated = [column.name for column in frame if isinstance(column.dtype, pl.Datetime | pl.Date)]
    if len(dated) == 1 and dated[0] not in named.values():
        named = {"time": dated[0], **named}
    ordered = _named_first(frame, named, name)
    whole = ordered.rename(dict(zip(ordered.columns, _new_names(ordered.columns, named), strict=True)))
    texts = whole.select(_as_text(column) for column in whole)
    with tempfile.TemporaryDirectory(prefix="fedrec-frame-") as folder:
        path = Path(folder) / "frame.csv"
        try:
            guess = _guess_of(texts, path, name)
            chosen = [str(column) for column in guess.format.columns.values()]
            _check_nulls(texts.select(chosen), ordered.columns, whole.columns, name)
            texts.select(chosen).write_csv(path, quote_style="always")
            table = read_interactions(path, replace(guess.format, quoted=True, separator=","))
        except DataError as error:
            raise DataError(str(error).replace(str(path), f"{name}, as csv")) from None
        checksum = sha256_of_file(path)
    old = dict(zip(whole.columns, ordered.columns, strict=True))
    columns = {kind: old[str(column)] for kind, column in guess.format.columns.items()}
    _check_named(columns, named, guess, name)
    return _Read(table, guess, columns, {"frame": checksum})


def _named_first(frame: pl.DataFrame, named: Mapping[str, str], name: str) -> pl.DataFrame:
    """The frame with the named columns first."""
    for kind, column in named.items():
        if column not in frame.columns:
            raise DataError(
                f"{kind}={column!r}: {name} has no such column.{did_you_mean(column, frame.columns)} It "
                f"has: {', '.join(frame.columns)}."
            )
    if len(set(named.values())) < len(named):
        raise DataError(f"{', '.join(named.values())}: a column is named twice. Name each column once.")
    if frame.is_empty():
        raise DataError(f"{name}: the table is empty. Give a table with one interaction per row.")
    others = [column for column in frame.columns if column not in named.values()]
    return frame.select(*named.values(), *others)


def _new_names(columns: Sequence[str], named: Mapping[str, str]) -> Iterable[str]:
    """Names by which the columns are recognised: named columns are called by their kind."""
    kinds = {column: kind for kind, column in named.items()}
    for column in columns:
        if column in kinds:
            yield kinds[column]
        else:
            yield f"other {column}" if column in named else column


def _as_text(column: pl.Series) -> pl.Series:
    """A column as text: times as seconds since 1970, whole numbers without a fraction."""
    if isinstance(column.dtype, pl.Datetime | pl.Date):
        column = column.dt.epoch("s")
    elif column.dtype.is_float():
        column = column.fill_nan(None)
        known = column.drop_nulls()
        if ((known == known.round()) & (known.abs() < _SURE)).all():
            column = column.cast(pl.Int64)
    elif column.dtype.is_nested() or column.dtype in (pl.Binary, pl.Object):
        return pl.Series(column.name, [None] * len(column), dtype=pl.String)
    return column.cast(pl.String)


def _guess_of(texts: pl.DataFrame, path: Path, name: str) -> Guess:
    """Guess the kind of each column from the rows without missing values."""
    filled = texts.select(column for column in texts if column.null_count() < len(column)).drop_nulls()
    if filled.is_empty():
        raise DataError(f"{name}: no row has values in all columns. Leave out columns that you do not need.")
    filled.write_csv(path, quote_style="always")
    return guess_format(path)


def _check_nulls(chosen: pl.DataFrame, own: Sequence[str], new: Sequence[str], name: str) -> None:
    """Raise `DataError` if a column that is read lacks values."""
    for column in chosen:
        if lacking := column.null_count():
            raise DataError(
                f"{name}: column {own[list(new).index(column.name)]!r} is empty in {lacking:,} of "
                f"{len(column):,} rows. Remove these rows, or fill them."
            )


def _check_named(columns: Mapping[str, object], named: Mapping[str, str], guess: Guess, name: str) -> None:
    """Raise `DataError` if a named column does not have the named kind."""
    for kind, column in named.items():
        if columns.get(kind) != column:
            why = "; ".join(guess.remarks)
            raise DataError(f"{kind}={column!r}: {name} has no {kind} in this column: {why}.")


def _read_notes(read: _Read, name: str) -> list[str]:
    table, time = read.table, read.guess.format.time
    columns = [
        f"{kind} from {column!r}" + (f" ({time})" if kind == "time" else "")
        for kind, column in read.columns.items()
    ]
    return [
        f"{name}: read {len(table):,} rows of {table['user'].n_unique():,} users and "
        f"{table['item'].n_unique():,} items: {', '.join(columns)}.",
        *(f"{name}: {remark}." for remark in read.guess.remarks),
    ]


def _left_out(table: pl.DataFrame, kept: Interactions, name: str, min_rows: int) -> list[str]:
    """Notes on rows that were read and left out."""
    notes = []
    rated = table.filter(pl.col("rating") > 0)
    if unrated := len(table) - len(rated):
        notes.append(f"{name}: left out {unrated:,} rows that are rated 0 or less.")
    if few := rated["user"].n_unique() - kept.users:
        rows = len(rated) - len(kept)
        notes.append(
            f"{name}: left out {few:,} users with fewer than {min_rows} rows, {rows:,} rows in total."
        )
    return notes


def _write(prepared: Prepared, folder: Path, about: dict[str, Any]) -> None:
    """Write the files of a dataset, unless the same exist; raise `DataError` for different ones."""
    advice = "Choose another name, or delete the folder."
    if not (folder / INTERACTIONS_FILE).exists():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise DataError(f"{folder}: exists already, but is not a prepared dataset. {advice}")
        write_tidy(prepared, folder, about)
        return
    there = read_interactions_file(folder / INTERACTIONS_FILE)
    interactions = prepared.interactions
    same = (there.content_hash(), there.dataset, there.timed) == (
        interactions.content_hash(),
        interactions.dataset,
        interactions.timed,
    )
    if not same or not all(
        _has_ids(folder / file, ids)
        for file, ids in ((USERS_FILE, prepared.users), (ITEMS_FILE, prepared.items))
    ):
        raise DataError(f"{folder}: contains other data with the name {there.dataset}. {advice}")
    # A killed process may have written only some of the files.
    if not (folder / USERS_FILE).exists() or not (folder / ITEMS_FILE).exists():
        write_tidy(prepared, folder, about)


def _has_ids(path: Path, ids: pl.DataFrame) -> bool:
    """Whether a file has these ids, or does not exist."""
    if not path.exists():
        return True
    table, _ = read_table(path, columns=("original_id",))
    there: list[str] = table["original_id"].to_pylist()
    return there == ids["original_id"].to_list()


def _write_split(split: Split, data: Path) -> None:
    """Write a split, unless the same exists; raise `SplitError` for a different one."""
    folder = data / split.protocol.name
    if not (folder / "split.parquet").exists() or not (folder / "candidates.parquet").exists():
        write_split(split, folder)
    elif split_in(folder).content_hash() != split.content_hash():
        raise SplitError(
            f"{folder}: contains a split by other rules with the same name. Delete the folder, or give your "
            "rules another name."
        )
