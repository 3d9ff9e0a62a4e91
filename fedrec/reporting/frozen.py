"""Frozen targets: their files are stored as they were built, since their inputs are not stored.

Figures of the inside of models, which are too large; tables of searches, whose trials have other names as
soon as a value that was found is in place.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from fedrec.errors import ResultError
from fedrec.files.atomic import atomic
from fedrec.files.parquet import read_table, write_table
from fedrec.plan.layouts import Layout
from fedrec.plan.runs import RunId
from fedrec.plan.targets import Target, frozen_files_of
from fedrec.runs.record import RunRecord

_KEPT = "kept.parquet"
_CODES = "codes.json"
"""What the row of a figure is called that says which code trained each run behind it."""
_CODE = ("engine", "code")
"""What run.json says of that."""


def frozen_targets(store: Path) -> list[str]:
    """The names of the frozen targets of a store."""
    return sorted({row["target"] for row in _rows(store)})


def freeze(
    store: Path,
    targets: Iterable[Target],
    results: Path,
    layouts: Mapping[str, Layout],
    known: Collection[str],
) -> list[str]:
    """Keep the files of targets that were built below `results`; return the names of all that are kept.

    What was kept of a target before gives way, and so does what is none of the `known` targets any more. Of a
    figure it is kept which code trained the models that it shows, its pictures in the form alone that takes
    least room, and no row of a dataset.
    """
    rows = {(row["target"], row["file"]): row for row in _rows(store) if row["target"] in known}
    for target in targets:
        rows = {key: row for key, row in rows.items() if key[0] != target.name}
        contents = {}
        for file in (*frozen_files_of(layouts[target.layout], target.name), target.plan):
            path = results / file
            if not path.is_file():
                raise ResultError(f"{path}: no such file. Build it with: snakemake --cores 2 {target.name}")
            contents[file] = path.read_bytes()
        if target.form == "figure":
            contents[_CODES] = json.dumps(_codes(target, results), sort_keys=True).encode()
        for file, content in contents.items():
            rows[target.name, file] = {"target": target.name, "file": file, "content": content}
    if rows:
        ordered = [rows[key] for key in sorted(rows)]
        write_table(store / _KEPT, pa.Table.from_pylist(ordered), {"file": _KEPT}, archival=True)
    else:
        (store / _KEPT).unlink(missing_ok=True)
    return frozen_targets(store)


def frozen_text(store: Path, target: str, suffix: str) -> str:
    """The content of the kept file of a target that ends in `suffix`."""
    (content,) = (
        row["content"]
        for row in _rows(store)
        if row["target"] == target and row["file"].endswith(suffix) and not row["file"].startswith("plan/")
    )
    return bytes(content).decode()


def frozen_codes(store: Path, target: Target) -> dict[RunId, dict[str, str]]:
    """Of the runs whose models a kept figure shows: the engine and the code that trained them.

    Empty for what else is kept.
    """
    found = [row["content"] for row in _rows(store) if (row["target"], row["file"]) == (target.name, _CODES)]
    codes: dict[RunId, dict[str, str]] = {}
    for run in json.loads(bytes(found[0])) if found else ():
        code = {key: run.pop(key) for key in _CODE}
        codes[RunId(**run)] = code
    return codes


def thaw(store: Path, target: Target, results: Path) -> None:
    """Write the kept files of a target below `results`."""
    for row in _rows(store):
        if row["target"] == target.name and row["file"] != _CODES:
            with atomic(results / row["file"]) as temporary:
                temporary.write_bytes(row["content"])


def _codes(target: Target, results: Path) -> list[dict[str, Any]]:
    """Each run of a target with what its summary says of the code that trained it."""
    summaries = [(run, RunRecord(results / run.folder).summary) for run in target.runs]
    return [{**asdict(run), **{key: summary[key] for key in _CODE}} for run, summary in summaries]


def _rows(store: Path) -> list[dict[str, Any]]:
    path = store / _KEPT
    rows: list[dict[str, Any]] = read_table(path)[0].to_pylist() if path.is_file() else []
    return rows
