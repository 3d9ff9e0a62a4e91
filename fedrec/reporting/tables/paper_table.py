"""Captions, notes and files that the tables of papers share."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.config.papers import Artefact, Line
from fedrec.config.printed import printed
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns, stem_of
from fedrec.reporting.diverged import diverged_notes, named
from fedrec.reporting.provenance import code_text, provenance
from fedrec.reporting.tables.table import ReportColumn, ReportTable, write_forms
from fedrec.runs.record import RunRecord

METHOD_COLUMN = ReportColumn("method", "method", align="left")
DATASET_COLUMN = ReportColumn("dataset", "dataset", align="left")
DEVICE_COLUMN = ReportColumn("device", "ours on", align="left")


def table_caption(artefact: Artefact, records: Sequence[RunRecord], what: str = "") -> str:
    """The caption of a table: title and name, `what` its numbers are, then seeds, protocols and hashes."""
    name = f"{artefact.title} ({artefact.paper}, {artefact.name})."
    if not records:
        return name
    origin = provenance(records)
    return (
        f"{name} {what}Seeds {', '.join(origin['seeds'])}; protocols {', '.join(origin['protocols'])}; "
        f"splits {', '.join(origin['splits'])}; {code_text(origin['code'])}."
    )


def own_notes(artefact: Artefact) -> list[str]:
    """The note of an artefact from its configuration, if it has one."""
    return [str(artefact.options["note"])] if "note" in artefact.options else []


def unavailable_notes(artefact: Artefact, unavailable: Mapping[str, str]) -> dict[str, str]:
    """A note on each dataset of an artefact that is not available."""
    return {
        dataset: f"{dataset}: not available here ({unavailable[dataset]})."
        for dataset in artefact.datasets
        if dataset in unavailable
    }


def write_paper_table(
    target: Target,
    project: Project,
    subject: ArtefactRuns,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[ReportColumn],
) -> None:
    """Write a table of one part: all `rows`, shown in `columns`."""
    artefact = subject.artefact
    caption = table_caption(artefact, subject.records)
    missing = unavailable_notes(artefact, subject.unavailable).values()
    notes = [*own_notes(artefact), *missing, *diverged_notes(rows, "method", "dataset", "protocol")]
    table = ReportTable(caption, columns, named(rows, "method"), notes, "values", folds=True)
    write_forms(stem_of(target, project), rows, [table])


def printed_value(artefact: Artefact, line: Line | None, dataset: str, metric: str) -> float | None:
    """The printed number of a line, if the paper has one."""
    number = printed(
        artefact.paper, artefact.printed, dataset, None if line is None else line.printed, metric
    )
    return None if number is None else number.value
