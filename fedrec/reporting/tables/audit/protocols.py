"""The audit of protocols: every method at each step from the published protocol to the clean one.

A table per dataset and metric; `fedrec.reporting.figures.ranks` draws how the ranks of methods move.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fedrec.audit.protocols import METRICS_AT_STEPS, step_heading, step_rows
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import stem_of, steps_of
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.provenance import origin_sentence, provenance_of_rows
from fedrec.reporting.tables.table import RUNS, Chapter, ReportColumn, ReportTable, Row, write_forms

LAYOUT = Layout("table", needs=("runs",), selection="protocol_steps")
CHAPTER = Chapter(
    "From published to clean, one switch at a time",
    "Columns are protocols, from published to clean. “only” changes one switch of the published protocol, "
    "“up to” this switch and all before it. If a method falls when only the pool of negatives changes, the "
    "difference came from the leak.",
    order=2,
    figure="ranks",
)


def build(target: Target, project: Project) -> None:
    """Write the tables of the steps of a target."""
    audited, seeds = steps_of(target)
    rows = step_rows(project.results, audited, project.methods, project.protocols, seeds, set(target.runs))
    write_forms(stem_of(target, project), rows, step_tables(rows), CHAPTER)


def step_tables(rows: Sequence[Row]) -> list[ReportTable]:
    """A table per dataset and metric, the best under `clean` first."""
    return [
        _table([row for row in rows if row["dataset"] == dataset], metric)
        for dataset in dict.fromkeys(row["dataset"] for row in rows)
        for metric in METRICS_AT_STEPS
    ]


def _table(rows: Sequence[Row], metric: str) -> ReportTable:
    origin = origin_sentence(provenance_of_rows(rows))
    names = dict.fromkeys(row["step"] for row in rows)
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:
        shown = merged.setdefault(row["method"], {"title": row["title"], RUNS: []})
        shown[row["step"]] = row[metric]
        if mark := mark_of(row):
            shown[f"{row['step']}_mark"] = mark
        shown[RUNS] = list(dict.fromkeys([*shown[RUNS], *row[RUNS]]))
    rounds = sorted({int(row["rounds"]) for row in rows} - {1})
    return ReportTable(
        caption=f"Audit of protocols on {rows[0]['dataset']}: test {metric.upper()}, settings of "
        f"{rows[0]['paper']}, {' or '.join(map(str, rounds))} rounds. “only” changes one switch of the "
        "published protocol to its clean value; “up to” changes this switch and all before it. Each method "
        f"uses the seeds that it has at every step. {origin}",
        columns=[
            ReportColumn("title", "method", align="left"),
            *(ReportColumn(name, step_heading(name), "{:.4f}", ranked=True) for name in names),
        ],
        rows=sorted(merged.values(), key=lambda row: -(row.get("clean") or 0.0)),
        notes=[
            *(
                f"{step_heading(name)}: this switch changes nothing here, so no run is needed."
                for name in _unmoved(rows)
            ),
            *_seeds_and_gaps(rows, len(names)),
            *diverged_notes(({**row, "step": step_heading(row["step"])} for row in rows), "title", "step"),
        ],
    )


def _seeds_and_gaps(rows: Sequence[Row], steps: int) -> list[str]:
    """Notes on methods with different seeds, and on dashes."""
    seeds = {str(row["title"]): str(row["seeds"]) for row in rows}
    texts = [
        f"{', '.join(name for name in seeds if seeds[name] == number)}: seeds {number.replace(' ', ', ')}"
        for number in sorted(set(seeds.values()))
    ]
    gaps = Counter(str(row["title"]) for row in rows)
    without = [name for name, number in gaps.items() if number < steps]
    return [
        *([f"Methods have different seeds: {'; '.join(texts)}."] if len(texts) > 1 else []),
        *([f"A dash: {', '.join(without)} has no run under that protocol."] if without else []),
    ]


def _unmoved(rows: Sequence[Row]) -> list[str]:
    """Steps of one switch that read the published runs by the same rule."""
    published = [row for row in rows if row["step"] == "published"]
    read = [(row["protocol"], row["round_rule"]) for row in published[:1]]
    return list(
        dict.fromkeys(
            str(row["step"])
            for row in rows
            if str(row["step"]).startswith("only-") and (row["protocol"], row["round_rule"]) in read
        )
    )
