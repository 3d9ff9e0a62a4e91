"""Whether the runs that lie among the results are those a plan asks for: some were trained elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.sealed import read_sealed
from fedrec.plan.agreement import RunComparison, WantedRun
from fedrec.plan.project import Project
from fedrec.plan.runs import FILES, SUMMARY, RunId


def unfinished(project: Project, runs: Iterable[RunId]) -> list[RunId]:
    """The runs that are still to be trained: those that are not there, and those that are outdated."""
    runs = list(runs)
    done = set(finished(project, runs))
    return [run for run in runs if run not in done]


def finished(project: Project, runs: Iterable[RunId]) -> list[RunId]:
    """The runs that need not be trained: all of their files are there, and are those of the plan."""
    runs = list(runs)
    other = set(outdated(project, runs))
    return [run for run in runs if run not in other and is_whole(project, run)]


def outdated(project: Project, runs: Iterable[RunId]) -> list[RunId]:
    """The runs in whose place another one lies, finished: of other code, settings or split, or of less.

    What cannot be read is not judged: whoever reads it will say so.
    """
    planned = PlannedRuns(project)
    return [run for run in runs if not planned.is_at_its_place(run)]


def agreeing(project: Project, found: Mapping[RunId, Mapping[str, Any]]) -> set[RunId]:
    """Those of finished runs, given by what their run.json says, that are the plan's own."""
    planned = PlannedRuns(project)
    return {run for run, said in found.items() if planned.agrees(run, said)}


class PlannedRuns:
    """What finished runs must say to be those of the plan; worked out once for many."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._comparison = RunComparison()

    def is_at_its_place(self, run: RunId) -> bool:
        """Whether no finished run lies in the folder of `run`, or itself."""
        try:
            there = read_sealed(self._project.results / run.folder / SUMMARY)
        except (FileNotFoundError, StorageError, ValueError):
            return True
        return self.agrees(run, there)

    def agrees(self, run: RunId, there: Mapping[str, Any]) -> bool:
        """Whether a run.json says what a run of this plan would say: code, settings, split, and no less."""
        return next(self.differences(run, there), None) is None

    def differences(self, run: RunId, there: Mapping[str, Any]) -> Iterator[str]:
        """What tells a run.json from one that a run of this plan would have, in words."""
        job = self._project.job(run)
        wanted = WantedRun(run.method, job.settings, job.records, job.may_diverge, self._split(run))
        return self._comparison.differences(wanted, there)

    def split_hash(self, run: RunId) -> str | None:
        """The hash of the split that a run is trained on; None where there is none that says so."""
        return self._comparison.split_hash(self._split(run))

    def _split(self, run: RunId) -> Path:
        return self._project.results / run.split / "split.parquet"


def is_whole(project: Project, run: RunId) -> bool:
    """Whether all files of a run are there."""
    return all((project.results / run.folder / file).is_file() for file in FILES)
