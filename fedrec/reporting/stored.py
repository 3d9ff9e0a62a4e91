"""Build tables, figures and the page from stored runs, without training.

Tables name the runs that the store lacks, and count those that older code trained.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from fedrec.config.document import Document
from fedrec.config.reference import REFERENCE_CONFIGURATION
from fedrec.errors import ResultError
from fedrec.files.atomic import unflushed
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.evaluated import EVALUATED_FOLDER
from fedrec.plan.project import Project
from fedrec.plan.reference import is_as_named
from fedrec.plan.runs import DIVERGED, SUMMARY, RunId
from fedrec.plan.targets import COVERAGE, PAGES, RESULT_FOLDERS, Target, splits_of
from fedrec.plan.workspace import Stored
from fedrec.reporting.build import add_remark, build, older_text
from fedrec.reporting.frozen import frozen_codes, frozen_targets, thaw
from fedrec.runs.machine import usable_cores
from fedrec.runs.store import PackedRun, RunStore, unpacked_run

_PAGE = "report"
_PARTS: Mapping[str, str] = {**dict.fromkeys(PAGES, "targets"), COVERAGE: "sources"}
"""Targets that are built from other targets, and the key of their content that names these."""
_FEW = 8
"""Up to so many targets are built in this process: another takes seconds to start."""
_SLOW = ("verdicts", "audit_")
"""Prefixes of slow targets, which resample users or open many runs."""
_FROZEN_NOTE = "Frozen: stored as it was drawn, because its models are not stored."
_WORKER_PROJECT: list[Project] = []
"""The project that a worker process builds from."""
_THREADS = ("OMP_NUM_THREADS", "POLARS_MAX_THREADS")
"""The environment variables that limit the threads of numpy and pyarrow, and of polars."""
_OUTPUTS = (*RESULT_FOLDERS.values(), "runs", "data", "plan", EVALUATED_FOLDER)
"""Folders below the results that a build replaces."""


@dataclass(frozen=True)
class Chosen:
    """The targets behind names, as far as stored runs can build them."""

    targets: tuple[str, ...]
    """Targets that can be built."""
    left_out: Mapping[str, str]
    """Targets of named papers and groups that cannot be built, with the reason."""


@dataclass(frozen=True)
class _Read:
    """The part of a store that is unpacked."""

    datasets: Sequence[str]
    """Datasets of the runs."""
    files: frozenset[str] | None = None
    """Files of runs and splits, relative to the results; None for all."""


def stored_project(
    configuration: Document, root: Path, store: RunStore, results: str, names: Iterable[str] = ()
) -> Project:
    """The project of a configuration that reports only on stored runs, into the folder `results`.

    An unknown name among `names` is a `ConfigurationError`, before the stored runs are read.
    """
    project = Project.load(configuration, root)
    for name in names:
        if name not in project.papers and name not in project.targets.names:
            project.group(name)
    own = {**project.configuration, "results": results}
    return replace(project, configuration=own, stored=stored_runs(store, project))


def stored_runs(store: RunStore, project: Project) -> Stored:
    """The stored runs that match the configuration.

    A run does not match if the settings, protocol or split behind its name have changed since, or if it
    diverged and the configuration refuses divergence.
    """
    splits = store.split_hashes()
    runs = {
        run.id: run
        for run in store.every_run()
        if is_as_named(run.summary, project.methods, project.protocols)
        and run.summary["split"] == splits.get((run.dataset, run.id.protocol), run.summary["split"])
        and (project.records_diverged or DIVERGED not in run.summary)
    }
    return Stored(
        frozenset(runs),
        older=frozenset(_older(runs)),
        measured={
            what: frozenset(name for name, run in runs.items() if what in run.audit)
            for what in ("exposure", "uploads")
        },
        diverged=frozenset(name for name, run in runs.items() if DIVERGED in run.summary),
        datasets=frozenset(store.datasets_with_statistics()),
        frozen=frozenset(frozen_targets(store.folder)),
        evaluated=frozenset(store.evaluated()),
        training=str(project.configuration["results"]),
    )


def build_stored(project: Project, store: RunStore, jobs: int) -> list[str]:
    """Build all targets of the project that have stored runs; return their names in order.

    Files that an earlier call left in the folder of results are removed first.
    """
    for folder in _OUTPUTS:
        shutil.rmtree(project.results / folder, ignore_errors=True)
    requested = dict.fromkeys(name for name in project.groups["all"] if _has_something(project, name))
    names = [*(name for name in requested if name not in _PARTS), *_searches(project), COVERAGE, _PAGE]
    _build_all(project, store, names, jobs, _Read(store.datasets()))
    return names


def build_named(project: Project, store: RunStore, names: Sequence[str], jobs: int) -> list[Target]:
    """Build targets of `chosen_targets` and the targets that these are made of; return the names of all.

    Only the files that they read are unpacked. Other files in the folder of results stay.
    """
    targets = [project.target(name) for name in _with_parts(project, names)]
    processes = jobs if len(targets) > _FEW else 1
    _build_all(project, store, [target.name for target in targets], processes, _read(targets))
    return targets


def chosen_targets(project: Project, names: Iterable[str]) -> Chosen:
    """Choose the targets behind `names` (targets, papers or groups) that stored runs can build.

    An unknown name is a `ConfigurationError`. If no target of a name can be built, the `ResultError` has the
    reason and the command that helps.
    """
    targets: dict[str, None] = {}
    left_out: dict[str, str] = {}
    for name in names:
        members = _members(project, name)
        reasons = {member: why for member in members if (why := _why_not(project, project.target(member)))}
        if len(reasons) == len(members):
            first = next(iter(reasons.values()), "it has no tables and figures.")
            raise ResultError(f"{name}: cannot be built from stored runs: {first}")
        targets |= dict.fromkeys(member for member in members if member not in reasons)
        left_out |= reasons
    return Chosen(tuple(targets), left_out)


def _members(project: Project, name: str) -> list[str]:
    """The targets behind a name, buildable or not."""
    if name in project.papers:
        return [artefact.target for artefact in project.papers[name].artefacts.values()]
    # Groups come last: to know them, fedrec has to plan every target.
    return [name] if name in project.targets.names else [target.name for target in project.group(name)]


def _why_not(project: Project, target: Target) -> str | None:
    """The reason why stored runs cannot build a target, and the command that helps; None if they can."""
    if _is_of_store(project, target):
        return None
    training, goal = project.training, project.snakemake_target(target)
    freezing = (
        f"On the machine that has them: snakemake --cores 2 {goal}, "
        f"then: fedrec reference freeze {target.name}"
    )
    if target.form == "search":
        return f"the trials of a search are not stored. {freezing}"
    if "states" not in project.layouts[target.layout].needs:
        return (
            "none of its runs is stored. Train them with: snakemake --cores 2 --configfile "
            f"{REFERENCE_CONFIGURATION} -- {goal}, then: fedrec reference add {training}"
        )
    if target.form == "figure":
        return f"it shows models, which are not stored. {freezing}"
    return (
        "the measurements of its models are not stored. On the machine that has the runs: "
        f"fedrec reference pack {training} --store pack --audit, then: fedrec reference add pack"
    )


def _is_of_store(project: Project, target: Target) -> bool:
    """Whether a target is frozen, or the store has part of its input, or it needs none."""
    if target.form == "page":
        return any(_is_of_store(project, project.target(name)) for name in _parts(project, target.name))
    reads_data = {"statistics", "interactions"}.intersection(project.layouts[target.layout].needs)
    return _has_something(project, target.name) and (bool(target.inputs) or not reads_data)


def _with_parts(project: Project, names: Sequence[str]) -> list[str]:
    """Names, with those of the parts of pages and of the coverage among them."""
    every = dict.fromkeys(names)
    for whole in _PARTS:
        if whole in every:
            every |= dict.fromkeys(_parts(project, whole))
    return list(every)


def _parts(project: Project, whole: str) -> list[str]:
    """The parts of a page or of the coverage that have stored input."""
    return [name for name in project.target(whole).content[_PARTS[whole]] if _has_something(project, name)]


def _read(targets: Iterable[Target]) -> _Read:
    """The files that targets read."""
    every = list(targets)
    runs = {run for target in every for run in target.runs}
    splits = (file for run in runs for file in splits_of(run.dataset, [run.protocol]))
    inputs = (file for target in every for file in target.inputs)
    return _Read(sorted({run.dataset for run in runs}), frozenset((*inputs, *splits)))


def _build_all(project: Project, store: RunStore, names: Sequence[str], jobs: int, read: _Read) -> None:
    """Unpack the input and build targets; then, from these, the coverage and pages."""
    _build_from_runs(project, store, [name for name in names if name not in _PARTS], jobs, read)
    if COVERAGE in names:
        build(project.target(COVERAGE), project)
    for page in PAGES:
        if page in names:
            build(_page(project, page, names), project)


def _build_from_runs(project: Project, store: RunStore, names: Sequence[str], jobs: int, read: _Read) -> None:
    """Unpack the input and build targets in `jobs` processes, the slowest kinds first."""
    forms = project.targets.names
    order = sorted(names, key=lambda name: (not name.startswith(_SLOW), forms[name] != "figure"))
    if jobs == 1:
        _unpack_data(store, project.results, read)
        for dataset in read.datasets:
            _unpack(store, dataset, project.results, read)
        for name in order:
            _build_one(project, store, name)
        return
    about = (project.configuration, project.root, project.stored)
    # Spawned, not forked: libraries of this process have threads.
    spawned = get_context("spawn")
    with _sharing_cores(jobs), ProcessPoolExecutor(jobs, spawned, _load_project, about) as pool:
        of_datasets = [
            pool.submit(_unpack, store, dataset, project.results, read) for dataset in read.datasets
        ]
        for done in (pool.submit(_unpack_data, store, project.results, read), *of_datasets):
            done.result()
        for done in [pool.submit(_build_by_name, store, name) for name in order]:
            done.result()


@contextmanager
def _sharing_cores(jobs: int) -> Iterator[None]:
    """Give the libraries of each started process its share of the cores; keep variables that are set."""
    share = str(max(1, usable_cores() // jobs))
    added = [name for name in _THREADS if name not in os.environ]
    os.environ.update(dict.fromkeys(added, share))
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _load_project(configuration: Mapping[str, Any], root: Path, stored: Stored | None) -> None:
    """Load the project in a worker process, since a project cannot be sent between processes."""
    project = Project.load(Document("configuration", dict(configuration)), root)
    _WORKER_PROJECT.append(replace(project, stored=stored))


def _build_by_name(store: RunStore, name: str) -> None:
    _build_one(_WORKER_PROJECT[-1], store, name)


def _unpack_data(store: RunStore, results: Path, read: _Read) -> None:
    with unflushed():
        store.unpack_data(results, read.files)
        store.unpack_evaluated(results)


def _unpack(store: RunStore, dataset: str, results: Path, read: _Read) -> None:
    with unflushed():
        for run in store.runs_on(dataset).values():
            if read.files is None or f"{run.name}/{SUMMARY}" in read.files:
                # The folder of an earlier call may have files that this run lacks.
                shutil.rmtree(results / run.name, ignore_errors=True)
                unpacked_run(run, results)


def _build_one(project: Project, store: RunStore, name: str) -> None:
    target = project.target(name)
    if project.is_frozen(name):
        thaw(store.folder, target, project.results)
        add_remark(target, project, _FROZEN_NOTE)
        codes, matcher = frozen_codes(store.folder, target), CodeMatcher()
        outdated = {run for run, code in codes.items() if not matcher.is_current_run(code, run.method)}
        if older := project.counted(codes, outdated):
            add_remark(target, project, older_text(older, len(codes)))
    else:
        build(target, project)


def _has_something(project: Project, name: str) -> bool:
    """Whether a target has stored runs, or needs none."""
    target = project.target(name)
    layout = project.layouts[target.layout]
    return (
        project.is_frozen(name)
        or "runs" not in layout.needs
        or bool(target.runs)
        or layout.selection == "claims"
    )


def _searches(project: Project) -> list[str]:
    """The searches with frozen tables."""
    return [name for name in project.tuning.searches if project.is_frozen(name)]


def _page(project: Project, name: str, names: Sequence[str]) -> Target:
    """The page, limited to the targets that were built."""
    page = project.target(name)
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
    matcher = CodeMatcher()
    return [name for name, run in runs.items() if not matcher.is_current_run(run.summary, name.method)]
