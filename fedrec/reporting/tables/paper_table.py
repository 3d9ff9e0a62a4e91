"""What the tables of papers share: caption, notes and files."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.config.papers import Artefact, Line
from fedrec.config.printed import printed
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.diverged import diverged_notes, named
from fedrec.reporting.provenance import provenance
from fedrec.reporting.subject import Subject, stem_of
from fedrec.reporting.tables.table import ReportColumn, ReportTable, write_forms
from fedrec.runs.record import RunRecord

METHOD_COLUMN = ReportColumn("method", "method", align="left")
DATASET_COLUMN = ReportColumn("dataset", "dataset", align="left")
DEVICE_COLUMN = ReportColumn("device", "ours on", align="left")


def table_caption(artefact: Artefact, records: Sequence[RunRecord]) -> str:
    """What stands above a table: name and title, and protocols, seeds and hashes of the runs behind it."""
    name = f"{artefact.title} ({artefact.paper}, {artefact.name})."
    if not records:
        return name
    origin = provenance(records)
    return (
        f"{name} Numbers at the round each protocol reports: published is the paper's published protocol, "
        "which leaks the held-out item, clean the honest one. "
        f"Seeds {', '.join(origin['seeds'])}; protocols {', '.join(origin['protocols'])}; splits "
        f"{', '.join(origin['splits'])}; code {', '.join(origin['code'])}."
    )


def notes_on(artefact: Artefact, unavailable: Mapping[str, str]) -> list[str]:
    """What a reader must know: the artefact's own note, and the datasets that are not available."""
    own = [str(artefact.options["note"])] if "note" in artefact.options else []
    missing = [
        f"{dataset}: not available here ({unavailable[dataset]})"
        for dataset in artefact.datasets
        if dataset in unavailable
    ]
    return [*own, *missing]


def write_paper_table(
    target: Target,
    project: Project,
    subject: Subject,
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[ReportColumn],
) -> None:
    """Write a table of one part: all `rows`, shown in `columns`."""
    artefact = subject.artefact
    caption = table_caption(artefact, subject.records)
    notes = [*notes_on(artefact, subject.unavailable), *diverged_notes(rows, "method", "dataset", "protocol")]
    table = ReportTable(caption, columns, named(rows, "method"), notes, "values", folds=True)
    write_forms(stem_of(target, project), rows, [table])


def printed_value(artefact: Artefact, line: Line | None, dataset: str, metric: str) -> float | None:
    """What the paper prints of a line, if it does."""
    number = printed(
        artefact.paper, artefact.printed, dataset, None if line is None else line.printed, metric
    )
    return None if number is None else number.value
