"""The runs that the reference still lacks, in order of their value, and their cost on a GPU."""

import math
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedrec.config.methods import Methods, canonical, resolve
from fedrec.config.names import parse
from fedrec.config.papers import BOTH
from fedrec.config.protocol import Protocol, short_name
from fedrec.config.protocol_file import protocol_named
from fedrec.config.reference import REFERENCE_CONFIGURATION
from fedrec.errors import ConfigurationError
from fedrec.files.atomic import canonical_json
from fedrec.plan.availability import why_not_at_one_time
from fedrec.plan.cost import gpu_seconds_of
from fedrec.plan.project import Project, RunJob
from fedrec.plan.run_matching import RunMatcher, unfinished
from fedrec.plan.runs import DIVERGED, RunId
from fedrec.plan.target_names import runs_for_targets

_CLEAN = "clean"
"""The protocol that a step may replace by others."""
_OF_THE_LEAK = ("protocol_steps", "exposure", "upload_attack", "audit")
"""The selections of audit tables that read no ranks among all items."""


@dataclass(frozen=True)
class PlannedRun:
    """A run to train for the reference."""

    job: RunJob
    step: int
    """The first step of the order that needs it, counted from 1."""
    seconds: float
    """Estimated time on a GPU."""


def reference_plan(
    project: Project,
    stored: Mapping[RunId, Mapping[str, Any]],
    measured: Mapping[str, Collection[RunId]] | None = None,
    *,
    gaps: bool = False,
    exact: Container[RunId] | None = None,
) -> list[PlannedRun]:
    """The runs that the steps under `reference` in the configuration still need, each once, step by step.

    A run is left out if it is finished with the current code, settings and split: in the store (`stored` has
    each run.json) or among the results. A stored run is listed again in two cases:

    - An audit table reads its model, and the model was not measured before it was dropped. `measured` has the
      measured runs by the table's layout.
    - `exact` is given and does not contain the run, and a table, figure or verdict shows it. `exact` contains
      the runs with ranks among all items.

    With `gaps`, a stored run of older code is left out as well, since tables show it. Within a step the
    shortest runs come first.
    """
    if "reference" not in project.configuration:
        raise ConfigurationError(
            "the configuration has no key for the reference runs. Add --configfile "
            f"{REFERENCE_CONFIGURATION}."
        )
    order, costs = project.configuration["reference"]["order"], project.configuration["gpu_costs"]
    planned: dict[RunId, PlannedRun] = {}
    for number, step in enumerate(order, start=1):
        of_step = replace(project, configuration={**project.configuration, "seeds": step["seeds"]})
        requested = [run for run in _runs(of_step, step) if run not in planned]
        known = {run: stored[run] for run in requested if run in stored}
        available = _shown(known, project) if gaps else _current(known, of_step)
        available -= _unmeasured(of_step, step, stored, measured or {})
        if exact is not None:
            available -= {run for run in _ranked(of_step, step) if run not in exact}
        left = unfinished(of_step, [run for run in requested if run not in available])
        cost = {run: gpu_seconds_of(run, project.methods, project.catalogue, costs) for run in left}
        for run in sorted(left, key=lambda run: (cost[run], run)):
            planned[run] = PlannedRun(of_step.job(run), number, cost[run])
    return list(planned.values())


def chosen(
    project: Project,
    planned: Iterable[PlannedRun],
    *,
    datasets: Collection[str] = (),
    methods: Collection[str] = (),
    seeds: Collection[int] = (),
    minutes: float | None = None,
) -> list[PlannedRun]:
    """Filter planned runs by datasets, methods and seeds; an empty filter accepts all.

    A method matches with any changed settings. `minutes` limits the total time: the result has the first runs
    that fit. `ConfigurationError` names an unknown dataset or method.
    """
    for dataset in datasets:
        project.catalogue[dataset]
    names = {parse(canonical(project.methods, method)).name for method in methods}
    left = math.inf if minutes is None else minutes * 60
    listed = []
    for candidate in planned:
        run = candidate.job.run
        if (datasets and run.dataset not in datasets) or (seeds and run.seed not in seeds):
            continue
        if names and parse(run.method).name not in names:
            continue
        left -= candidate.seconds
        if left < 0:
            break
        listed.append(candidate)
    return listed


