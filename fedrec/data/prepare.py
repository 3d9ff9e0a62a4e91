"""Prepare interactions from raw files: read, filter and number.

The papers' rules apply to every dataset. Interactions with a rating of 0 or less are removed, then users with
fewer than `min_rows` interactions, counted once and with repeated pairs. Items are not filtered. Users and
items are numbered by their sorted original ids, so numbers do not depend on the order of the file.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from fedrec.config.catalogue import Dataset, RawFile, Slice
from fedrec.data.interactions import Interactions, write_interactions
from fedrec.data.locate import located, places_looked_at
from fedrec.data.parse import read_interactions, read_titles
from fedrec.data.synthetic import synthetic_interactions, synthetic_titles
from fedrec.data.unstable_sort import rows_sorted_by_time
from fedrec.errors import DataError
from fedrec.files.atomic import sha256_of_file
from fedrec.files.parquet import write_table

logger = logging.getLogger(__name__)


INTERACTIONS_FILE, USERS_FILE, ITEMS_FILE = "interactions.parquet", "users.parquet", "items.parquet"
"""The names of a prepared dataset's files."""
_TIMES = {
    "first_appearance": pl.col("row").min().over("item"),
    "row_number": pl.col("row"),
    "constant": pl.lit(0, pl.Int64),
}
"""The time of a row if the file has no times."""


@dataclass(frozen=True)
class Prepared:
    """A prepared dataset: interactions, and the original ids of its users and items."""

    interactions: Interactions
    users: pl.DataFrame
    items: pl.DataFrame


@dataclass(frozen=True)
class _Files:
    """The folders of raw files: the project's, for paths of entries, and `raw`."""

    raw: Path
    home: Path

    def find(self, file: RawFile) -> Path | None:
        return located(file, self.raw, self.home)


def prepare(dataset: Dataset, raw: Path, home: Path = Path()) -> Prepared:
    """Prepare a dataset from its files, or generate it if it is synthetic.

    A file has the path of its entry, relative to the project's folder `home`, or lies below `raw`.
    """
    files = _Files(raw, home)
    return tidy(_read(dataset, files), dataset, _titles(dataset, files))


def tidy(table: pl.DataFrame, dataset: Dataset, titles: pl.DataFrame | None = None) -> Prepared:
    """Filter and number a table of `read_interactions` by the dataset's entry.

    `titles` has the columns item, in original ids, and title.
    """
    if dataset.time != "file":
        # Over the whole file, before filters, as in the papers' loaders.
        table = table.with_columns(time=_TIMES[dataset.time])
    kept = _filter(table, dataset.min_rows)
    if kept.is_empty():
        raise DataError(
            f"{dataset.name}: none of {len(table):,} rows is left, because no user has {dataset.min_rows} "
            "rows with a rating above 0. Lower filter.min_rows in the catalogue, or check the file."
        )
    if dataset.distinct_pairs and (repeated := len(kept) - kept.n_unique(["user", "item"])):
        raise DataError(
            f"{dataset.name}: {repeated:,} rows repeat a (user, item) pair, but the catalogue declares "
            "distinct_pairs. Remove distinct_pairs there, or check the file."
        )
    if dataset.slice is not None:
        kept = _sliced(kept, dataset.slice, dataset.name)
    orders = [paper for paper in dataset.row_orders if f"row_{paper}" in kept.columns]
    users, user = _numbered(kept["user"])
    items, item = _numbered(kept["item"])
    row_orders = {paper: kept[f"row_{paper}"].to_numpy() for paper in orders}
    if dataset.sorted_rows:
        resorted = rows_sorted_by_time(user, kept["time"].to_numpy(), kept["row"].to_numpy())
        row_orders |= dict.fromkeys(dataset.sorted_rows, resorted)
    interactions = Interactions(
        dataset=dataset.name,
        users=len(users),
        items=len(items),
        timed=dataset.time == "file",
        user=user,
        item=item,
        rating=kept["rating"].cast(pl.Float32).to_numpy(),
        time=kept["time"].to_numpy(),
        row=kept["row"].to_numpy(),
        row_orders=row_orders,
        missing_row_orders=tuple(paper for paper in dataset.row_orders if paper not in orders),
    )
    logger.info(
        "%s: %s rows read, %s kept: %s users, %s items",
        dataset.name,
        f"{len(table):,}",
        f"{len(kept):,}",
        f"{len(users):,}",
        f"{len(items):,}",
    )
    return Prepared(
        interactions,
        users=pl.DataFrame(
            {"user": np.arange(len(users), dtype=np.int32), "original_id": users.cast(pl.String)}
        ),
        items=_with_titles(items, titles),
    )


def write_prepared(
    prepared: Prepared, dataset: Dataset, raw: Path, folder: Path, home: Path = Path()
) -> None:
    """Write interactions.parquet, users.parquet and items.parquet into `folder`."""
    paths = {file.path: located(file, raw, home) for file in dataset.files()}
    about: dict[str, Any] = {
        "recipe": dataset.recipe(),
        "raw": {path: sha256_of_file(place) for path, place in paths.items() if place is not None},
    }
    write_tidy(prepared, folder, about)


def write_tidy(prepared: Prepared, folder: Path, about: dict[str, Any]) -> None:
    """Write these files, with the origin `about` in that of the interactions."""
    name = {"dataset": prepared.interactions.dataset}
    write_interactions(folder / INTERACTIONS_FILE, prepared.interactions, about)
    write_table(folder / USERS_FILE, prepared.users.to_arrow(), name)
    write_table(folder / ITEMS_FILE, prepared.items.to_arrow(), name)


