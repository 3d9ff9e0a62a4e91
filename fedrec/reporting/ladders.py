"""The audit of protocols: every method at each step from the published protocol to the clean one.

A table per dataset and metric, and a figure of how the ranks of methods move on the way.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrec.config.methods import title
from fedrec.config.protocol import Protocol, short_name
from fedrec.files.atomic import write_text
from fedrec.plan.runs import RunId
from fedrec.plan.steps import ProtocolStep, ProtocolSteps, runs_of_step, steps
from fedrec.reporting.panels import distinct
from fedrec.reporting.results import origins_told, provenance_of_rows
from fedrec.reporting.style import WIDTH, Look, canvas, looks, save, theme
from fedrec.reporting.tables import Column, Row, Table, csv_text, write_forms
from fedrec.runs.finished import Finished

_SHOWN = ("hr@10", "ndcg@10")
_PER_METHOD = 0.2
"""Inches of height that a method takes in the figure."""


def write_ladders(
    results: Path,
    ladders: Sequence[ProtocolSteps],
    methods: Mapping[str, Any],
    protocols: Mapping[str, Protocol],
    seeds: Sequence[int],
    table: Path,
    figure: Path,
) -> None:
    """Write the table (`table`.csv, .md, .tex) and the figure (`figure`.csv, .pdf, .png, .txt) of ladders."""
    rows = ladder_rows(results, ladders, methods, protocols, seeds)
    said = told_of(rows)
    write_forms(table, rows, ladder_tables(rows, said))
    shown = moves(rows)
    with theme():
        save(figure_of_moves(shown), figure)
    write_text(figure.with_name(f"{figure.name}.csv"), csv_text(shown))
    text = (
        "Ranks of methods by test HR@10, from the published protocol to the clean one, one switch after the "
        f"other (docs/protocols.md explains each); 1 is the best, equal numbers share a rank.\n{said}\n"
    )
    write_text(figure.with_name(f"{figure.name}.txt"), text)


def ladder_rows(
    results: Path,
    ladders: Iterable[ProtocolSteps],
    methods: Mapping[str, Any],
    protocols: Mapping[str, Protocol],
    seeds: Sequence[int],
) -> list[Row]:
    """One row per dataset, step and method: metrics on test, mean over seeds, and the method's rank."""
    rows: list[Row] = []
    for ladder in ladders:
        for step in steps(ladder, protocols):
            found = [
                {
                    "dataset": ladder.dataset,
                    "paper": ladder.paper,
                    "step": step.name,
                    # Runs of another step may be spelt otherwise, as those of a paper that agrees.
                    "method": method,
                    "title": title(methods, method, ["rounds"]),
                    **_read(results, step, runs),
                }
                for method, runs in runs_of_step(ladder, methods, step, seeds).items()
            ]
            ranks = _ranks([row["hr@10"] for row in found])
            rows += [{**row, "rank": rank} for row, rank in zip(found, ranks, strict=True)]
    return rows


def ladder_tables(rows: Sequence[Row], said: str) -> list[Table]:
    """A table per dataset and metric, the best under `clean` first."""
    return [
        _table([row for row in rows if row["dataset"] == dataset], metric, said)
        for dataset in distinct(row["dataset"] for row in rows)
        for metric in _SHOWN
    ]


def told_of(rows: Sequence[Row]) -> str:
    """What a caption says of where rows come from."""
    return origins_told(provenance_of_rows(rows))


def moves(rows: Sequence[Row]) -> list[Row]:
    """The rows of the figure: steps that add one switch after the other."""
    return [row for row in rows if not str(row["step"]).startswith("only-")]


def figure_of_moves(rows: Sequence[Row]) -> Figure:
    """A panel per dataset: a line per method, from its rank under `published` to the one under `clean`."""
    datasets = distinct(row["dataset"] for row in rows)
    count = max(row["rank"] for row in rows)
    figure = canvas(WIDTH, 0.7 + _PER_METHOD * max(count, 5))
    look = looks(row["method"] for row in rows)
    for place, dataset in enumerate(datasets):
        ax = figure.add_subplot(1, len(datasets), place + 1)
        _panel(ax, [row for row in rows if row["dataset"] == dataset], look)
        ax.set_title(dataset)
    return figure


