"""Everything that can be reported on stored runs, without training: unpacked, then tables, figures, page.

What the store does not have is missing in tables and named there; each says how many of its runs are older
than the code.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedrec.config.document import Document
from fedrec.files.atomic import unflushed
from fedrec.plan.agreement import TodaysCode, has_todays_settings
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED, RunId
from fedrec.plan.targets import COVERAGE, RESULT_FOLDERS, Target
from fedrec.plan.workspace import Stored
from fedrec.reporting.build import add_remark, build
from fedrec.reporting.kept import kept_targets, take_out
from fedrec.runs.machine import usable_cores
from fedrec.runs.store import PackedRun, RunStore, unpacked_run

_PAGE = "report"
_LAST = (COVERAGE, _PAGE)
"""What is made from other targets."""
_SLOW = ("verdicts", "audit_")
"""How targets are called that resample users, or open many runs."""
_KEPT = "Kept as it was drawn where its models were, which are not stored."
_LOADED: list[Project] = []
"""The project of a process that builds."""
_THREADS = ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")
"""The environment variables by which numpy and pyarrow, and polars, are told how many threads to have."""
_OUTPUTS = (*RESULT_FOLDERS.values(), "runs", "data", "plan")
"""Folders below the results that are written anew."""


def stored_project(configuration: Document, root: Path, store: RunStore, results: str) -> Project:
    """The project of a configuration that reports on stored runs alone, into the folder `results`."""
    project = Project.load(configuration, root)
    own = {**project.configuration, "results": results}
    return replace(project, configuration=own, stored=stored_runs(store, project))


def stored_runs(store: RunStore, project: Project) -> Stored:
    """What a store has of what tables mean.

    They mean no run of other settings than its name stands for today, and where runs that diverge are refused
    none of these.
    """
    runs = {
        run.id: run
        for run in store.every_run()
        if has_todays_settings(run.summary, project.methods)
        and (project.keeps_diverged or DIVERGED not in run.summary)
    }
    return Stored(
        frozenset(runs),
        older=frozenset(_older(runs)),
        measured={
            what: frozenset(name for name, run in runs.items() if what in run.audit)
            for what in ("exposure", "uploads")
        },
        diverged=frozenset(name for name, run in runs.items() if DIVERGED in run.summary),
        datasets=frozenset(store.described()),
        kept=frozenset(kept_targets(store.folder)),
        training=str(project.configuration["results"]),
    )


def build_stored(project: Project, store: RunStore, jobs: int) -> list[str]:
    """Build everything the project asks for and the store has runs for; return the names, in their order.

    What an earlier call left in the folder of results is removed first.
    """
    for folder in _OUTPUTS:
        shutil.rmtree(project.results / folder, ignore_errors=True)
    asked = dict.fromkeys(name for name in project.groups["all"] if _has_something(project, name))
    names = [*(name for name in asked if name not in _LAST), *_searches(project)]
    _build_all(project, store, names, jobs)
    build(project.target(COVERAGE), project)
    build(_page(project, [*names, COVERAGE]), project)
    return [*names, *_LAST]


def _build_all(project: Project, store: RunStore, names: Sequence[str], jobs: int) -> None:
    """Unpack runs and build targets in several processes, the slowest kinds first."""
    forms = project.targets.names
    order = sorted(names, key=lambda name: (not name.startswith(_SLOW), forms[name] != "figure"))
    if jobs == 1:
        _unpack_data(store, project.results)
        for dataset in store.datasets():
            _unpack(store, dataset, project.results)
        for name in order:
            _build_one(project, store, name)
        return
    about = (project.configuration, project.root, project.stored)
    # New processes, not copies of this one, whose libraries have threads.
    spawned = get_context("spawn")
    with _sharing_cores(jobs), ProcessPoolExecutor(jobs, spawned, _load_project, about) as pool:
        of_datasets = [pool.submit(_unpack, store, dataset, project.results) for dataset in store.datasets()]
        for done in (pool.submit(_unpack_data, store, project.results), *of_datasets):
            done.result()
        for done in [pool.submit(_build_by_name, store, name) for name in order]:
            done.result()


@contextmanager
def _sharing_cores(jobs: int) -> Iterator[None]:
    """Let libraries of processes that start have their share of the cores, not each of them threads for all.

    What the environment says already stays.
    """
    share = str(max(1, usable_cores() // jobs))
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, share))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _load_project(configuration: Mapping[str, Any], root: Path, stored: Stored | None) -> None:
    """Load the project of a process: it is not made to be sent from one to another."""
    project = Project.load(Document("configuration", dict(configuration)), root)
    _LOADED.append(replace(project, stored=stored))


def _build_by_name(store: RunStore, name: str) -> None:
    _build_one(_LOADED[-1], store, name)


def _unpack_data(store: RunStore, results: Path) -> None:
    with unflushed():
        store.unpack_data(results)


def _unpack(store: RunStore, dataset: str, results: Path) -> None:
    with unflushed():
        for run in store.runs_on(dataset).values():
            unpacked_run(run, results)


def _build_one(project: Project, store: RunStore, name: str) -> None:
    target = project.target(name)
    if project.stored is not None and name in project.stored.kept:
        take_out(store.folder, target, project.results)
        add_remark(target, project, _KEPT)
    else:
        build(target, project)


def _has_something(project: Project, name: str) -> bool:
    """Whether a target of ours has runs to show where it is made of runs."""
    target = project.target(name)
    layout = project.layouts[target.layout]
    kept = project.stored is not None and name in project.stored.kept
    return kept or "runs" not in layout.needs or bool(target.runs) or layout.selection == "judged"


def _searches(project: Project) -> list[str]:
    """The searches whose tables are kept."""
    kept = frozenset[str]() if project.stored is None else project.stored.kept
    return [name for name in project.tuning.searches if name in kept]


def _page(project: Project, names: Sequence[str]) -> Target:
    """The page of what was built."""
    page = project.target(_PAGE)
    built = {*names}
    content = {
        **page.content,
        **{
            key: [name for name in page.content[key] if name in built]
            for key in ("targets", "built", "audit")
        },
    }
    return replace(page, content=content)


def _older(runs: Mapping[RunId, PackedRun]) -> list[RunId]:
    is_todays = TodaysCode()
    return [name for name, run in runs.items() if not is_todays(run.summary, name.method)]