def plan_text(planned: Iterable[PlannedRun], stored: Container[RunId] = ()) -> str:
    """The remaining runs of each step as text, with minutes on one GPU, one run after the other.

    The last line also counts the runs that are `stored`, but outdated, not measured or without exact ranks.
    """
    steps: dict[int, list[PlannedRun]] = {}
    for run in planned:
        steps.setdefault(run.step, []).append(run)
    every = [run for runs in steps.values() for run in runs]
    if not every:
        return "No run is left to train."
    lines = [f"step {number}: {_summary_text(runs)}" for number, runs in sorted(steps.items())]
    older = sum(run.job.run in stored for run in every)
    summary = (
        f"; {older} of them are stored, but outdated, not measured or without exact metrics, and "
        f"{len(every) - older} are not stored"
    )
    return "\n".join([*lines, f"all: {_summary_text(every)}{summary if older else ''}"])


def is_as_named(summary: Mapping[str, Any], methods: Methods, protocols: Mapping[str, Protocol]) -> bool:
    """Whether the settings and the protocol of a run.json are those that its name means now."""
    try:
        settings, _, _ = resolve(methods, summary["method"], summary["paper"], summary["dataset"])
        protocol = protocol_named(protocols, summary["protocol"]["name"]).as_dict()
    except ConfigurationError:
        # The method, a setting or the protocol was removed.
        return False
    wanted, recorded = (settings, protocol), (summary["settings"], summary["protocol"])
    return canonical_json(wanted) == canonical_json(recorded)


def _runs(project: Project, step: Mapping[str, Any]) -> list[RunId]:
    """The runs of a step."""
    return _of_step(project, step, runs_for_targets(project, step["targets"]))


def _ranked(project: Project, step: Mapping[str, Any]) -> list[RunId]:
    """The runs of a step whose exact ranks a table, figure or verdict reads."""
    every = (target for name in step["targets"] for target in project.group(name))
    shown = [target for target in every if project.layouts[target.layout].selection not in _OF_THE_LEAK]
    return _of_step(project, step, [run for target in shown for run in target.runs])


def _of_step(project: Project, step: Mapping[str, Any], runs: Iterable[RunId]) -> list[RunId]:
    """The runs on the datasets of a step. If the step names protocols, they replace `clean`.

    Datasets without times have no runs under a protocol with a cut time.
    """
    datasets, protocols = step.get("datasets"), step.get("protocols")
    on_datasets = [run for run in runs if datasets is None or run.dataset in datasets]
    if protocols is None:
        return [run for run in on_datasets if short_name(run.protocol) not in _further_protocols(project)]
    clean = dict.fromkeys(run for run in on_datasets if run.protocol == _CLEAN)
    return [
        replace(run, protocol=protocol.name)
        for protocol in map(project.protocol, protocols)
        for run in clean
        if why_not_at_one_time(project.catalogue[run.dataset], protocol) is None
    ]


def _further_protocols(project: Project) -> set[str]:
    """The protocols that only steps with `protocols` train: tables show them if runs exist."""
    return {*project.compared_protocols}.difference(BOTH)


def _shown(stored: Mapping[RunId, Mapping[str, Any]], project: Project) -> set[RunId]:
    """The stored runs that tables show: of any code, but with the current settings and protocol."""
    return {
        run for run, summary in stored.items() if is_as_named(summary, project.methods, project.protocols)
    }


def _current(stored: Mapping[RunId, Mapping[str, Any]], project: Project) -> set[RunId]:
    """The stored runs with the project's code, settings and split."""
    matcher = RunMatcher()
    return {
        run for run, summary in stored.items() if not any(matcher.differences(project.spec(run), summary))
    }


def _unmeasured(
    project: Project,
    step: Mapping[str, Any],
    stored: Mapping[RunId, Mapping[str, Any]],
    measured: Mapping[str, Collection[RunId]],
) -> set[RunId]:
    """The stored runs whose models an audit table of a step reads, but that were never measured.

    Diverged runs have no model, and are left out.
    """
    unmeasured: set[RunId] = set()
    for target in (target for name in step["targets"] for target in project.group(name)):
        layout = project.layouts[target.layout]
        if layout.of_audit and "states" in layout.needs:
            unmeasured |= {*target.runs}.intersection(stored).difference(measured.get(layout.name, ()))
    return {run for run in unmeasured if DIVERGED not in stored[run]}


def _summary_text(runs: Sequence[PlannedRun]) -> str:
    minutes = sum(run.seconds for run in runs) / 60
    return f"{len(runs)} runs, about {minutes:.0f} minutes on one GPU, one after the other"
