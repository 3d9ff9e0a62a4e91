"""The runs behind the report: where each came from, what its rounds cost, and by which protocol."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrec.errors import ResultError, StorageError
from fedrec.files.parquet import read_table
from fedrec.reporting.tables import Column, Row, Table
from fedrec.reporting.views import View, address_of, content_of, not_whole, view

_TIMES = ("clients", "bytes_down_per_client", "bytes_up_per_client", "local_seconds", "server_seconds")
_GIB = 2**30
_KIB = 2**10


@dataclass(frozen=True)
class Finished:
    """A finished run: what it says of itself, and its mean or median over rounds."""

    folder: Path
    summary: Mapping[str, Any]
    rounds: Mapping[str, float]

    @property
    def key(self) -> tuple[str, str, str, str, int, str]:
        """The order of runs on the page, whatever the order they are given in."""
        run = self.summary
        protocol = run["protocol"]["name"]
        return run["paper"], run["dataset"], protocol, run["method"], run["seed"], str(self.folder)


def finished_run(folder: Path) -> Finished:
    """The run in `folder`; what it does not tell of itself, or is not whole, is an error."""
    path = folder / "run.json"
    try:
        summary = json.loads(content_of(path))
    except ValueError as error:
        raise not_whole(path, str(error)) from error
    try:
        found = Finished(folder, summary, _rounds(folder))
        # What cannot be told of this run is found out here, where its folder can be named.
        _ = found.key, _provenance_row(found, ""), _protocol_row(found)
    except (KeyError, TypeError) as error:
        raise not_whole(path, f"it does not say {error}") from error
    return found


def _rounds(folder: Path) -> dict[str, float]:
    """What a round of a run cost."""
    path = folder / "timing.parquet"
    try:
        table, _ = read_table(path)
        columns = {name: np.asarray(table[name].to_numpy(), dtype=np.float64) for name in _TIMES}
    except StorageError as error:
        raise ResultError(f"{error} It tells what the rounds of this run cost.") from error
    except KeyError as error:
        raise not_whole(path, f"it has no column {error}") from error
    return {
        "rounds": table.num_rows,
        "clients": float(columns["clients"].mean()),
        "down": float(columns["bytes_down_per_client"].mean()) / _KIB,
        "up": float(columns["bytes_up_per_client"].mean()) / _KIB,
        "local": float(np.median(columns["local_seconds"])),
        "server": float(np.median(columns["server_seconds"])),
        "round": float(np.median(columns["local_seconds"] + columns["server_seconds"])),
    }


def _identity(run: Finished) -> dict[str, Any]:
    found = {key: run.summary[key] for key in ("paper", "dataset", "method", "seed")}
    return found | {"protocol": run.summary["protocol"]["name"]}


_IDENTITY = (
    Column("method", "method", align="left"),
    Column("dataset", "dataset", align="left"),
    Column("protocol", "protocol", align="left"),
    Column("paper", "settings of", align="left"),
    Column("seed", "seed", align="left"),
)


def _provenance_row(run: Finished, href: str) -> Row:
    summary, measured = run.summary, run.summary["measured"]
    changed = [key for key, source in summary["sources"].items() if source == "user"]
    return _identity(run) | {
        "href": href,
        "changed": ", ".join(f"{key}={_spelt(summary['settings'][key])}" for key in changed) or "none",
        "method_code": summary["code"]["method"],
        "engine_code": summary["code"]["engine"],
        "split": summary["split"],
        "device": measured["device"],
        "versions": ", ".join(f"{name} {version}" for name, version in measured["versions"].items()),
        "seconds": measured["seconds"],
        "memory": measured["peak_memory_bytes"] / _GIB,
    }


def _spelt(value: object) -> str:
    if isinstance(value, list):
        return "x".join(map(str, value)) or "none"
    return "null" if value is None else str(value)


def provenance_view(runs: Sequence[Finished], out: Path) -> View:
    """What each run was made from, with a link from the page `out` to its run.json."""
    table = Table(
        "Every run of this report. Hashes are cut to eight letters; run.json, behind the name of the method, "
        "has them whole, with every setting.",
        [
            *_IDENTITY,
            Column("changed", "settings changed", align="left"),
            Column("method_code", "code of method", "{:.8}", align="left"),
            Column("engine_code", "code of engine", "{:.8}", align="left"),
            Column("split", "split", "{:.8}", align="left"),
            Column("device", "device", align="left"),
            Column("versions", "versions", align="left"),
            Column("seconds", "seconds", "{:,.1f}"),
            Column("memory", "peak memory, GiB", "{:.2f}"),
        ],
        [_provenance_row(run, address_of(run.folder / "run.json", out)) for run in runs],
    )
    return view("runs-table", table, fold=True, linked="method")


def costs_view(runs: Sequence[Finished]) -> View:
    """What a round of each run cost."""
    table = Table(
        "What a round costs: seconds, as the median over rounds, and what a client receives and sends, as "
        "the mean over rounds, at four bytes a number. Seconds of different devices do not compare.",
        [
            *_IDENTITY,
            Column("device", "device", align="left"),
            Column("rounds", "rounds", "{:.0f}"),
            Column("clients", "clients a round", "{:,.0f}"),
            Column("round", "s a round", "{:,.3f}"),
            Column("local", "of it clients", "{:,.3f}"),
            Column("server", "of it server", "{:,.3f}"),
            Column("down", "KiB down a client", "{:,.1f}"),
            Column("up", "KiB up a client", "{:,.1f}"),
        ],
        [_identity(run) | {"device": run.summary["measured"]["device"], **run.rounds} for run in runs],
    )
    return view("costs-table", table, fold=True)


def _protocol_row(run: Finished) -> dict[str, Any]:
    found = {key: value for key, value in run.summary["protocol"].items() if key != "name"}
    return {"protocol": run.summary["protocol"]["name"]} | found


def protocols_view(runs: Sequence[Finished]) -> View | None:
    """The choices of each protocol there are runs of, as the runs state them."""
    rows: list[Row] = []
    for row in sorted((_protocol_row(run) for run in runs), key=lambda row: str(row["protocol"])):
        if row not in rows:
            rows.append(row)
    if not rows:
        return None
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [Column(key, key.replace("_", " "), align="left") for key in keys]
    spelt = [
        {key: None if value is None else str(value).replace("_", " ") for key, value in row.items()}
        for row in rows
    ]
    table = Table(
        "Protocols of the runs of this report. The leak is the pool of negatives: “exclude all” leaves out "
        "the held-out items, too.",
        columns,
        spelt,
    )
    return view("protocols-table", table, fold=True)