def _read(dataset: Dataset, files: _Files) -> pl.DataFrame:
    if dataset.synthetic is not None:
        return synthetic_interactions(dataset.synthetic)
    assert dataset.interactions is not None, "the catalogue lists no files for a synthetic dataset"
    table = read_interactions(_checked(dataset.interactions, files), dataset.interactions.format)
    for paper, file in dataset.row_orders.items():
        if files.find(file) is not None:
            path = _checked(file, files)
            table = _with_row_order(table, paper, read_interactions(path, file.format), path)
        else:
            logger.warning(
                "%s: skipped the row order of %s, because %s is unavailable.", dataset.name, paper, file.path
            )
    return table


def _checked(file: RawFile, files: _Files) -> Path:
    """The path of `file`, after its content was verified if its entry has a checksum."""
    path = files.find(file)
    if path is None:
        looked = places_looked_at(file, files.raw, files.home)
        raise DataError(
            f"{file.written}: no such file. fedrec looked for {looked}. Put it there, or type `fedrec fetch "
            f"{file.path}`."
        )
    try:
        path.open("rb").close()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}).") from error
    accepted = file.accepted_sha256()
    if None in accepted:
        logger.info("%s: its entry has no sha256, so fedrec does not check its content", path)
    elif sha256_of_file(path) not in accepted:
        if path != files.raw / file.path:
            raise DataError(
                f"{path}: its sha256 differs from that of its entry ({file.sha256}). Correct the file or "
                "the entry."
            )
        raise DataError(
            f"{path}: its content has changed since it was fetched, or it is another edition (expected "
            f"sha256 {file.sha256}). Delete it and type the same command again to fetch it."
        )
    return path


def _with_row_order(table: pl.DataFrame, paper: str, other: pl.DataFrame, path: Path) -> pl.DataFrame:
    """Add `row_<paper>`: the row of each interaction in the paper's own copy of the file."""
    same = ["user", "item", "rating", "time"]
    if other.schema != table.drop(set(table.columns) - set(other.columns)).schema:
        raise DataError(
            f"{path}: must have the same rows in another order, but one file's ids are text and the other's "
            "integers. Set ids in the format of both."
        )
    repeats = pl.int_range(pl.len()).over(same).alias("repeat")
    theirs = other.with_columns(repeats).rename({"row": f"row_{paper}"})
    joined = table.with_columns(repeats).join(theirs, on=[*same, "repeat"], how="left", maintain_order="left")
    missing = joined[f"row_{paper}"].null_count()
    if missing or len(other) != len(table):
        raise DataError(
            f"{path}: must have the same rows in another order, but has {len(other):,} rows instead of "
            f"{len(table):,}, and lacks {missing:,} of those."
        )
    return joined.drop("repeat")


def _filter(table: pl.DataFrame, min_rows: int) -> pl.DataFrame:
    if table["rating"].min() <= 0:  # type: ignore[operator]
        table = table.filter(pl.col("rating") > 0)
    if min_rows > 1:
        table = table.filter(pl.len().over("user") >= min_rows)
    return table


def _sliced(table: pl.DataFrame, part: Slice, name: str) -> pl.DataFrame:
    """The interactions of a range of users or items, given by `part`."""
    column = part.of.removesuffix("s")
    ranked = table.group_by(column).len().sort(["len", column], descending=[True, False])
    if part.first + part.count > len(ranked):
        raise DataError(
            f"{name}: {part.count:,} {part.of} from position {part.first:,} are more than the "
            f"{len(ranked):,} that exist. Lower filter.slice.first or filter.slice.count in the catalogue."
        )
    chosen = ranked[column].slice(part.first, part.count)
    return table.filter(pl.col(column).is_in(chosen.implode()))


def _numbered(ids: pl.Series) -> tuple[pl.Series, np.ndarray[Any, np.dtype[np.int32]]]:
    """The sorted distinct ids, and the index of each id among them."""
    known = ids.unique().sort()
    if ids.dtype == pl.String:
        return known, ids.cast(pl.Enum(known)).to_physical().cast(pl.Int32).to_numpy()
    lowest, highest = int(known[0]), int(known[-1])
    if highest - lowest < 16 * len(ids):
        # Dense ids: a table of all possible ids is much faster than a search.
        number_of = np.zeros(highest - lowest + 1, dtype=np.int32)
        number_of[known.to_numpy() - lowest] = np.arange(len(known), dtype=np.int32)
        return known, number_of[ids.to_numpy() - lowest]
    return known, np.searchsorted(known.to_numpy(), ids.to_numpy()).astype(np.int32)


def _titles(dataset: Dataset, files: _Files) -> pl.DataFrame | None:
    """The titles of items by original id; None if the dataset has none, or their file is not available."""
    if dataset.synthetic is not None:
        return synthetic_titles(dataset.synthetic)
    if dataset.titles is None:
        return None
    if files.find(dataset.titles) is None:
        logger.warning("%s: no item titles, because %s is unavailable.", dataset.name, dataset.titles.path)
        return None
    return read_titles(_checked(dataset.titles, files), dataset.titles.format)


def _with_titles(items: pl.Series, titles: pl.DataFrame | None) -> pl.DataFrame:
    """The columns item, original_id and title; missing titles are null."""
    numbered = pl.DataFrame(
        {"item": np.arange(len(items), dtype=np.int32), "original_id": items.cast(pl.String)}
    )
    if titles is None:
        return numbered.with_columns(title=pl.lit(None, pl.String))
    known = titles.unique("item", keep="first", maintain_order=True).rename({"item": "original_id"})
    return numbered.join(known, on="original_id", how="left", maintain_order="left")
