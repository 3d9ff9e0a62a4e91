"""Finished runs out of an archive: what was whole where they were trained is whole here, or not taken.

An archive that is damaged is refused as a whole. Of a sound one each run is taken that the workflow here
would take as finished, and every other is refused with the reason. Runs wait in a folder of their own until
all have been read and checked, and then move to their places, each at once.
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
class Imported:
    """What became of the runs of an archive, by their folders below the results."""

    taken: tuple[str, ...]
    same: tuple[str, ...]
    """Those that were there before, with the same numbers."""
    refused: Mapping[str, str]
    """Why others were not taken."""


def import_runs(project: Project, stream: IO[bytes], name: str, *, replace: bool = False) -> Imported:
    """Take the runs of an archive, which messages call `name`, into the results.

    One that is there already and differs is refused, unless it is there to `replace`; and one to whose
    folder a training writes. `StorageError` where the archive is damaged, or what it holds cannot be written:
    then no run of it was taken.
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
    taken = tuple(folder for folder in accepted if judge.takes(folder))
    return Imported(taken, tuple(judge.same), judge.refused)


class _Judge:
    """Decides which runs of an archive are taken, by what their run.json says."""

    def __init__(self, project: Project, *, replace: bool) -> None:
        self._project = project
        self._replace = replace
        self._matcher = RunMatcher()
        self.same: list[str] = []
        self.refused: dict[str, str] = {}

    def judge(self, folder: str, summary: bytes) -> None:
        """Look at the run that is to lie in `folder`."""
        try:
            said = verified(summary)
            run = run_from_folder(self._project, folder)
            why = self._why_refused(run, said)
            if why is None and self._is_there(run, said):
                self.same.append(folder)
        except ConfigurationError as error:
            why = str(error)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            # It is sealed, but whoever wrote it wrote no record of a run.
            why = f"its {SUMMARY} is not the record of a run ({error!r})."
        if why is not None:
            self.refused[folder] = why

    def takes(self, folder: str) -> bool:
        """Whether a run that was looked at is to be taken."""
        return folder not in self.refused and folder not in self.same

    def _why_refused(self, run: RunId, said: Mapping[str, Any]) -> str | None:
        """Why a run is not taken; None where it is, or is there already."""
        named = RunId.of_summary(said)
        if named != run:
            return f"its {SUMMARY} belongs to another run, {named.folder}."
        spec = self._project.spec(run)
        if not self._matcher.has_split(spec):
            return (
                "its split is not here to compare, or follows another protocol. Make it with: snakemake "
                f"--cores 2 --force '{spec.split}'"
            )
        differences = list(self._matcher.differences(spec, said))
        if differences:
            return f"it differs from the plan here in {'; '.join(differences)}."
        return None if self._replace else self._why_not_replaced(run, said)

    def _why_not_replaced(self, run: RunId, said: Mapping[str, Any]) -> str | None:
        """Why the run that is there stays; None where none is, or half of one, or the same."""
        there = self._matcher.match(self._project.spec(run))
        if SUMMARY in there.missing or self._is_there(run, said):
            return None
        if there.damage:
            return f"the run here cannot be read ({there.damage}). {_REPLACED}"
        if there.differences:
            return f"the run here differs from the plan in {'; '.join(there.differences)}. {_REPLACED}"
        files = ", ".join(sorted(_unlike(there.summary, said))) or "the number of its files"
        return f"a finished run is here, which differs in {files}. {_REPLACED}"

    def _is_there(self, run: RunId, said: Mapping[str, Any]) -> bool:
        """Whether a whole run of the plan lies there with the numbers of one that is brought, times aside."""
        there = self._matcher.match(self._project.spec(run))
        return there.is_current and not _unlike(there.summary, said)


def _unlike(there: Mapping[str, Any], said: Mapping[str, Any]) -> set[str]:
    """The files in which two runs differ, by the hashes of their content; times are never the same."""
    return {
        file
        for file in FILES
        if file not in (SUMMARY, _TIMING) and there.get("files", {}).get(file) != said["files"].get(file)
    }


def _folders_of_runs(files: Sequence[str], name: str) -> list[str]:
    """The folders of the runs to which `files` belong; `StorageError` where other files are among them."""
    folders: dict[str, list[str]] = {}
    for file in files:
        folder, _, base = file.rpartition("/")
        folders.setdefault(folder, []).append(base)
    for folder, names in folders.items():
        if sorted(names) != sorted(FILES):
            raise StorageError(f"{name}: {folder!r} in it is not a run. fedrec imported nothing.")
    return list(folders)


def _check(place: Path, folder: str, name: str) -> None:
    """Read a run as whoever opens it does: its files must be whole, and belong together."""
    try:
        RunRecord(place).check()
    except (ResultError, StorageError) as error:
        raise StorageError(
            f"{name}: the files of {folder} in it do not belong together. fedrec imported nothing. Export "
            "that run again where it was trained."
        ) from error


def _move(place: Path, folder: Path, before: Path) -> None:
    """Put a run in its place at once; what lies there goes to `before`, unless somebody writes to it."""
    with as_storage_error(folder):
        if folder.is_dir():
            with locked(folder):
                folder.rename(before)
        make_folder(folder.parent)
        place.rename(folder)


@contextmanager
def _staging(runs: Path) -> Iterator[Path]:
    """A folder beside the runs, out of which they move; gone afterwards, with all that is still in it."""
    make_folder(runs)
    with as_storage_error(runs):
        stage = Path(tempfile.mkdtemp(prefix=_STAGING, dir=runs))
    try:
        with locked(stage):
            yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _remove_abandoned(runs: Path) -> None:
    """Remove what killed imports left behind."""
    for stage in sorted(runs.glob(f"{_STAGING}*")):
        try:
            with locked(stage):
                shutil.rmtree(stage, ignore_errors=True)
        except StorageError:
            # Another import is at work there.
            continue
