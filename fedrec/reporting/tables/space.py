"""Tables of space: megabytes that a client and the server hold."""

from collections.abc import Mapping
from typing import Any

from fedrec.config.methods import resolve
from fedrec.config.papers import Line
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of
from fedrec.reporting.parameters import megabytes, numbers_held
from fedrec.reporting.tables.paper_table import (
    DATASET_COLUMN,
    METHOD_COLUMN,
    printed_value,
    write_paper_table,
)
from fedrec.reporting.tables.table import ReportColumn

LAYOUT = Layout("table", needs=("models", "statistics"))


def build(target: Target, project: Project) -> None:
    """Write the table of an artefact."""
    subject = artefact_runs_of(target, project)
    columns = [
        METHOD_COLUMN,
        DATASET_COLUMN,
        ReportColumn("space_client", "client, MB", "{:.4f}"),
        ReportColumn("space_client_printed", "client, MB, printed", "{:.4f}"),
        ReportColumn("space_server", "server, MB", "{:.4f}"),
        ReportColumn("space_server_printed", "server, MB, printed", "{:.4f}"),
    ]
    write_paper_table(target, project, subject, space_rows(subject), columns)


def space_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per line and available dataset; a line over two others has the space that the second adds."""
    rows: list[dict[str, Any]] = []
    held: dict[tuple[str, str], tuple[float, float]] = {}
    for line in subject.artefact.lines:
        for dataset, size in subject.sizes().items():
            label = subject.label(line)
            held[label, dataset] = _megabytes_held(subject, line, dataset, size, held)
            row: dict[str, Any] = {"method": label, "dataset": dataset}
            for key, value in zip(("space_client", "space_server"), held[label, dataset], strict=True):
                row |= {key: value, f"{key}_printed": printed_value(subject.artefact, line, dataset, key)}
            rows.append(row)
    return rows


def _megabytes_held(
    subject: ArtefactRuns,
    line: Line,
    dataset: str,
    size: tuple[int, int],
    before: Mapping[tuple[str, str], tuple[float, float]],
) -> tuple[float, float]:
    """The megabytes of a client and of the server; for a line over two earlier lines, their difference."""
    if line.gain is not None:
        (below, on_server), (above, more_on_server) = (before[label, dataset] for label in line.gain)
        return above - below, more_on_server - on_server
    assert line.run is not None, "a line of space is a run"
    values, _, _ = resolve(subject.methods, line.run, subject.artefact.paper, dataset)
    client, server = numbers_held(line.run, values, *size)
    return megabytes(client), megabytes(server)
