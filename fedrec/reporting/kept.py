"""What is kept as it was built, since what it is made of is not stored.

Figures of the inside of models, which are too large; tables of searches, whose trials have other names as
soon as a value that was found is in place.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedrec.errors import ResultError
from fedrec.files.atomic import atomic
from fedrec.files.parquet import read_table, write_table
from fedrec.plan.targets import Target

_KEPT = "kept.parquet"


def kept_targets(store: Path) -> list[str]:
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
        write_table(store / _KEPT, pa.Table.from_pylist(ordered), {"file": _KEPT}, level=19)
    return kept_targets(store)


def kept_text(store: Path, target: str, suffix: str) -> str:
    """The content of the kept file of a target that ends in `suffix`."""
    (content,) = (
        row["content"]
        for row in _rows(store)
        if row["target"] == target and row["file"].endswith(suffix) and not row["file"].startswith("plan/")
    )
    return bytes(content).decode()


def take_out(store: Path, target: Target, results: Path) -> None:
    """Write the kept files of a target below `results`."""
    for row in _rows(store):
        if row["target"] == target.name:
            with atomic(results / row["file"]) as temporary:
                temporary.write_bytes(row["content"])


def _rows(store: Path) -> list[dict[str, Any]]:
    path = store / _KEPT
    rows: list[dict[str, Any]] = read_table(path)[0].to_pylist() if path.is_file() else []
    return rows
