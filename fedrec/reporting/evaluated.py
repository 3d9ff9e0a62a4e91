"""Records of systems that fedrec did not train, shown beside runs: read, checked and described."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrec.config.protocol import short_name
from fedrec.errors import ResultError
from fedrec.plan.evaluated import evaluate_command
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.method_scores import KIND_LABELS
from fedrec.runs.provenance_columns import source_text
from fedrec.runs.record import SCORE_SOURCE, RunRecord

SCORED_ELSEWHERE = "scored elsewhere"
"""The label of such a system in tables."""
ROW_LABELS: Mapping[str, str] = {
    **{str(kind): label for kind, label in KIND_LABELS.items()},
    SCORE_SOURCE: SCORED_ELSEWHERE,
}
"""The labels of all kinds of methods in a column, and of such systems."""


def evaluated_records(target: Target, project: Project, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The records of other systems that a target shows beside its `runs` on the same splits."""
    splits = {(run.id.dataset, run.protocol): run.summary["split"] for run in runs}
    folders = target.content.get("evaluated", {}).get("there", ())
    return [_checked(Path(folder), project.results, splits) for folder in folders]


def evaluated_notes(target: Target, theirs: Sequence[RunRecord]) -> list[str]:
    """Notes on the origin of each system's scores, on what they lack, and on missing records."""
    notes = [
        f"{record.id.method} on {record.id.dataset}, {short_name(record.protocol)}: {SCORED_ELSEWHERE} "
        f"({source_text(record)}). fedrec did not train it and does not know its settings, rounds or costs."
        + (f" Its note says: {note.rstrip('.')}." if (note := _note(record)) else "")
        + (
            ""
            if record.has_exact_ranks
            else " It has no exact metrics, because its scores do not cover all items."
        )
        for record in theirs
    ]
    lacking = [Path(folder).parts[1:] for folder in target.content.get("evaluated", {}).get("lacking", ())]
    words = [f"{name} on {dataset}, {short_name(protocol)}" for dataset, protocol, name in lacking]
    return [*notes, *([f"No scores were given for: {'; '.join(words)}."] if words else [])]


def _note(record: RunRecord) -> str:
    """The note that came with the scores."""
    return str((record.score_source or {}).get("note", ""))


def _checked(folder: Path, results: Path, splits: Mapping[tuple[str, str], Any]) -> RunRecord:
    """The record in a folder below the results; raise `ResultError` if its content contradicts the folder."""
    _, dataset, protocol, name = folder.parts
    record = RunRecord(results / folder)
    again = f"Delete the folder, then: {evaluate_command(results, dataset, protocol, name)}"
    if (
        record.score_source is None
        or (record.id.dataset, record.protocol, record.id.method) != folder.parts[1:]
    ):
        raise ResultError(
            f"{results / folder}: has no record of {name} on {dataset} under {protocol}. {again}"
        )
    if record.summary["split"] != splits[dataset, protocol]:
        raise ResultError(
            f"{results / folder}: its scores were ranked on a different split than the runs. {again}"
        )
    return record
