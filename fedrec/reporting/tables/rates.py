"""Tables of learning rates: of each method on each dataset, as we run it and as printed."""

from typing import Any

from fedrec.config.methods import resolve
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of
from fedrec.reporting.tables.paper_table import (
    DATASET_COLUMN,
    METHOD_COLUMN,
    printed_value,
    write_paper_table,
)
from fedrec.reporting.tables.table import ReportColumn

LAYOUT = Layout("table")


def build(target: Target, project: Project) -> None:
    """Write the table of an artefact."""
    subject = artefact_runs_of(target, project)
    columns = [
        METHOD_COLUMN,
        DATASET_COLUMN,
        ReportColumn("rate", "rate", "{:g}"),
        ReportColumn("rate_printed", "rate, printed", "{:g}"),
        ReportColumn("source", "source", align="left"),
    ]
    write_paper_table(target, project, subject, rate_rows(subject), columns)


def rate_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per line and dataset."""
    artefact, rows = subject.artefact, []
    for line in artefact.lines:
        for dataset in artefact.datasets:
            assert line.run is not None, "a line of rates is a run"
            values, sources, _ = resolve(subject.methods, line.run, artefact.paper, dataset)
            rows.append(
                {
                    "method": subject.label(line),
                    "dataset": dataset,
                    "rate": values["rate"],
                    "source": sources["rate"],
                    "rate_printed": printed_value(artefact, line, dataset, "learning_rate"),
                }
            )
    return rows
