"""Whether the runs that lie among the results are those a plan asks for: some were trained elsewhere."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.sealed import read_sealed
from fedrec.plan.agreement import Agreement
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED, FILES, SUMMARY, RunId


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

    Engines and devices are not compared: whichever trained it, it is the same experiment. What cannot be
    read is not judged: whoever reads it will say so.
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
        self._agreement = Agreement()
        self._splits: dict[str, str | None] = {}

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
        yield from self._agreement.differences(there, run.method, job.settings)
        if DIVERGED in there and not job.is_trial:
            yield "that it diverged"
        unrecorded = sorted(set(job.records) - set(there.get("record", ())))
        if unrecorded:
            yield f"what it recorded (not {', '.join(unrecorded)})"
        if self.split_hash(run) not in (None, there.get("split")):
            yield "its split"

    def split_hash(self, run: RunId) -> str | None:
        """The hash of the split that a run is trained on; None where there is none that says so."""
        if run.split not in self._splits:
            # Imported here: most plans are made where no run lies yet, and pyarrow takes a while to import.
            from fedrec.files.parquet import about_table

            try:
                about: Mapping[str, Any] = about_table(self._project.results / run.split / "split.parquet")
            except StorageError:
                about = {}
            self._splits[run.split] = about.get("split")
        return self._splits[run.split]


def is_whole(project: Project, run: RunId) -> bool:
    """Whether all files of a run are there."""
    return all((project.results / run.folder / file).is_file() for file in FILES)
