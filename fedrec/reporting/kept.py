"""Figures of the inside of models, kept as they were drawn: their models are too large to be stored."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedrec.errors import ResultError
from fedrec.files.atomic import atomic
from fedrec.files.parquet import read_table, write_table
from fedrec.plan.targets import Target

_FIGURES = "figures.parquet"


def kept_figures(store: Path) -> list[str]:
    """The targets whose files a store keeps, by name."""
    return sorted({row["target"] for row in _rows(store)})


def keep(store: Path, targets: Iterable[Target], results: Path) -> list[str]:
    """Keep the files of targets that were built below `results`; return the names of all that are kept.

    What was kept of a target before gives way.
    """
    rows = {(row["target"], row["file"]): row for row in _rows(store)}
    for target in targets:
        rows = {key: row for key, row in rows.items() if key[0] != target.name}
        for file in (*target.files, target.plan):
            path = results / file
            if not path.is_file():
                raise ResultError(f"{path}: no such file. Build it with: snakemake --cores 2 {target.name}")
            row = {"target": target.name, "file": file, "content": path.read_bytes()}
            rows[target.name, file] = row
    if rows:
        ordered = [rows[key] for key in sorted(rows)]
        write_table(store / _FIGURES, pa.Table.from_pylist(ordered), {"file": _FIGURES}, level=19)
    return kept_figures(store)


def take_out(store: Path, target: Target, results: Path) -> None:
    """Write the kept files of a target below `results`."""
    for row in _rows(store):
        if row["target"] == target.name:
            with atomic(results / row["file"]) as temporary:
                temporary.write_bytes(row["content"])


def _rows(store: Path) -> list[dict[str, Any]]:
    path = store / _FIGURES
    rows: list[dict[str, Any]] = read_table(path)[0].to_pylist() if path.is_file() else []
    return rows
