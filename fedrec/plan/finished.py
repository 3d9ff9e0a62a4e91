"""Whether the runs that lie among the results are those a plan asks for: some were trained elsewhere."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json
from fedrec.files.sealed import read_sealed
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.project import Project
from fedrec.plan.runs import FILES, SUMMARY, RunId


def unfinished(project: Project, runs: Iterable[RunId]) -> list[RunId]:
    """The runs that are still to be trained: those that are not there, and those that are outdated."""
    runs = list(runs)
    other = set(outdated(project, runs))
    return [run for run in runs if run in other or not _is_whole(project, run)]


def outdated(project: Project, runs: Iterable[RunId]) -> list[RunId]:
    """The runs in whose place another one lies, finished: of other code, settings or split, or of less.

    Engines and devices are not compared: whichever trained it, it is the same experiment. What cannot be
    read is not judged: whoever reads it will say so.
    """
    split_at = cache(_split_at)
    return [
        run
        for run in runs
        if (there := _summary_of(project, run)) is not None
        and not (
            _is_same(there, project, run)
            and split_at(project.results / run.split) in (None, there.get("split"))
        )
    ]


def _summary_of(project: Project, run: RunId) -> dict[str, Any] | None:
    try:
        return read_sealed(project.results / run.folder / SUMMARY)
    except (FileNotFoundError, StorageError, ValueError):
        return None


def _is_same(there: dict[str, Any], project: Project, run: RunId) -> bool:
    job = project.job(run)
    return (
        canonical_json(there.get("settings")) == canonical_json(job.settings)
        and set(job.records) <= set(there.get("record", ()))
        and there.get("code") == _code(run.method, there.get("engine", ""))
    )


def _code(method: str, engine: str) -> str | None:
    """The fingerprint that a run of an engine has here; None where there is no such engine."""
    try:
        return run_fingerprint(method, engine)
    except FileNotFoundError:
        return None


def _split_at(folder: Path) -> str | None:
    """The hash of the split in a folder; None where there is none that says so."""
    # Imported here: most plans are made where no run lies yet, and pyarrow takes a while to import.
    from fedrec.files.parquet import about_table

    try:
        split: str = about_table(folder / "split.parquet")["split"]
    except (StorageError, KeyError):
        return None
    return split


def _is_whole(project: Project, run: RunId) -> bool:
    return all((project.results / run.folder / file).is_file() for file in FILES)
