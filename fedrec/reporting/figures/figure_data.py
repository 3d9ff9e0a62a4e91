"""The numbers of a figure as long rows: what is drawn, and what its csv holds.

Every row has dataset, protocol, method (its spelling), label, axis (what x is), x, part, metric, mean, sd,
seeds and runs; layouts add what they need.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fedrec.config.methods import canonical, resolve
from fedrec.config.papers import Artefact, Line
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.provenance import mean_over_seeds
from fedrec.reporting.tables.table import DIVERGED_MARK, Row
from fedrec.runs.provenance_columns import divergence_columns, folders_of
from fedrec.runs.record import RunRecord

RowsOfLine = Callable[[ArtefactRuns, Line, Sequence[RunRecord]], Iterator[Row]]
"""The rows of one line on one dataset under one protocol, from its runs of all seeds."""


def line_rows(subject: ArtefactRuns, rows_of: RowsOfLine) -> list[Row]:
    """The rows of every line, dataset and protocol that there are runs of, with what they are about."""
    return [
        about | dict(row)
        for index, line in enumerate(subject.artefact.lines)
        if line.run is not None
        for dataset in subject.artefact.datasets
        for protocol in subject.artefact.protocols
        if (records := subject.groups.get((index, dataset, protocol)))
        for about in [_about(subject, line, dataset, protocol)]
        for row in rows_of(subject, line, records)
    ]


def over_seeds_columns(metric: str, values: Sequence[float], records: Sequence[RunRecord]) -> dict[str, Any]:
    """A metric of one value per seed that has one: mean, deviation, seeds and runs."""
    return {"metric": metric, **mean_columns(values), **runs_columns(records)}


def mean_columns(values: Sequence[float]) -> dict[str, Any]:
    """Of one value per seed, mean and deviation."""
    number = mean_over_seeds(values)
    return {"mean": number.mean, "sd": number.sd}


def runs_columns(records: Sequence[RunRecord]) -> dict[str, Any]:
    """The seeds and folders of the runs of a row, and what diverged; the same in all rows of a curve."""
    seeds = " ".join(str(record.id.seed) for record in records)
    return {"seeds": seeds, **divergence_columns(records), "runs": folders_of(records)}


def setting_columns(subject: ArtefactRuns, line: Line, dataset: str) -> dict[str, Any]:
    """The value of the setting on the axis; where it is the run's own, its source: paper, code, ours ..."""
    assert line.run is not None, "a sweep varies runs"
    setting, paper = subject.artefact.options["setting"], subject.artefact.paper
    here, _, _ = resolve(subject.methods, line.run, paper, dataset)
    there, sources, _ = resolve(subject.methods, subject.method(line), paper, dataset)
    own = sources[setting] if here[setting] == there[setting] else "no"
    return {"axis": setting, "x": line.value, "own": own}


def part_of(artefact: Artefact) -> str:
    """Whether a figure shows validation or test."""
    part: str = artefact.options.get("part", "test")
    return part


def _about(subject: ArtefactRuns, line: Line, dataset: str, protocol: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "protocol": protocol,
        "method": canonical(subject.methods, subject.method(line)),
        "label": f"{subject.label(line)}{_mark(subject, line)}",
    }


def _mark(subject: ArtefactRuns, line: Line) -> str:
    """What stands behind the name of a method any of whose runs in the figure diverged."""
    method, lines = subject.method(line), subject.artefact.lines
    own = [
        run
        for (index, _, _), group in subject.groups.items()
        if lines[index].run is not None and subject.method(lines[index]) == method
        for run in group
    ]
    return DIVERGED_MARK if any(run.diverged is not None for run in own) else ""
