"""Tables of inactive users: our count beside the paper's."""

from typing import Any

from fedrec.config.papers import Line
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of
from fedrec.reporting.tables.inactive_users import activity_of, inactive_users
from fedrec.reporting.tables.paper_table import DATASET_COLUMN, printed_value, write_paper_table
from fedrec.reporting.tables.table import ReportColumn

LAYOUT = Layout("table", needs=("interactions",))


def build(target: Target, project: Project) -> None:
    """Write the table of an artefact."""
    subject = artefact_runs_of(target, project)
    columns = [
        DATASET_COLUMN,
        ReportColumn("least", "rows, at least"),
        ReportColumn("below", "rows, fewer than"),
        ReportColumn("users", "users", "{:.0f}"),
        ReportColumn("users_printed", "users, printed", "{:.0f}"),
        ReportColumn("share_of_users", "percent", "{:.2f}"),
        ReportColumn("share_of_users_printed", "percent, printed", "{:.2f}"),
    ]
    write_paper_table(target, project, subject, inactive_rows(subject), columns)


def inactive_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per dataset that is available."""
    artefact, rows = subject.artefact, []
    for dataset, users in inactive_users(subject.data, artefact).items():
        least, below = artefact.options["users"][dataset]
        active = activity_of(subject.data / dataset)
        everyone = 0 if active is None else len(active[0])
        line = Line(printed=("", f"inactive users: {least}-{below} interactions"))
        row: dict[str, Any] = {"dataset": dataset, "least": least, "below": below}
        for key, value in (("users", float(len(users))), ("share_of_users", 100 * len(users) / everyone)):
            row |= {key: value, f"{key}_printed": printed_value(artefact, line, dataset, key)}
        rows.append(row)
    return rows
