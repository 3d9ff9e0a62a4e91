"""Import finished runs from an archive.

fedrec refuses a damaged archive as a whole. From an intact one it imports each run that is current here, and
refuses every other with the reason. It first extracts and checks all runs in a staging folder, and then
renames each accepted run to its folder.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from fedrec.errors import ConfigurationError, ResultError, StorageError
from fedrec.files.atomic import as_storage_error, make_folder
from fedrec.files.checked_json import verified
from fedrec.files.lock import locked
from fedrec.files.run_archive import extract_archive
from fedrec.plan.project import Project
from fedrec.plan.run_matching import RunMatcher
from fedrec.plan.runs import FILES, SUMMARY, RunId
from fedrec.plan.target_names import run_from_folder
from fedrec.runs.record import RunRecord

_STAGING = ".import."
_TIMING = "timing.parquet"
_REPLACED = "Add --replace to import this one instead."


@dataclass(frozen=True)
class ImportOutcome:
    """The outcome of an import, by the runs' folders below the results."""

    imported: tuple[str, ...]
    unchanged: tuple[str, ...]
    """Runs that were here already, with the same numbers."""
    refused: Mapping[str, str]
    """The reason for each run that was not imported."""


def import_runs(project: Project, stream: IO[bytes], name: str, *, replace: bool = False) -> ImportOutcome:
    """Import the runs of an archive, which messages call `name`, into the results.

    A run is refused if a different finished run is here, unless `replace` is set, or if a training writes to
    its folder. `StorageError` if the archive is damaged or cannot be extracted: then no run is imported.
    """
    judge = _Judge(project, replace=replace)
    runs = project.results / "runs"
    _remove_abandoned(runs)
    with _staging(runs) as stage:
        folders = _folders_of_runs(extract_archive(stream, stage, name), name)
        for folder in folders:
            judge.judge(folder, (stage / folder / SUMMARY).read_bytes())
        accepted = [folder for folder in folders if judge.takes(folder)]
        for folder in accepted:
            _check(stage / folder, folder, name)
        for number, folder in enumerate(accepted):
            try:
                _move(stage / folder, project.results / folder, stage / f".before{number}")
            except StorageError as error:
                judge.refused[folder] = str(error)
    imported = tuple(folder for folder in accepted if judge.takes(folder))
    return ImportOutcome(imported, tuple(judge.same), judge.refused)


class _Judge:
    """Decide which runs of an archive to import, from their run.json."""

    def __init__(self, project: Project, *, replace: bool) -> None:
        self._project = project
        self._replace = replace
        self._matcher = RunMatcher()
        self.same: list[str] = []
        self.refused: dict[str, str] = {}

    def judge(self, folder: str, content: bytes) -> None:
        """Judge the run for `folder` by the content of its run.json."""
        try:
            summary = verified(content)
            run = run_from_folder(self._project, folder)
            reason = self._why_refused(run, summary)
            if reason is None and self._is_there(run, summary):
                self.same.append(folder)
        except ConfigurationError as error:
            reason = str(error)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # Its checksum is right, but it is not the record of a run.
            reason = f"its {SUMMARY} is not the record of a run ({error!r})."
        if reason is not None:
            self.refused[folder] = reason

    def takes(self, folder: str) -> bool:
        """Whether to import a judged run."""
        return folder not in self.refused and folder not in self.same

    def _why_refused(self, run: RunId, summary: Mapping[str, Any]) -> str | None:
        """Reason not to import a run; None to import it, or if it is here already."""
        named = RunId.of_summary(summary)
        if named != run:
            return f"its {SUMMARY} belongs to another run, {named.folder}."
        spec = self._project.spec(run)
        if not self._matcher.has_split(spec):
            return (
                "its split is not here to compare, or follows another protocol. Make it with: snakemake "
                f"--cores 2 --force '{spec.split}'"
            )
        differences = list(self._matcher.differences(spec, summary))
        if differences:
            return f"it differs from the plan here in {'; '.join(differences)}."
        return None if self._replace else self._why_not_replaced(run, summary)

    def _why_not_replaced(self, run: RunId, summary: Mapping[str, Any]) -> str | None:
        """Reason to keep the run that is here; None if there is none, an unfinished one or the same."""
        match = self._matcher.match(self._project.spec(run))
        if SUMMARY in match.missing or self._is_there(run, summary):
            return None
        if match.damage:
            return f"the run here cannot be read ({match.damage}). {_REPLACED}"
        if match.differences:
            return f"the run here differs from the plan in {'; '.join(match.differences)}. {_REPLACED}"
        files = ", ".join(sorted(_unlike(match.summary, summary))) or "the number of its files"
        return f"a finished run is here, which differs in {files}. {_REPLACED}"

    def _is_there(self, run: RunId, summary: Mapping[str, Any]) -> bool:
        """Whether the results have the planned run, complete, with the imported numbers; times may differ."""
        match = self._matcher.match(self._project.spec(run))
        return match.is_current and not _unlike(match.summary, summary)


def _unlike(stored: Mapping[str, Any], imported: Mapping[str, Any]) -> set[str]:
    """The files in which two runs differ, by their checksums; timing is not compared."""
    return {
        file
        for file in FILES
        if file not in (SUMMARY, _TIMING) and stored.get("files", {}).get(file) != imported["files"].get(file)
    }


def _folders_of_runs(files: Sequence[str], name: str) -> list[str]:
    """The folders of the runs of `files`; `StorageError` if a folder is not exactly a run."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folder, _, base = file.rpartition("/")
        folders.setdefault(folder, []).append(base)
    for folder, names in folders.items():
        if sorted(names) != sorted(FILES):
            raise StorageError(f"{name}: {folder!r} in it is not a run. fedrec imported nothing.")
    return list(folders)


def _check(folder_read: Path, folder: str, name: str) -> None:
    """Read all files of a run; `StorageError` if they are damaged or do not belong together."""
    try:
        RunRecord(folder_read).check()
    except (ResultError, StorageError) as error:
        raise StorageError(
            f"{name}: the files of {folder} in it do not belong together. fedrec imported nothing. Export "
            "that run again where it was trained."
        ) from error


def _move(source: Path, folder: Path, backup: Path) -> None:
    """Rename `source` to `folder`; move an existing folder to `backup`, unless a process has locked it."""
    with as_storage_error(folder):
        if folder.is_dir():
            with locked(folder):
                folder.rename(backup)
        make_folder(folder.parent)
        source.rename(folder)


@contextmanager
def _staging(runs: Path) -> Iterator[Path]:
    """A temporary folder beside the runs, removed at the end with everything in it."""
    make_folder(runs)
    with as_storage_error(runs):
        stage = Path(tempfile.mkdtemp(prefix=_STAGING, dir=runs))
    try:
        with locked(stage):
            yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _remove_abandoned(runs: Path) -> None:
    """Remove the staging folders of killed imports."""
    for stage in sorted(runs.glob(f"{_STAGING}*")):
        try:
            with locked(stage):
                shutil.rmtree(stage, ignore_errors=True)
        except StorageError:
            # A running import has locked it.
            continue
