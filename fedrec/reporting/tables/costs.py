"""Tables of costs: the cost of a round of each method, in the symbols of the method's file."""

import importlib
from typing import Any

from fedrec.config.modules import modules_of
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, artefact_runs_of
from fedrec.reporting.tables.paper_table import METHOD_COLUMN, write_paper_table
from fedrec.reporting.tables.table import ReportColumn

LAYOUT = Layout("table", needs=("models",))


def build(target: Target, project: Project) -> None:
    """Write the table of an artefact."""
    subject = artefact_runs_of(target, project)
    heading = "cost of a round (E epochs, S samples, n clients, m items)"
    columns = [METHOD_COLUMN, ReportColumn("cost", heading, align="left")]
    write_paper_table(target, project, subject, cost_rows(subject), columns)


def cost_rows(subject: ArtefactRuns) -> list[dict[str, Any]]:
    """One row per line."""
    rows = []
    for line in subject.artefact.lines:
        assert line.run is not None, "a line of costs is a run"
        rows.append({"method": subject.label(line), "cost": _cost(line.run)})
    return rows


def _cost(method: str) -> str | None:
    """The cost that the class of a method states."""
    return importlib.import_module(modules_of(method)[0]).METHOD.cost or None
