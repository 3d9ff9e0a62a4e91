"""Interactions of users with items, in the common form of all datasets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fedrec.files.parquet import content_hash, read_table, write_table

_ROW_ORDER_PREFIX = "row_"


@dataclass(frozen=True)
class Interactions:
    """The filtered interactions of a dataset, with users and items numbered from 0.

    `row` is each interaction's row in the raw file, `row_orders` its row in a paper's own copy of the file.
    `missing_row_orders` names the papers whose copy is not available. `timed` is False if `time` replaces
    times that the file lacks.
    """

    dataset: str
    users: int
    items: int
    timed: bool
    user: NDArray[np.int32]
    item: NDArray[np.int32]
    rating: NDArray[np.float32]
    time: NDArray[np.int64]
    row: NDArray[np.int64]
    row_orders: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    missing_row_orders: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.user)

    def table(self) -> pa.Table:
        """The columns user, item, rating, time, row and one `row_<paper>` per further order."""
        columns: dict[str, NDArray[Any]] = {
            "user": self.user,
            "item": self.item,
            "rating": self.rating,
            "time": self.time,
            "row": self.row,
        }
        columns |= {f"{_ROW_ORDER_PREFIX}{paper}": order for paper, order in sorted(self.row_orders.items())}
        return pa.table(columns)

    def content_hash(self) -> str:
        """The hash that derived files name; row orders of papers are not part of it."""
        return content_hash(self.table().select(["user", "item", "rating", "time", "row"]))


def write_interactions(path: Path, interactions: Interactions, about: dict[str, Any]) -> None:
    """Write the interactions, their counts and `about`, their origin."""
    counts = {
        "dataset": interactions.dataset,
        "users": interactions.users,
        "items": interactions.items,
        "timed": interactions.timed,
        "missing_row_orders": interactions.missing_row_orders,
    }
    write_table(path, interactions.table(), about | counts)


def read_interactions_file(path: Path) -> Interactions:
    """Read a file of `write_interactions`."""
    again = f"snakemake --cores 2 '{path}', or: fedrec prepare {path.parent.name} --out '{path.parent}'"
    says = ("dataset", "users", "items", "timed", "missing_row_orders")
    columns_read = ("user", "item", "time", "row")
    table, about = read_table(path, columns=columns_read, says=says, rebuild=f"Delete it, then: {again}")
    columns = {name: table[name].to_numpy() for name in table.column_names}
    orders = {
        name.removeprefix(_ROW_ORDER_PREFIX): columns.pop(name)
        for name in list(columns)
        if name.startswith(_ROW_ORDER_PREFIX)
    }
    counts = {name: about[name] for name in says[:-1]}
    missing = tuple(about["missing_row_orders"])
    return Interactions(**counts, **columns, row_orders=orders, missing_row_orders=missing)
