"""`fedrec reference`: finished runs packed into few files, and everything built from them, untrained."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_project, add_store, project_of
from fedrec.cli.work import listed_arguments
from fedrec.config.reference import BUILT_REFERENCE, REFERENCE_CONFIGURATION
from fedrec.errors import ConfigurationError, ResultError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

    from fedrec.cli.options import Commands
    from fedrec.plan.project import Project
    from fedrec.plan.runs import RunId
    from fedrec.runs.store import Changes, PackedRun, RunStore

_DONE = {"added": "added", "replaced": "replaced", "same": "same", "rejected": "kept"}
"""The fields of `Changes`, and the word printed for each."""


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "reference", _reference)
    parts = parser.add_subparsers(required=True, metavar="WHAT")

    part = add_command(parts, "pack", _pack)
    part.add_argument("results", type=Path, help="a folder of results with finished runs")
    part.add_argument("--store", type=Path, required=True, help="folder to write, or to add to")
    part.add_argument("--audit", action="store_true", help="look inside models, too: at draws and uploads")
    part.add_argument("--device", default="cpu", help="where models are looked into (default: %(default)s)")

    part = add_command(parts, "add", _add)
    part.add_argument("sources", nargs="+", type=Path, help="folders of results, or stores that `pack` wrote")
    add_store(part)
    add_project(part)

    part = add_command(parts, "keep", _keep)
    part.add_argument("targets", nargs="+", help="figures of the inside of models, searches; built already")
    add_store(part)
    add_project(part)

    part = add_command(parts, "show", _show)
    add_store(part)
    add_project(part)

    part = add_command(parts, "plan", _plan)
    part.add_argument("--minutes", type=float, help="as many of the first runs as take about so long")
    part.add_argument("--dataset", nargs="+", default=[], help="runs on these alone")
    part.add_argument(
        "--method", nargs="+", default=[], help="runs of these alone, with their plug-in and any settings"
    )
    part.add_argument("--seed", nargs="+", type=int, default=[], help="runs with these alone")
    part.add_argument(
        "--gaps",
        action="store_true",
        help="leave out what is stored, if only of older code: what is left has a dash in tables, or a model "
        "that nobody looked into",
    )
    part.add_argument(
        "--exact",
        action="store_true",
        help="list what tables, figures and verdicts show of stored runs without ranks among all items, too",
    )
    add_store(part)
    add_project(part)

    part = add_command(parts, "build", _build)
    part.add_argument(
        "targets",
        nargs="*",
        help="these alone: tables, figures, papers, as in fedrec papers (default: everything, and the page)",
    )
    part.add_argument("--out", default=str(BUILT_REFERENCE), help="folder to write (default: %(default)s)")
    part.add_argument("--jobs", type=int, default=2, help="processes (default: %(default)s)")
    part.add_argument(
        "--publish", action="store_true", help="put tables, figures and the page beside the stored runs, too"
    )
    add_store(part)
    add_project(part)


def _reference(_parsed: argparse.Namespace) -> None:
    """Keep finished runs in few files, and build tables, figures and the page from them without training."""


def _pack(parsed: argparse.Namespace) -> None:
    """Pack the finished runs of a folder of results; needs no more than training does."""
    from fedrec.runs.store import RunStore

    store = RunStore(parsed.store)
    runs = _packed(parsed.results)
    if parsed.audit:
        runs = _looked_into(runs, parsed.results, store, parsed.device)
    _report(store, store.add(runs))
    store.add_data(parsed.results)


def _add(parsed: argparse.Namespace) -> None:
    """Add finished runs to the reference: those that are there give way, unless theirs is the newer code."""
    from fedrec.plan.code_matching import CodeMatcher
    from fedrec.runs.store import RunStore

    trials = _project(parsed).tuning.seeds
    store, matcher = RunStore(parsed.store), CodeMatcher()
    for source in parsed.sources:
        other = RunStore(source)
        brought = list(other.every_run() if RunStore.is_at(source) else _packed(source))
        outdated = {run.name for run in brought if not matcher.is_current_run(run.summary)}
        newer = {
            run.name
            for run in store.every_run()
            if run.name in outdated and matcher.is_current_run(run.summary)
        }
        # A trial chooses settings on validation: nobody reads its ranks among all items.
        runs = [run.without_exact_ranks() if run.id.seed in trials else run for run in brought]
        _report(store, store.add(runs, keeps=newer))
        if RunStore.is_at(source):
            store.add_data_of(other)
        else:
            store.add_data(source)
    undescribed = sorted(set(store.datasets()) - set(store.datasets_with_statistics()))
    if undescribed:
        files = " ".join(f"results/data/{name}/statistics.json" for name in undescribed)
        print(f"Not shown before their statistics are there: snakemake --cores 2 {files}", file=sys.stderr)


def _keep(parsed: argparse.Namespace) -> None:
    """Keep figures of the inside of models, and tables of searches, as they were built."""
    from fedrec.reporting.frozen import freeze

    project = project_of(parsed)
    every = [target for name in parsed.targets for target in project.group(name)]
    fit = [
        target
        for target in every
        if target.form == "search"
        or (target.form == "figure" and "states" in project.layouts[target.layout].needs)
    ]
    others = [target.name for target in every if target not in fit and target.name in parsed.targets]
    if others:
        raise ConfigurationError(f"{others[0]}: is built from stored runs, and need not be kept.")
    kept = freeze(parsed.store, fit, project.results, project.layouts, project.targets.names)
    print(f"Kept: {', '.join(kept)}.")


def _show(parsed: argparse.Namespace) -> None:
    """Say what the reference has: runs by dataset, how many are older than the code or diverged, machines."""
    from collections import defaultdict

    from fedrec.plan.code_matching import CodeMatcher
    from fedrec.plan.reference import is_as_named
    from fedrec.plan.runs import DIVERGED
    from fedrec.progress import span_text

    store, matcher, project = _opened(parsed.store), CodeMatcher(), _project(parsed)
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    every = outdated = 0
    for dataset in store.datasets():
        runs = store.runs_on(dataset).values()
        older = sum(not matcher.is_current_run(run.summary) for run in runs)
        other = sum(not is_as_named(run.summary, project.methods, project.protocols) for run in runs)
        diverged = sum(DIVERGED in run.summary for run in runs)
        exact = sum(run.has_exact_ranks for run in runs)
        protocols = len({run.summary["protocol"]["name"] for run in runs})
        seeds = len({run.summary["seed"] for run in runs})
        every, outdated = every + len(runs), outdated + older
        for run in runs:
            seconds[run.summary["measured"]["device"]].append(run.summary["measured"]["seconds"])
        print(
            f"{dataset}: {len(runs)} runs, {protocols} protocols, {seeds} seeds; "
            f"{older} older than the code; {other} of other settings or protocols, which tables leave out; "
            f"{diverged} diverged; {exact} with ranks among all items"
        )
    print(f"all: {every} runs; {outdated} older than the code")
    for device, spans in sorted(seconds.items()):
        print(f"{len(spans)} runs on {device}, {span_text(sum(spans))} by their own clocks")
    size = sum(path.stat().st_size for path in parsed.store.rglob("*.parquet"))
    print(f"{size / 2**20:.1f} MiB")


def _plan(parsed: argparse.Namespace) -> None:
    """List the runs that the reference lacks, the most valuable first, for `fedrec work`."""
    from fedrec.plan.reference import chosen, plan_text, reference_plan
    from fedrec.plan.run_list import list_text
    from fedrec.progress import span_text
    from fedrec.runs.store import RunStore

    project = _project(parsed)
    stored: dict[RunId, Mapping[str, Any]] = {}
    measured: dict[str, set[RunId]] = {}
    exact: set[RunId] = set()
    for run in RunStore(parsed.store).every_run():
        stored[run.id] = run.summary
        if run.has_exact_ranks:
            exact.add(run.id)
        for what in run.audit:
            measured.setdefault(what, set()).add(run.id)
    planned = reference_plan(
        project, stored, measured, gaps=parsed.gaps, exact=exact if parsed.exact else None
    )
    listed = chosen(
        project,
        planned,
        datasets=parsed.dataset,
        methods=parsed.method,
        seeds=parsed.seed,
        minutes=parsed.minutes,
    )
    lines = (replace(run.job.listed(project.results), seconds=run.seconds) for run in listed)
    print(list_text(lines), end="")
    length = span_text(sum(run.seconds for run in listed))
    words = listed_arguments([run.job for run in listed], project.results)
    print(f"{plan_text(planned, stored)}\nListed, about {length}: {words}", file=sys.stderr)
    for what, why in project.unavailable_to_papers(project.catalogue).items():
        print(f"No runs on {what}, which is not available: {why}", file=sys.stderr)


def _build(parsed: argparse.Namespace) -> None:
    """Build tables, figures and the page from the reference, without training, data or network."""
    from fedrec.config.configuration import read_configuration
    from fedrec.reporting.stored import stored_project

    if parsed.jobs < 1:
        raise ConfigurationError(f"--jobs {parsed.jobs}: give a number from 1.")
    if parsed.publish and parsed.targets:
        raise ConfigurationError(
            f"--publish: beside the runs lies everything that is built from them, not {parsed.targets[0]} "
            "alone. Leave out the names, or --publish."
        )
    store = _opened(parsed.store)
    files = [parsed.project, *(parsed.configfile or [REFERENCE_CONFIGURATION])]
    project = stored_project(read_configuration(files), Path(), store, parsed.out, parsed.targets)
    if project.results.resolve() == parsed.store.resolve():
        raise ConfigurationError(
            f"--out {parsed.out}: the runs are stored there. Name another folder; `--publish` puts what is "
            "read beside the runs."
        )
    if project.results.resolve() == project.training.resolve():
        raise ConfigurationError(
            f"--out {parsed.out}: runs are trained there, and stored ones would take their place. Name "
            "another folder."
        )
    if parsed.targets:
        _build_targets(parsed, project, store)
    else:
        _build_everything(parsed, project, store)


def _build_targets(parsed: argparse.Namespace, project: "Project", store: "RunStore") -> None:
    """Build what was named, and print its files, and those of what it is made of."""
    from fedrec.reporting.stored import build_named, chosen_targets

    chosen = chosen_targets(project, parsed.targets)
    for target in build_named(project, store, chosen.targets, parsed.jobs):
        for file in target.files:
            print(project.results / file)
    for name, why in chosen.left_out.items():
        print(f"Left out: {name}: {why}", file=sys.stderr)


def _build_everything(parsed: argparse.Namespace, project: "Project", store: "RunStore") -> None:
    from fedrec.reporting.publish import publish
    from fedrec.reporting.stored import build_stored

    print("Everything is built: about six minutes on two cores. Names build those alone.", file=sys.stderr)
    names = build_stored(project, store, parsed.jobs)
    if parsed.publish:
        print(f"{len(publish(project.results, parsed.store))} files to be read are in {parsed.store}.")
    print(f"{len(names)} tables, figures and pages are in {parsed.out}; read {parsed.out}/report/report.html")


def _project(parsed: argparse.Namespace) -> "Project":
    """The project of the reference, unless other files are named."""
    parsed.configfile = parsed.configfile or [REFERENCE_CONFIGURATION]
    return project_of(parsed)


def _opened(folder: Path) -> "RunStore":
    from fedrec.runs.store import RunStore

    if not RunStore.is_at(folder):
        raise ResultError(
            f"{folder}: there are no packed runs. `fedrec reference add results` puts some there."
        )
    return RunStore(folder)


def _packed(results: Path) -> "Iterator[PackedRun]":
    """The finished runs below a folder of results; none where there are datasets alone."""
    from fedrec.runs.results import records_below
    from fedrec.runs.store import packed_run

    without_runs = (results / "data").is_dir() and not (results / "runs").exists()
    for record in [] if without_runs else records_below(results / "runs"):
        yield packed_run(record)


def _looked_into(
    runs: "Iterable[PackedRun]", results: Path, store: "RunStore", device: str
) -> "Iterator[PackedRun]":
    """Runs with what the audit finds inside their models; the store knows of those that were looked into."""
    from fedrec.audit.model_measurements import measure_model
    from fedrec.runs.record import RunRecord

    before = {run.name: run for run in store.every_run() if run.audit}
    for run in runs:
        known = before.get(run.name)
        if known is not None and known.summary == run.summary:
            yield run
            continue
        print(f"looks into {run.name}", file=sys.stderr)
        # Opened for this alone, so that no model stays in memory.
        yield replace(run, audit=measure_model(RunRecord(results / run.name, device=device)))


def _report(store: "RunStore", changes: "Changes") -> None:
    """Say what adding runs did; those that gave way, or did not, by name; and what came of trained again."""
    counts = ", ".join(f"{len(getattr(changes, field))} {word}" for field, word in _DONE.items())
    print(f"{store.folder}: {counts}.")
    for field in ("replaced", "rejected"):
        for name in getattr(changes, field):
            print(f"  {_DONE[field]}: {name}{_distance(changes.hr_change, name)}")
    if changes.hr_change:
        others = [apart for apart in changes.hr_change.values() if apart is not None]
        farthest = f"; the others' test HR@10 is up to {max(others):.4f} apart" if others else ""
        same = len(changes.hr_change) - len(others)
        print(f"Of {len(changes.hr_change)} trained again, {same} give every user the same rank{farthest}.")


def _distance(apart: "Mapping[str, float | None]", name: str) -> str:
    if name not in apart:
        return ""
    return ", the same ranks" if apart[name] is None else f", test HR@10 {apart[name]:.4f} apart"
