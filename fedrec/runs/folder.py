"""Check the folder for a run: no folder where a file is needed, and no other run in it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrec.errors import ResultError, StorageError
from fedrec.files.atomic import remove_remains
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.run_matching import identity_differences
from fedrec.plan.runs import FILES, SMALL, SUMMARY, lacks_model
from fedrec.runs.checkpoint import CHECKPOINT
from fedrec.runs.record import RunRecord


def clear_folder(folder: Path) -> None:
    """Remove what killed runs left half-written; `StorageError` if a folder is where a run writes a file."""
    for name in (*FILES, CHECKPOINT):
        path = folder / name
        remove_remains(path)
        if path.is_dir():
            raise StorageError(
                f"{path}: is a folder, but this run writes a file there. Move it away, or choose another "
                "folder for the run."
            )


def other_files(folder: Path) -> list[str]:
    """The names of files in a folder without a run; hidden files do not count."""
    if not folder.is_dir() or any((folder / name).exists() for name in (*FILES, CHECKPOINT)):
        return []
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def finished_result(
    folder: Path,
    identity: Mapping[str, Any],
    records: Sequence[str],
    *,
    model: str = SMALL,
    replace: bool = False,
) -> Mapping[str, Any] | None:
    """The content of `run.json` if `folder` has this run, finished and complete; None if it has no run.

    Also None if the run lacks requested records or a required `model`. A different, damaged or incomplete run
    is an error, so that nobody loses it by accident; with `replace` it is None.
    """
    if not (folder / SUMMARY).exists():
        return None
    try:
        return _same_run(folder, identity, records, model)
    except (ResultError, StorageError):
        if replace:
            return None
        raise


def _same_run(
    folder: Path, identity: Mapping[str, Any], records: Sequence[str], model: str
) -> Mapping[str, Any] | None:
    """The content of this run's `run.json`; None if records or the model are missing; an error for others."""
    record = RunRecord(folder)
    differences = list(identity_differences(record.summary, identity, CodeMatcher()))
    if differences:
        run = record.id
        raise ResultError(
            f"{folder}: contains a finished run, {run.method} on {run.dataset} under {run.protocol} with "
            f"seed {run.seed}, which differs in {'; '.join(differences)}. Choose another folder, or replace "
            "the run with --force."
        )
    if not set(records) <= set(record.summary.get("record", ())):
        return None
    if lacks_model(record.summary, model):
        return None
    record.check(with_model=record.has_model)
    return record.summary
