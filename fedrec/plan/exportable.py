"""Which runs can be exported: those that the workflow would take as finished, by the plan."""

from collections.abc import Iterable
from pathlib import Path

from fedrec.errors import ConfigurationError, StorageError
from fedrec.files.sealed import read_sealed
from fedrec.plan.asked import run_in
from fedrec.plan.finished import PlannedRuns, is_whole
from fedrec.plan.project import Project
from fedrec.plan.runs import SUMMARY, RunId


def runs_there(project: Project) -> tuple[list[RunId], dict[str, str]]:
    """The finished runs among the results, and of folders that hold one which has no name here, why."""
    runs, nameless = [], {}
    for path in sorted((project.results / "runs").glob(f"*/*/*/*/*/{SUMMARY}")):
        folder = path.parent.relative_to(project.results).as_posix()
        try:
            runs.append(run_in(project, folder))
        except ConfigurationError as error:
            nameless[folder] = str(error)
    return runs, nameless


def exportable(project: Project, runs: Iterable[RunId]) -> tuple[dict[str, Path], dict[str, str]]:
    """Where those runs lie that are finished, with the plan's code, settings and split; why others are not.

    Both by their folders below the results.
    """
    planned = PlannedRuns(project)
    chosen, left_out = {}, {}
    for run in sorted(set(runs)):
        why = _why_not(project, run, planned)
        if why is None:
            chosen[run.folder] = project.results / run.folder
        else:
            left_out[run.folder] = why
    return chosen, left_out


def _why_not(project: Project, run: RunId, planned: PlannedRuns) -> str | None:
    if not is_whole(project, run):
        return "it is not finished."
    try:
        there = read_sealed(project.results / run.folder / SUMMARY)
    except (StorageError, ValueError) as error:
        return f"its {SUMMARY} cannot be read: {error}."
    differences = list(planned.differences(run, there))
    return f"it differs from the plan in {'; '.join(differences)}." if differences else None
