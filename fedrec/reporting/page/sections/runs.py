"""The page of runs: the origin of each run, the costs of its rounds, and its protocol, by dataset."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import polars as pl

from fedrec.audit.differences import COMPARED_METRICS
from fedrec.config.methods import setting_text
from fedrec.errors import ResultError
from fedrec.plan.runs import SUMMARY
from fedrec.reporting.built_files import damaged
from fedrec.reporting.diverged import diverged_notes
from fedrec.reporting.exact import exact_notes
from fedrec.reporting.page.cells import PageTable, RunLinks, group_anchor, page_table
from fedrec.reporting.page.files import address_of
from fedrec.reporting.provenance import SHOWN_LETTERS
from fedrec.reporting.tables.table import DIVERGED_MARK, ReportColumn, ReportTable, Row
from fedrec.runs.exact import exact_name, metric_title
from fedrec.runs.provenance_columns import origin_columns
from fedrec.runs.record import RunRecord

_EXACT = tuple(exact_name(name) for name in COMPARED_METRICS)
_TIMES = ("clients", "bytes_down_per_client", "bytes_up_per_client", "local_seconds", "server_seconds")
_GIB = 2**30
_KIB = 2**10
_IDENTITY = (
    ReportColumn("method", "method", align="left"),
    ReportColumn("dataset", "dataset", align="left"),
    ReportColumn("paper", "settings of", align="left"),
    ReportColumn("protocol", "protocol", align="left"),
    ReportColumn("seed", "seed", align="left"),
)
_SHARED_KEYS = ("method", "dataset", "paper")
"""The keys that runs with comparable costs share."""
_WORKFLOW = f"snakemake --cores 1 results/{{folder}}/{SUMMARY}"
COMMANDS = (
    ("By the workflow", _WORKFLOW),
    (
        "By itself",
        "fedrec train --data results/data/{dataset} --method '{method}' --paper {paper} "
        "--protocol {protocol} --seed {seed} --out my-run",
    ),
)
"""Ways to train a run: a title, and the command with the fields of the run."""


def example(record: RunRecord) -> str:
    """The command that trains a run."""
    return _WORKFLOW.format(folder=record.id.folder)


def runs_tables(records: Sequence[RunRecord], links: RunLinks) -> list[tuple[str, PageTable]]:
    """Each dataset with the table of its runs, which are sorted by dataset."""
    by_dataset = groupby(records, key=lambda record: record.id.dataset)
    return [(dataset, runs_table(list(few), links)) for dataset, few in by_dataset]


def runs_table(records: Sequence[RunRecord], links: RunLinks) -> PageTable:
    """The origin of each run on a dataset, with its files and an anchor for links."""
    rows = [_run_row(record, _provenance_row, links) for record in records]
    shared = any(row["also"] for row in rows)
    versions = _numbered(rows, "versions")
    table = ReportTable(
        f"Runs on {records[0].id.dataset}. Checksums and fingerprints are shown by their first letters; "
        "run.json "
        "has them whole, with every setting."
        + (
            " A run with the settings of several papers is trained once, for the first of them."
            if shared
            else ""
        ),
        [
            *_IDENTITY,
            *([ReportColumn("also", "settings also of", align="left")] if shared else []),
            ReportColumn("hr@10", "HR@10", "{:.4f}"),
            ReportColumn("ndcg@10", "NDCG@10", "{:.4f}"),
            *(ReportColumn(name, metric_title(name), "{:.4f}") for name in _EXACT),
            ReportColumn("files", "files", align="left"),
            ReportColumn("seconds", "seconds in all", "{:,.1f}"),
            ReportColumn("memory", "peak memory, GiB", "{:.2f}"),
            ReportColumn("device", "device", align="left"),
            ReportColumn("changed", "settings changed", align="left"),
            ReportColumn("split", "split", align="left"),
            ReportColumn("code", "code", align="left"),
            ReportColumn("versions", "versions", align="left"),
        ],
        rows,
        [*versions, *_diverged(records), *exact_notes(records)],
        folds=True,
    )
    return page_table(f"runs-{records[0].id.dataset}", table)


def _numbered(rows: Sequence[dict[str, Any]], key: str) -> list[str]:
    """Replace long texts that many rows share by numbers, with a note on each number."""
    texts = list(dict.fromkeys(row[key] for row in rows))
    if len(texts) < 2:
        return []
    for row in rows:
        row[key] = str(1 + texts.index(row[key]))
    return [f"{key} {number}: {text}." for number, text in enumerate(texts, start=1)]


def _diverged(records: Sequence[RunRecord]) -> list[str]:
    """A note on the runs that diverged; empty if none did."""
    rows = [
        {"name": f"{run.method} on {run.dataset}, {run.protocol}, settings of {run.paper}, seed {run.seed}"}
        | origin_columns([record])
        for record in records
        for run in [record.id]
    ]
    return diverged_notes(rows, "name")


def costs_table(records: Sequence[RunRecord]) -> PageTable:
    """The costs of a round, with one row for runs that differ only by protocol and seed."""
    alike: dict[tuple[str, ...], list[RunRecord]] = {}
    for record in records:
        run, device = record.id, str(record.summary["measured"]["device"])
        alike.setdefault((run.method, run.dataset, run.paper, device), []).append(record)
    table = ReportTable(
        "Costs of a round: seconds (median over rounds), and KiB that a client receives and sends (mean "
        "over rounds, four bytes a number). A row of several runs has their medians over protocols and "
        "seeds. Do not compare seconds of different devices, or of runs that shared a device.",
        [
            *(column for column in _IDENTITY if column.key in _SHARED_KEYS),
            ReportColumn("device", "device", align="left"),
            ReportColumn("runs", "runs", "{:.0f}"),
            ReportColumn("rounds", "rounds", "{:.0f}"),
            ReportColumn("clients", "clients per round", "{:,.0f}"),
            ReportColumn("round", "seconds per round", "{:,.3f}"),
            ReportColumn("local", "of these, clients", "{:,.3f}"),
            ReportColumn("server", "of these, server", "{:,.3f}"),
            ReportColumn("down", "KiB received per client", "{:,.1f}"),
            ReportColumn("up", "KiB sent per client", "{:,.1f}"),
        ],
        [
            dict(zip((*_SHARED_KEYS, "device"), common, strict=True))
            | {"runs": len(few), **_median_costs(few)}
            for common, few in alike.items()
        ],
        folds=True,
    )
    return page_table("costs-table", table)


def protocols_table(records: Sequence[RunRecord]) -> PageTable | None:
    """The choices of each protocol that has runs, as the runs record them."""
    rows: list[Row] = []
    for record in sorted(records, key=lambda record: record.protocol):
        row = {"protocol": record.protocol} | {
            key: value for key, value in record.summary["protocol"].items() if key != "name"
        }
        if row not in rows:
            rows.append(row)
    if not rows:
        return None
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = [ReportColumn(key, key.replace("_", " "), align="left") for key in keys]
    in_words = [
        {
            key: value if value is None or key == "protocol" else str(value).replace("_", " ")
            for key, value in row.items()
        }
        for row in rows
    ]
    table = ReportTable(
        "Protocols of the runs of this report. The leak is the pool of negatives: “exclude all” also "
        "excludes "
        "the held-out items.",
        columns,
        in_words,
        folds=True,
    )
    return page_table("protocols-table", table)


def _run_row(record: RunRecord, row_of: Any, *arguments: Any) -> dict[str, Any]:  # noqa: ANN401 - any row
    """The row of a run; raise `ResultError` with the file if its run.json lacks a value."""
    try:
        row: dict[str, Any] = row_of(record, *arguments)
    except (KeyError, TypeError) as error:
        raise damaged(record.folder / SUMMARY, f"it has no {error}") from error
    return row


def _identity(record: RunRecord) -> dict[str, Any]:
    run = record.id
    return {
        "method": run.method, "dataset": run.dataset, "protocol": run.protocol, "paper": run.paper,
        "seed": run.seed,
    }  # fmt: skip


def _provenance_row(record: RunRecord, links: RunLinks) -> dict[str, Any]:
    summary, measured = record.summary, record.summary["measured"]
    changed = [key for key, source in summary["sources"].items() if source == "user"]
    return _identity(record) | {
        "anchor": record.id.folder,
        "group": group_anchor(record.id.folder),
        **{name: record.metric(name) for name in COMPARED_METRICS if record.has_numbers()},
        **{name: record.exact_metrics.get(name) for name in _EXACT if record.has_numbers()},
        **{f"{name}_mark": DIVERGED_MARK for name in COMPARED_METRICS if record.diverged is not None},
        "files": [
            ["run.json", address_of(record.folder / SUMMARY, links.page)],
            ["folder", address_of(record.folder, links.page)],
        ],
        "also": ", ".join(summary.get("also_settings_of", ())) or None,
        "changed": ", ".join(f"{key}={setting_text(record.settings[key])}" for key in changed) or "none",
        "code": summary["code"][:SHOWN_LETTERS],
        "split": summary["split"][:SHOWN_LETTERS],
        "device": measured["device"],
        "versions": ", ".join(f"{name} {version}" for name, version in measured["versions"].items()),
        "seconds": measured["seconds"],
        "memory": measured["peak_memory_bytes"] / _GIB,
    }


def _median_costs(records: Sequence[RunRecord]) -> dict[str, float]:
    """The costs of a round of runs: medians over the runs that have each number."""
    every = [_round_costs(record) for record in records]
    keys = dict.fromkeys(key for costs in every for key in costs)
    return {key: float(np.median([costs[key] for costs in every if key in costs])) for key in keys}


def _round_costs(record: RunRecord) -> dict[str, float]:
    """The costs of a round of one run."""
    timing = record.timing
    if record.diverged is not None:
        # After a divergence, rounds train nobody.
        timing = timing.filter(pl.col("round") < record.diverged)
    missing = [name for name in _TIMES if name not in timing.columns]
    if missing:
        raise ResultError(f"{record.folder / 'timing.parquet'}: has no column {missing[0]}. Train it again.")
    if timing.is_empty():
        return {"rounds": 0}
    columns = timing.select(pl.col(_TIMES).cast(pl.Float64))
    local, server = columns["local_seconds"].to_numpy(), columns["server_seconds"].to_numpy()
    return {
        "rounds": len(timing),
        "clients": float(columns["clients"].to_numpy().mean()),
        "down": float(columns["bytes_down_per_client"].to_numpy().mean()) / _KIB,
        "up": float(columns["bytes_up_per_client"].to_numpy().mean()) / _KIB,
        "local": float(np.median(local)),
        "server": float(np.median(server)),
        "round": float(np.median(local + server)),
    }