def _panel(ax: Axes, rows: Sequence[Row], look: Mapping[str, Look]) -> None:
    names = distinct(row["step"] for row in rows)
    for method in distinct(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        ranks = [row["rank"] for row in own]
        ax.plot(range(len(own)), ranks, label=own[0]["title"], **look[method].line())  # type: ignore[arg-type]
    first = {row["method"]: row for row in rows if row["step"] == names[0]}
    last = {row["method"]: row for row in rows if row["step"] == names[-1]}
    for ends, x, side in ((first, -0.12, "right"), (last, len(names) - 0.88, "left")):
        for rank, titles in _at_ranks(ends.values()).items():
            ax.text(x, rank, ", ".join(titles), ha=side, va="center", fontsize=5.5)
    ax.set_xticks(range(len(names)), [_heading(name) for name in names], rotation=25, ha="right")
    room = 0.34 * len(names)
    ax.set_xlim(-room, len(names) - 1 + room)
    ax.set_ylim(max(row["rank"] for row in rows) + 0.6, 0.4)
    ax.set_yticks([])
    ax.grid(visible=False)


def _at_ranks(rows: Iterable[Row]) -> dict[float, list[str]]:
    found: dict[float, list[str]] = {}
    for row in rows:
        found.setdefault(row["rank"], []).append(row["title"])
    return found


def _read(results: Path, step: ProtocolStep, runs: Sequence[RunId]) -> Row:
    """What the runs of a method tell at a step."""
    told = [Finished(results / run.folder).summary for run in runs]
    found = [one["metrics"][step.rule]["test"] for one in told]
    return {
        **{metric: float(np.mean([one[metric] for one in found])) for metric in _SHOWN},
        "round_rule": step.rule,
        "runs": short_name(runs[0].protocol),
        "rounds": told[0]["settings"]["rounds"],
        "seeds": " ".join(str(run.seed) for run in runs),
        # Repetitions may have been trained by different code.
        "split_hash": " ".join(distinct(one["split"] for one in told)),
        "method_code": " ".join(distinct(one["code"]["method"] for one in told)),
        "engine_code": " ".join(distinct(one["code"]["engine"] for one in told)),
    }


def _ranks(values: Sequence[float]) -> list[int]:
    """Places from the highest; equal values share the better one."""
    return [1 + sum(other > value for other in values) for value in values]


def _table(rows: Sequence[Row], metric: str, said: str) -> Table:
    names = distinct(row["step"] for row in rows)
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:
        one = merged.setdefault(row["method"], {"title": row["title"]})
        one[row["step"]] = row[metric]
    rounds = sorted({int(row["rounds"]) for row in rows} - {1})
    unmoved = _unmoved(rows)
    return Table(
        caption=f"Audit of protocols on {rows[0]['dataset']}: test {metric.upper()}, settings of "
        f"{rows[0]['paper']}, {' or '.join(map(str, rounds))} rounds. 'only' turns one switch of the "
        f"published protocol to what clean does, 'up to' this one and all before it. {said}",
        columns=[
            Column("title", "method", align="left"),
            *(Column(name, _heading(name), "{:.4f}", ranked=True) for name in names),
        ],
        rows=sorted(merged.values(), key=lambda row: -row["clean"]),
        notes=[f"{_heading(name)}: changes nothing here, so nothing is trained anew." for name in unmoved],
    )


def _unmoved(rows: Sequence[Row]) -> list[str]:
    """Steps of one switch that read the published runs by the same rule."""
    published = next(row for row in rows if row["step"] == "published")
    return distinct(
        row["step"]
        for row in rows
        if str(row["step"]).startswith("only-")
        and (row["runs"], row["round_rule"]) == (published["runs"], published["round_rule"])
    )


def _heading(step: str) -> str:
    return step.replace("only-", "only ").replace("upto-", "up to ")
