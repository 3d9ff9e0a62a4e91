"""Tables of time: seconds of a round of all clients, beside the printed slowest client and server."""

from typing import Any

from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of
from fedrec.reporting.provenance import devices_of, mean_over_seeds, of_one_device
from fedrec.reporting.tables.paper_table import (
    DATASET_COLUMN,
    DEVICE_COLUMN,
    METHOD_COLUMN,
    printed_value,
    write_paper_table,
)
from fedrec.reporting.tables.table import ReportColumn
from fedrec.runs.provenance_columns import origin_columns

LAYOUT = Layout("table", needs=("runs",))


def build(target: Target, project: Project) -> None:
    """Write the table of an artefact."""
    subject = artefact_runs_of(target, project)
    columns = [
        METHOD_COLUMN,
        DATASET_COLUMN,
        ReportColumn("seconds", "s, all clients at once", "{:.3f}"),
        ReportColumn("seconds_printed", "s, slowest client and server, printed", "{:.3f}"),
        DEVICE_COLUMN,
    ]
    write_paper_table(target, project, subject, time_rows(subject), columns)


def time_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per line, dataset and protocol."""
    rows = []
    for (index, dataset, protocol), group in subject.groups.items():
        line, timed = subject.artefact.lines[index], of_one_device(group)
        seconds = mean_over_seeds(run.summary["measured"]["seconds_per_round"] for run in timed)
        rows.append(
            {
                "method": subject.label(line),
                "dataset": dataset,
                "protocol": protocol,
                "seconds": seconds.mean,
                "seconds_sd": seconds.sd,
                "seconds_printed": printed_value(subject.artefact, line, dataset, "time_per_round"),
                "device": devices_of(timed),
                **origin_columns(timed),
            }
        )
    return rows
