"""Runs that explain why our number differs from print: trials of searches, and runs that causes name.

They explain a difference afterwards. No setting is chosen by them.
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
    """The common part of the folders of runs that differ only in the seed."""
    return str(PurePosixPath(folder).parent)


def cause_run(workspace: Workspace, fits: str, paper: str, dataset: str) -> RunId:
    """The run of the method `fits` that a cause names for a paper's printed numbers on a dataset."""
    return run_of(workspace.methods, paper, dataset, _PROTOCOL, fits, _SEED)


def cause_runs(workspace: Workspace) -> list[RunId]:
    """The runs that causes name, on those datasets of their printed numbers that are available."""
    causes = workspace.configuration.get("reference", {}).get("causes", ())
    named = {
        (cause[FITS], key[0], key[2])
        for cause in causes
        if FITS in cause
        for key, number in printed_numbers().items()
        if number.unit == "fraction" and is_about(cause, key)
    }
    missing = workspace.unavailable_to_papers(sorted({dataset for _, _, dataset in named}))
    return sorted(
        {
            cause_run(workspace, *cause_key)
            for cause_key in named
            if cause_key[2] not in missing and f"{cause_key[2]}/published-{cause_key[1]}" not in missing
        }
    )


def trials_behind(workspace: Workspace, runs: Iterable[RunId]) -> dict[str, list[RunId]]:
    """The finished trials of the searches that chose settings of `runs`, by the run's `line_folder`.

    A trial has the run's paper, dataset, protocol and method, and all settings that no search chose. A run
    with searched settings has an entry even if no trial is finished.
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
    """The finished runs with the first seed of searches, with settings, from the store or the results."""
    seed = workspace.tuning.seed
    if workspace.stored is not None:
        return {
            run: resolve(workspace.methods, run.method, run.paper, run.dataset)[0]
            for run in workspace.stored.runs
            if run.seed == seed
        }
    trials: dict[RunId, Mapping[str, Any]] = {}
    for path in (workspace.results / "runs").glob(f"*/*/*/*/seed{seed}/{SUMMARY}"):
        try:
            summary = read_checked_json(path)
        except ValueError as error:
            raise ResultError(
                f"{path}: the file is damaged: {error}. Delete it, then build it again with: snakemake "
                f"--cores 2 '{path}'"
            ) from error
        trials[RunId.of_summary(summary)] = summary["settings"]
    return trials
