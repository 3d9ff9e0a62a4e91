"""Check the names of targets before planning, propose the nearest name, and find the runs that they need."""

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.leaderboard import LEADERBOARD
from fedrec.plan.project import Project
from fedrec.plan.runs import FILES, STATE, SUMMARY, RunId
from fedrec.plan.targets import ENDINGS, RESULT_FOLDERS, Target

_DATASET_FILES = ("interactions.parquet", "users.parquet", "items.parquet", "statistics.json")
_SPLIT_FILES = ("split.parquet", "candidates.parquet")
_SEED = re.compile(r"seed(\d+)")


def validate_targets(project: Project, names: Iterable[str]) -> None:
    """Raise `ConfigurationError` for a target that is no rule, no possible result and no existing file."""
    for name in names:
        if name in project.rule_names or name in project.targets.names:
            continue
        below = _below(project.results, name)
        if below is not None:
            _check_result(project, name, below)
        elif "/" in name:
            if not Path(name).exists():
                known = [str(project.results / folder) for folder in _CHECKS]
                hint = did_you_mean(str(Path(name).parent), known)
                raise ConfigurationError(
                    f"there is no target '{name}': results are below {project.results}/.{hint}"
                )
        elif not Path(name).exists():
            raise ConfigurationError(project.no_target(name))


def with_attacked_runs(project: Project, names: Iterable[str]) -> Project:
    """The project with the runs whose uploads the targets attack, and those whose models they read.

    Other finished runs stay current without recorded uploads or a large model.
    """
    names = list(names)
    layouts = project.layouts
    targets = [target for name in names for target in _targets_of(project, name)]
    shown = [project.target(name) for page in targets for name in page.content.get("targets", ())]
    attacking = [
        target
        for target in (*targets, *shown)
        if layouts[target.layout].selection == "upload_attack" or target.name == LEADERBOARD
    ]
    looking = [target for target in (*targets, *shown) if "states" in layouts[target.layout].needs]
    by_file = [run_and_file(project, rest)[0] for rest in _requested_models(project, names)]
    return replace(
        project,
        attacked_runs=frozenset(run for target in attacking for run in target.runs),
        inspected=frozenset([*by_file, *(run for target in looking for run in target.runs)]),
    )


def _requested_models(project: Project, names: Iterable[str]) -> Iterator[str]:
    """The paths of models among requested files, below the folder of runs."""
    for name in names:
        folder, _, rest = (_below(project.results, name) or "").partition("/")
        if folder == "runs" and rest.endswith(f"/{STATE}"):
            yield rest


def runs_for_targets(project: Project, names: Iterable[str]) -> list[RunId]:
    """The runs that targets need, each once. A target is a name or a file; some files need no run."""
    runs = (run for name in names for run in _runs_of(project, name))
    return list(dict.fromkeys(runs))


def _runs_of(project: Project, name: str) -> Iterable[RunId]:
    folder, _, rest = (_below(project.results, name) or "").partition("/")
    if folder == "runs" and name not in project.targets.names:
        return [run_and_file(project, rest)[0]]
    return (run for target in _targets_of(project, name) for run in target.runs)


def _targets_of(project: Project, name: str) -> list[Target]:
    """The tables, figures and pages behind a name or a file."""
    if name in project.groups or name in project.targets.names:
        return project.group(name)
    folder, _, rest = (_below(project.results, name) or "").partition("/")
    return [project.target(rest.partition(".")[0])] if folder in RESULT_FOLDERS.values() else []


def _below(results: Path, name: str) -> str | None:
    """The part of a path below the results; None for a path elsewhere."""
    relative = os.path.relpath(name, results)
    outside = relative == os.curdir or relative.split("/")[0] == os.pardir
    return None if outside else relative


