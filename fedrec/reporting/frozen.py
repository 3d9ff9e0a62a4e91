"""Frozen targets: their files are stored as they were built, since their inputs are not stored.

These are figures of models, which are too large to store, and tables of searches: once a finding is adopted,
the trials would have other names.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
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

_FROZEN_FILE = "kept.parquet"
_CODES = "codes.json"
"""The name of the row that holds the code of each run behind a figure."""
_CODE = ("engine", "code")
"""The keys of run.json that name this code."""


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
    """Freeze the files of targets that were built below `results`; return the names of all frozen targets.

    Earlier files of these targets are replaced, and targets that are not `known` are removed. A figure is
    stored in its smallest form, with the code that trained its models, and without rows of a dataset.
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
        write_table(
            store / _FROZEN_FILE, pa.Table.from_pylist(ordered), {"file": _FROZEN_FILE}, archival=True
        )
    else:
        (store / _FROZEN_FILE).unlink(missing_ok=True)
    return frozen_targets(store)


def frozen_text(store: Path, target: str, suffix: str) -> str:
    """The content of the frozen file of a target that ends in `suffix`."""
    (content,) = (
        row["content"]
        for row in _rows(store)
        if row["target"] == target and row["file"].endswith(suffix) and not row["file"].startswith("plan/")
    )
    return bytes(content).decode()


def frozen_codes(store: Path, target: Target) -> dict[RunId, dict[str, str]]:
    """The engine and the code that trained each run behind a frozen figure; empty for tables."""
    contents = [
        row["content"] for row in _rows(store) if (row["target"], row["file"]) == (target.name, _CODES)
    ]
    codes: dict[RunId, dict[str, str]] = {}
    for run in json.loads(bytes(contents[0])) if contents else ():
        code = {key: run.pop(key) for key in _CODE}
        codes[RunId(**run)] = code
    return codes


def thaw(store: Path, target: Target, results: Path) -> None:
    """Write the frozen files of a target below `results`."""
    for row in _rows(store):
        if row["target"] == target.name and row["file"] != _CODES:
            with atomic(results / row["file"]) as temporary:
                temporary.write_bytes(row["content"])


def _codes(target: Target, results: Path) -> list[dict[str, Any]]:
    """Each run of a target with the engine and the code that trained it."""
    summaries = [(run, RunRecord(results / run.folder).summary) for run in target.runs]
    return [{**asdict(run), **{key: summary[key] for key in _CODE}} for run, summary in summaries]


def _rows(store: Path) -> Sequence[Mapping[str, Any]]:
    path = store / _FROZEN_FILE
    if not path.is_file():
        return ()
    found = path.stat()
    return _read_rows(path, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(maxsize=1)
def _read_rows(path: Path, *_version: int) -> tuple[Mapping[str, Any], ...]:
    """The rows of one version of a file: callers ask for hundreds of targets of the same store."""
    return tuple(read_table(path)[0].to_pylist())
