"""Tables of effort: parameters that a client holds, rounds to the best validation, and seconds until then."""

from typing import Any

import numpy as np
import polars as pl

from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of
from fedrec.reporting.parameters import numbers_held
from fedrec.reporting.provenance import devices_of, of_one_device
from fedrec.reporting.tables.paper_table import (
    DATASET_COLUMN,
    DEVICE_COLUMN,
    METHOD_COLUMN,
    printed_value,
    write_paper_table,
)
from fedrec.reporting.tables.table import ReportColumn
from fedrec.runs.provenance_columns import origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("table", needs=("runs", "models", "statistics"))
_BEST = "best_validation"
_HEADINGS = {"parameters": "parameters", "epochs": "rounds", "time_total": "s"}


def build(target: Target, project: Project) -> None:
    """Write the table of an artefact."""
    subject = artefact_runs_of(target, project)
    numbers = [
        ReportColumn(f"{key}{suffix}", f"{heading}{ending}", "{:,.0f}")
        for key, heading in _HEADINGS.items()
        for suffix, ending in (("", ""), ("_printed", ", printed"))
    ]
    write_paper_table(
        target,
        project,
        subject,
        effort_rows(subject),
        [METHOD_COLUMN, DATASET_COLUMN, *numbers, DEVICE_COLUMN],
    )


def effort_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per line, dataset and protocol."""
    rows, sizes = [], subject.sizes()
    for (index, dataset, protocol), group in subject.groups.items():
        line, first = subject.artefact.lines[index], group[0]
        client, _ = numbers_held(first.summary["method"], first.settings, 1, sizes[dataset][1])
        ours: dict[str, float | None] = {"parameters": float(client), "epochs": None, "time_total": None}
        if numbered := [run for run in group if run.has_numbers(_BEST)]:
            ours["epochs"] = float(np.mean([run.summary["rounds"][_BEST] for run in numbered]))
            ours["time_total"] = float(np.mean([_seconds_until_best(run) for run in of_one_device(numbered)]))
        row: dict[str, Any] = {"method": subject.label(line), "dataset": dataset, "protocol": protocol}
        for key, value in ours.items():
            row |= {key: value, f"{key}_printed": printed_value(subject.artefact, line, dataset, key)}
        rows.append(row | {"device": devices_of(of_one_device(group)), **origin_columns(group)})
    return rows


def _seconds_until_best(run: RunRecord) -> float:
    rounds = run.timing.filter(pl.col("round") <= run.summary["rounds"][_BEST])
    return float((rounds["local_seconds"] + rounds["server_seconds"]).sum())
