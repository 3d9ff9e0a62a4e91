"""The numbers of a figure as long rows, which are drawn and written to its csv.

Every row has dataset, protocol, method, label, axis (the meaning of x), x, part, metric, mean, sd, seeds and
runs; layouts add columns.
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
"""Makes the rows of one line, dataset and protocol from its runs of all seeds."""


def line_rows(subject: ArtefactRuns, rows_of: RowsOfLine) -> list[Row]:
    """The rows of every line, dataset and protocol with runs, including their common columns."""
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
    """The columns of a metric over the seeds that have a value: mean, deviation, seeds and runs."""
    return {"metric": metric, **mean_columns(values), **runs_columns(records)}


def mean_columns(values: Sequence[float]) -> dict[str, Any]:
    """Mean and deviation of one value per seed."""
    number = mean_over_seeds(values)
    return {"mean": number.mean, "sd": number.sd}


def runs_columns(records: Sequence[RunRecord]) -> dict[str, Any]:
    """The seeds, folders and divergences of the runs of a row; equal in all rows of a curve."""
    seeds = " ".join(str(record.id.seed) for record in records)
    return {"seeds": seeds, **divergence_columns(records), "runs": folders_of(records)}


def setting_columns(subject: ArtefactRuns, line: Line, dataset: str) -> dict[str, Any]:
    """The value of the setting on the axis, with its source (paper, code ...) if it is the run's own."""
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
    """The mark behind the name of a method with a diverged run in the figure."""
    method, lines = subject.method(line), subject.artefact.lines
    own = [
        run
        for (index, _, _), group in subject.groups.items()
        if lines[index].run is not None and subject.method(lines[index]) == method
        for run in group
    ]
    return DIVERGED_MARK if any(run.diverged is not None for run in own) else ""