def _check_result(project: Project, name: str, below: str) -> None:
    folder, _, rest = below.partition("/")
    if folder not in _CHECKS:
        raise ConfigurationError(
            f"there is no result '{name}'.{did_you_mean(folder, _CHECKS)} Results below {project.results}/ "
            f"are in: {', '.join(_CHECKS)}."
        )
    try:
        _CHECKS[folder](project, rest)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def _check_run(project: Project, path: str) -> None:
    run, file = run_and_file(project, path)
    project.job(run)
    _check_file(file, FILES)


def run_and_file(project: Project, path: str) -> tuple[RunId, str]:
    """The run and the file that a path below the folder of runs names."""
    parts = path.split("/")
    if len(parts) != 6:
        raise ConfigurationError(
            "the path of a run is <paper>/<dataset>/<protocol>/<method>/seed<number>/<file>, for example "
            "runs/pfedclr/ml-100k/clean/fedmf/seed0/run.json."
        )
    *named, seed, file = parts
    number = _SEED.fullmatch(seed)
    if number is None:
        raise ConfigurationError(f"'{seed}' is not a seed; write seed0 for seed 0.")
    paper, dataset, protocol, method = named
    _ = project.catalogue[dataset]
    run = project.run_at(paper=paper, dataset=dataset, protocol=protocol, method=method, seed=number[1])
    return run, file


def run_from_folder(project: Project, folder: str) -> RunId:
    """The run of a folder below the results; `ConfigurationError` if it is the folder of no run."""
    run, _ = run_and_file(project, f"{folder.removeprefix('runs/')}/{SUMMARY}")
    if run.folder != folder:
        raise ConfigurationError(f"write its folder as {run.folder}.")
    project.job(run)
    return run


def runs_in_results(project: Project) -> tuple[list[RunId], dict[str, str]]:
    """The runs with a run.json among the results, and the folders that name no run here, with the reason."""
    runs, nameless = [], {}
    for path in sorted((project.results / "runs").glob(f"*/*/*/*/*/{SUMMARY}")):
        folder = path.parent.relative_to(project.results).as_posix()
        try:
            runs.append(run_from_folder(project, folder))
        except ConfigurationError as error:
            nameless[folder] = str(error)
    return runs, nameless


def _check_data(project: Project, path: str) -> None:
    dataset, *rest = path.split("/")
    _ = project.catalogue[dataset]
    if len(rest) == 2:
        project.check_split(dataset, rest[0])
        _check_file(rest[1], _SPLIT_FILES)
    else:
        _check_file("/".join(rest), (*_DATASET_FILES, *(f"<protocol>/{file}" for file in _SPLIT_FILES)))


def _check_built(form: str) -> Callable[[Project, str], None]:
    def check(project: Project, path: str) -> None:
        stem, _, ending = path.partition(".")
        target = project.target(stem)
        if target.form != form:
            folder = RESULT_FOLDERS[target.form]
            raise ConfigurationError(f"{target.name} is a {target.form}; it is in {folder}/.")
        _check_file(f"{target.name}.{ending}", [f"{target.name}.{known}" for known in ENDINGS[form]])

    return check


def _check_plan(project: Project, path: str) -> None:
    if path != "project.json":
        project.target(path.removesuffix(".json"))


def _check_raw(project: Project, path: str) -> None:
    project.catalogue.raw_file(path)


def _check_nothing(_project: Project, _path: str) -> None:
    """Accept logs and benchmark times of jobs: Snakemake checks these itself."""


def _check_file(name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ConfigurationError(
            f"there is no file '{name}' there.{did_you_mean(name, known)} The files are: {', '.join(known)}."
        )


_CHECKS: Mapping[str, Callable[[Project, str], None]] = {
    "data": _check_data,
    "runs": _check_run,
    **{folder: _check_built(form) for form, folder in RESULT_FOLDERS.items()},
    "plan": _check_plan,
    "raw": _check_raw,
    "logs": _check_nothing,
    "benchmarks": _check_nothing,
}
"""Checks of a path below the results, by its first folder."""
