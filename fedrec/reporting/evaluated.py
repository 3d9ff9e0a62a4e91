"""Records of other systems beside runs in tables: read, checked, and named with what they lack."""

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
"""What tables call a system that fedrec did not train."""
ROW_LABELS: Mapping[str, str] = {
    **{str(kind): label for kind, label in KIND_LABELS.items()},
    SCORE_SOURCE: SCORED_ELSEWHERE,
}
"""What a column calls each kind of methods, and such a system."""


def evaluated_records(target: Target, project: Project, runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The records of other systems that a target shows beside its `runs`, which are on the same splits."""
    splits = {(run.id.dataset, run.protocol): run.summary["split"] for run in runs}
    folders = target.content.get("evaluated", {}).get("there", ())
    return [_checked(Path(folder), project.results, splits) for folder in folders]


def evaluated_notes(target: Target, theirs: Sequence[RunRecord]) -> list[str]:
    """Where the scores of each came from, what they lack, and which records there are not."""
    notes = [
        f"{record.id.method} on {record.id.dataset}, {short_name(record.protocol)}: {SCORED_ELSEWHERE} "
        f"({source_text(record)}). fedrec did not train it, and knows no settings, rounds or costs of it."
        + (f" Its note says: {note.rstrip('.')}." if (note := _note(record)) else "")
        + ("" if record.has_exact_ranks else " Its scores are not of all items: no exact metrics.")
        for record in theirs
    ]
    lacking = [Path(folder).parts[1:] for folder in target.content.get("evaluated", {}).get("lacking", ())]
    words = [f"{name} on {dataset}, {short_name(protocol)}" for dataset, protocol, name in lacking]
    return [*notes, *([f"Without scores: {'; '.join(words)}."] if words else [])]


def _note(record: RunRecord) -> str:
    """What whoever gave the scores says of them."""
    return str((record.score_source or {}).get("note", ""))


def _checked(folder: Path, results: Path, splits: Mapping[tuple[str, str], Any]) -> RunRecord:
    """The record in a folder below the results; `ResultError` where it is not what the folder says."""
    _, dataset, protocol, name = folder.parts
    record = RunRecord(results / folder)
    again = f"Delete the folder, then: {evaluate_command(results, dataset, protocol, name)}"
    if (
        record.score_source is None
        or (record.id.dataset, record.protocol, record.id.method) != folder.parts[1:]
    ):
        raise ResultError(
            f"{results / folder}: is no record of {name} on {dataset} under {protocol}. {again}"
        )
    if record.summary["split"] != splits[dataset, protocol]:
        raise ResultError(
            f"{results / folder}: its scores were ranked on another split than that of the runs. {again}"
        )
    return record
