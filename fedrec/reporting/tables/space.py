"""Tables of space: megabytes that a client and the server hold."""

from typing import Any

from fedrec.config.methods import resolve
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.parameters import megabytes, numbers_held
from fedrec.reporting.subject import Subject, subject_of
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
    subject = subject_of(target, project)
    columns = [
        METHOD_COLUMN,
        DATASET_COLUMN,
        ReportColumn("space_client", "client, MB", "{:.4f}"),
        ReportColumn("space_client_printed", "client, MB, printed", "{:.4f}"),
        ReportColumn("space_server", "server, MB", "{:.4f}"),
        ReportColumn("space_server_printed", "server, MB, printed", "{:.4f}"),
    ]
    write_paper_table(target, project, subject, space_rows(subject), columns)


def space_rows(subject: Subject) -> list[dict[str, Any]]:
    """One row per line and dataset that is available."""
    artefact, rows, sizes = subject.artefact, [], subject.sizes()
    for line in artefact.lines:
        for dataset in artefact.datasets:
            if dataset not in sizes:
                continue
            assert line.run is not None, "space is a run's"
            values, _, _ = resolve(subject.methods, line.run, artefact.paper, dataset)
            client, server = numbers_held(line.run, values, *sizes[dataset])
            row: dict[str, Any] = {"method": subject.label(line), "dataset": dataset}
            for key, numbers in (("space_client", client), ("space_server", server)):
                row |= {
                    key: megabytes(numbers),
                    f"{key}_printed": printed_value(artefact, line, dataset, key),
                }
            rows.append(row)
    return rows
