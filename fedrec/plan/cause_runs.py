"""Runs that tell why a printed number has no equal among ours: trials of searches, and runs that causes name.

They explain a miss after the fact. Nothing is chosen by them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any

from fedrec.config.causes import FITS, is_about
from fedrec.config.method_entries import SEARCHED
from fedrec.config.methods import resolve
from fedrec.config.names import parse
from fedrec.config.printed import printed_numbers
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json
from fedrec.plan.runs import SUMMARY, RunId, run_of
from fedrec.plan.workspace import Workspace

_PROTOCOL, _SEED = "published", 0
"""The seed of runs that causes name."""


def line_folder(folder: str) -> str:
    """The part of their folders that runs share which differ in the seed alone."""
    return str(PurePosixPath(folder).parent)


def cause_run(workspace: Workspace, fits: str, paper: str, dataset: str) -> RunId:
    """The run that a cause names for the printed numbers of a paper on a dataset."""
    return run_of(workspace.methods, paper, dataset, _PROTOCOL, fits, _SEED)


def cause_runs(workspace: Workspace) -> list[RunId]:
    """The runs that causes name, on the available datasets of the printed metrics that each is about."""
    causes = workspace.configuration.get("reference", {}).get("causes", ())
    wanted = {
        (cause[FITS], key[0], key[2])
        for cause in causes
        if FITS in cause
        for key, number in printed_numbers().items()
        if number.unit == "fraction" and is_about(cause, key)
    }
    missing = workspace.unavailable_to_papers(sorted({dataset for _, _, dataset in wanted}))
    return sorted(
        {
            cause_run(workspace, *one)
            for one in wanted
            if one[2] not in missing and f"{one[2]}/published-{one[1]}" not in missing
        }
    )


def trials_behind(workspace: Workspace, runs: Iterable[RunId]) -> dict[str, list[RunId]]:
    """The finished trials of the searches that found settings of runs, by what `line_of` says of a run.

    A trial has the run's paper, dataset, protocol and method, and all its settings but those that a search
    found. A line with such settings is there even if no trial is.
    """
    trials: dict[tuple[str, ...], dict[RunId, Mapping[str, Any]]] = {}
    for trial, settings in _finished_trials(workspace).items():
        trials.setdefault(_kind(trial), {})[trial] = settings
    behind: dict[str, list[RunId]] = {}
    for run in sorted({replace(run, seed=_SEED) for run in runs}):
        values, sources, _ = resolve(workspace.methods, run.method, run.paper, run.dataset)
        searched = {name for name, source in sources.items() if source.startswith(SEARCHED)}
        if searched:
            stated = {name: value for name, value in values.items() if name not in searched}
            behind[line_folder(run.folder)] = [
                trial
                for trial, settings in sorted(trials.get(_kind(run), {}).items())
                if {name: value for name, value in settings.items() if name not in searched} == stated
            ]
    return behind


def _kind(run: RunId) -> tuple[str, ...]:
    return run.paper, run.dataset, run.protocol, parse(run.method).name


def _finished_trials(workspace: Workspace) -> dict[RunId, Mapping[str, Any]]:
    """The finished runs with the first seed of searches, and their settings: stored, or among the results."""
    seed = workspace.tuning.seed
    if workspace.stored is not None:
        return {
            run: resolve(workspace.methods, run.method, run.paper, run.dataset)[0]
            for run in workspace.stored.runs
            if run.seed == seed
        }
    found: dict[RunId, Mapping[str, Any]] = {}
    for path in (workspace.results / "runs").glob(f"*/*/*/*/seed{seed}/{SUMMARY}"):
        try:
            summary = read_checked_json(path)
        except ValueError as error:
            raise ResultError(
                f"{path}: the file is damaged: {error}. Delete it, then build it again with: snakemake "
                f"--cores 2 '{path}'"
            ) from error
        found[RunId.of_summary(summary)] = summary["settings"]
    return found
