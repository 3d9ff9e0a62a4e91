"""The work that reference results are still short of, in order of its value, and what it costs on a GPU."""

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
"""The protocol in whose place a step may name others."""
_OF_THE_LEAK = ("protocol_steps", "exposure", "upload_attack", "audit")
"""The selections of tables of the audit that read no ranks among all items."""


@dataclass(frozen=True)
class PlannedRun:
    """A run that is to be trained for the reference."""

    job: RunJob
    step: int
    """The step of the order that asks for it first, from 1."""
    seconds: float
    """About how long it takes on a GPU."""


def reference_plan(
    project: Project,
    stored: Mapping[RunId, Mapping[str, Any]],
    measured: Mapping[str, Collection[RunId]] | None = None,
    *,
    gaps: bool = False,
    exact: Container[RunId] | None = None,
) -> list[PlannedRun]:
    """The runs that the steps of `reference` in the configuration ask for, each once and step by step.

    Left out are those that are `stored`, given by what their run.json says, and those finished among the
    results, of today's code, settings and split. Not left out is a stored one inside whose model a table of
    the audit looks, unless that was done while there was one: `measured` has these by the table's layout.
    Where `gaps` alone are asked for, what is stored is left out whatever code it is of, since tables show it.
    With `exact`, the runs that have ranks among all items, others of tables, figures and verdicts are not
    left out. Within a step the shortest come first.
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
        asked = [run for run in _runs(of_step, step) if run not in planned]
        known = {run: stored[run] for run in asked if run in stored}
        there = _shown(known, project) if gaps else _current(known, of_step)
        there -= _unmeasured(of_step, step, stored, measured or {})
        if exact is not None:
            there -= {run for run in _ranked(of_step, step) if run not in exact}
        left = unfinished(of_step, [run for run in asked if run not in there])
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
    """Of planned runs those on these datasets, of these methods and seeds: all where none is named.

    A method is meant with whatever settings are changed. Of them, as many of the first as take about so many
    minutes. `ConfigurationError` names a dataset or a method that there is not.
    """
    for dataset in datasets:
        project.catalogue[dataset]
    names = {parse(canonical(project.methods, method)).name for method in methods}
    left = math.inf if minutes is None else minutes * 60
    kept = []
    for one in planned:
        run = one.job.run
        if (datasets and run.dataset not in datasets) or (seeds and run.seed not in seeds):
            continue
        if names and parse(run.method).name not in names:
            continue
        left -= one.seconds
        if left < 0:
            break
        kept.append(one)
    return kept


def plan_text(planned: Iterable[PlannedRun], stored: Container[RunId] = ()) -> str:
    """How much each step has left: runs, and hours or minutes on a GPU, one run after the other.

    And how many of all are `stored`, of other code, settings or splits than today's, or without what the
    audit would find inside them, or without ranks among all items.
    """
    steps: dict[int, list[PlannedRun]] = {}
    for run in planned:
        steps.setdefault(run.step, []).append(run)
    every = [run for runs in steps.values() for run in runs]
    if not every:
        return "No run is left to train."
    lines = [f"step {number}: {_summary_text(runs)}" for number, runs in sorted(steps.items())]
    older = sum(run.job.run in stored for run in every)
    there = (
        f"; {older} of them are stored, but outdated, not measured or without exact metrics, and "
        f"{len(every) - older} are not stored"
    )
    return "\n".join([*lines, f"all: {_summary_text(every)}{there if older else ''}"])


def is_as_named(summary: Mapping[str, Any], methods: Methods, protocols: Mapping[str, Protocol]) -> bool:
    """Whether a run has the settings, and followed the protocol, that its name stands for."""
    try:
        settings, _, _ = resolve(methods, summary["method"], summary["paper"], summary["dataset"])
        protocol = protocol_named(protocols, summary["protocol"]["name"]).as_dict()
    except ConfigurationError:
        # The method, a setting or the protocol does not exist any more.
        return False
    wanted, found = (settings, protocol), (summary["settings"], summary["protocol"])
    return canonical_json(wanted) == canonical_json(found)


def _runs(project: Project, step: Mapping[str, Any]) -> list[RunId]:
    """The runs that a step asks for."""
    return _of_step(project, step, runs_for_targets(project, step["targets"]))


def _ranked(project: Project, step: Mapping[str, Any]) -> list[RunId]:
    """Those runs of a step that a table, figure or verdict reads, and not what looks at the leak alone."""
    every = (target for name in step["targets"] for target in project.group(name))
    shown = [target for target in every if project.layouts[target.layout].selection not in _OF_THE_LEAK]
    return _of_step(project, step, [run for target in shown for run in target.runs])


def _of_step(project: Project, step: Mapping[str, Any], runs: Iterable[RunId]) -> list[RunId]:
    """Runs on the datasets of a step; where it names protocols, those under `clean` under these instead.

    Datasets without times have none under a protocol that splits at one time.
    """
    datasets, protocols = step.get("datasets"), step.get("protocols")
    kept = [run for run in runs if datasets is None or run.dataset in datasets]
    if protocols is None:
        return [run for run in kept if short_name(run.protocol) not in _further_protocols(project)]
    clean = dict.fromkeys(run for run in kept if run.protocol == _CLEAN)
    return [
        replace(run, protocol=protocol.name)
        for protocol in map(project.protocol, protocols)
        for run in clean
        if why_not_at_one_time(project.catalogue[run.dataset], protocol) is None
    ]


def _further_protocols(project: Project) -> set[str]:
    """The protocols that tables have a column of where there are runs, and that steps ask for by name."""
    return {*project.compared_protocols}.difference(BOTH)


def _shown(stored: Mapping[RunId, Mapping[str, Any]], project: Project) -> set[RunId]:
    """Those of stored runs that tables show: of any code, but not of other settings or another protocol."""
    return {run for run, said in stored.items() if is_as_named(said, project.methods, project.protocols)}


def _current(stored: Mapping[RunId, Mapping[str, Any]], project: Project) -> set[RunId]:
    """Those of stored runs that are current: of the project's code, settings and split."""
    matcher = RunMatcher()
    return {run for run, said in stored.items() if not any(matcher.differences(project.spec(run), said))}


def _unmeasured(
    project: Project,
    step: Mapping[str, Any],
    stored: Mapping[RunId, Mapping[str, Any]],
    measured: Mapping[str, Collection[RunId]],
) -> set[RunId]:
    """Stored runs inside whose models a table of a step looks, and nobody did. What diverged has no model."""
    found: set[RunId] = set()
    for target in (target for name in step["targets"] for target in project.group(name)):
        layout = project.layouts[target.layout]
        if layout.of_audit and "states" in layout.needs:
            found |= {*target.runs}.intersection(stored).difference(measured.get(layout.name, ()))
    return {run for run in found if DIVERGED not in stored[run]}


def _summary_text(runs: Sequence[PlannedRun]) -> str:
    minutes = sum(run.seconds for run in runs) / 60
    return f"{len(runs)} runs, about {minutes:.0f} minutes on one GPU, one after the other"
