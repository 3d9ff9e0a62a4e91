"""`fedrec reference`: store finished runs in a few files, and build all results from them."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import COMMAND, add_command, add_project, add_store, project_of
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
"""The outcomes of adding a run."""


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "reference", _reference, "reference build pfedclr_table1")
    parts = parser.add_subparsers(required=True, metavar=COMMAND)

    part = add_command(parts, "pack", _pack, "reference pack results --store packed")
    part.add_argument("results", type=Path, metavar="FOLDER", help="a folder of results with finished runs")
    part.add_argument(
        "--store", type=Path, required=True, metavar="FOLDER", help="the folder to write, or to add to"
    )
    part.add_argument(
        "--audit", action="store_true", help="also measure models: negative samples, uploads, recommendations"
    )
    part.add_argument("--device", default="cpu", help="for --audit: cpu or cuda (default: %(default)s)")

    part = add_command(parts, "add", _add, "reference add results")
    part.add_argument(
        "sources",
        nargs="+",
        type=Path,
        metavar="FOLDER",
        help="folders of results, or folders that `fedrec reference pack` wrote",
    )
    add_store(part)
    add_project(part)

    part = add_command(parts, "freeze", _freeze, "reference freeze pfedclr_fig5")
    part.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="figures that need models, or searches; build them first",
    )
    add_store(part)
    add_project(part)

    part = add_command(parts, "show", _show, "reference show")
    add_store(part)
    add_project(part)

    part = add_command(parts, "plan", _plan, "reference plan --minutes 60 --dataset ml-100k > runs.jsonl")
    part.add_argument("--minutes", type=float, help="list only the first runs, up to this time in total")
    part.add_argument("--dataset", nargs="+", default=[], help="list only runs on these datasets")
    part.add_argument(
        "--method", nargs="+", default=[], help="list only these methods, with any settings: fedmf fedmf+plgc"
    )
    part.add_argument("--seed", nargs="+", type=int, default=[], help="list only runs with these seeds")
    part.add_argument(
        "--missing-only",
        action="store_true",
        help="leave out stored runs of older code: list only runs that tables lack, and stored runs whose "
        "models were not measured",
    )
    part.add_argument(
        "--exact",
        action="store_true",
        help="also list stored runs without exact metrics if tables, figures or verdicts show them",
    )
    add_store(part)
    add_project(part)

    part = add_command(parts, "build", _build, "reference build pfedclr_table1")
    part.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="tables, figures or papers, as in `fedrec artefacts` (default: everything, with the page)",
    )
    part.add_argument(
        "--out",
        default=str(BUILT_REFERENCE),
        metavar="FOLDER",
        help="the folder to write (default: %(default)s)",
    )
    part.add_argument(
        "--jobs", type=int, default=2, metavar="N", help="parallel processes (default: %(default)s)"
    )
    part.add_argument(
        "--publish", action="store_true", help="also copy tables, figures and the page to the stored runs"
    )
    add_store(part)
    add_project(part)


def _reference(_parsed: argparse.Namespace) -> None:
    """Store finished runs in few files; build tables, figures and the page from them without training."""


def _pack(parsed: argparse.Namespace) -> None:
    """Pack the finished runs of a folder of results, on any machine that trains."""
    from fedrec.runs.store import RunStore

    store = RunStore(parsed.store)
    runs = _packed(parsed.results)
    if parsed.audit:
        runs = _measured(runs, parsed.results, store, parsed.device)
    _report(store, store.add(runs))
    store.add_data(parsed.results)


def _add(parsed: argparse.Namespace) -> None:
    """Add finished runs to the reference runs; replace those of older code, never those of newer code."""
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
        # A trial chooses settings on validation: no table reads its exact ranks.
        runs = [run.without_exact_ranks() if run.id.seed in trials else run for run in brought]
        _report(store, store.add(runs, keeps=newer))
        if RunStore.is_at(source):
            store.add_data_of(other)
        else:
            store.add_data(source)
            for folder in store.add_evaluated(source):
                print(f"  other scores: {folder}")
    undescribed = sorted(set(store.datasets()) - set(store.datasets_with_statistics()))
    if undescribed:
        files = " ".join(f"results/data/{name}/statistics.json" for name in undescribed)
        print(
            f"No statistics of {', '.join(undescribed)}, so tables leave these datasets out. Type: "
            f"snakemake --cores 2 {files}",
            file=sys.stderr,
        )


def _freeze(parsed: argparse.Namespace) -> None:
    """Store figures that need models, and tables of searches, as they were built."""
    from fedrec.reporting.frozen import freeze

    project = project_of(parsed)
    targets = [target for name in parsed.targets for target in project.group(name)]
    fit = [
        target
        for target in targets
        if target.form == "search"
        or (target.form == "figure" and "states" in project.layouts[target.layout].needs)
    ]
    others = [target.name for target in targets if target not in fit and target.name in parsed.targets]
    if others:
        raise ConfigurationError(
            f"{others[0]}: is built from stored runs, so it need not be frozen. Leave it out."
        )
    frozen = freeze(parsed.store, fit, project.results, project.layouts, project.targets.names)
    names = ", ".join(target.name for target in fit)
    print(f"Froze {len(fit)} targets: {names}. {parsed.store} now has {len(frozen)} frozen targets.")


def _show(parsed: argparse.Namespace) -> None:
    """Count the reference runs by dataset (outdated, diverged, with exact metrics) and by device."""
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
            f"{older} of older code; {other} with other settings or protocols, which tables leave out; "
            f"{diverged} diverged; {exact} with exact metrics"
        )
    print(f"all: {every} runs; {outdated} of older code")
    for device, spans in sorted(seconds.items()):
        print(f"{len(spans)} runs on {device}, {span_text(sum(spans))} of training time")
    size = sum(path.stat().st_size for path in parsed.store.rglob("*.parquet"))
    print(f"{size / 2**20:.1f} MiB")


def _plan(parsed: argparse.Namespace) -> None:
    """List the runs that the reference lacks, the most valuable first, for `fedrec train-list`."""
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
        project, stored, measured, gaps=parsed.missing_only, exact=exact if parsed.exact else None
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
        print(f"No runs on {what}, which is unavailable: {why}", file=sys.stderr)


def _build(parsed: argparse.Namespace) -> None:
    """Build tables, figures and the page from the reference runs, without training, data or network."""
    from fedrec.config.configuration import read_configuration
    from fedrec.reporting.stored import stored_project

    if parsed.jobs < 1:
        raise ConfigurationError(f"--jobs {parsed.jobs}: give 1 or more.")
    if parsed.publish and parsed.targets:
        raise ConfigurationError(
            f"--publish: copies everything, not {parsed.targets[0]} only. Omit the names of targets, or "
            "--publish."
        )
    store = _opened(parsed.store)
    files = [parsed.project, *(parsed.configfile or [REFERENCE_CONFIGURATION])]
    project = stored_project(read_configuration(files), Path(), store, parsed.out, parsed.targets)
    if project.results.resolve() == parsed.store.resolve():
        raise ConfigurationError(
            f"--out {parsed.out}: holds the stored runs. Give another folder; --publish copies tables, "
            "figures and the page to the stored runs."
        )
    if project.results.resolve() == project.training.resolve():
        raise ConfigurationError(
            f"--out {parsed.out}: holds runs trained here, which stored runs would replace. Give another "
            "folder."
        )
    if parsed.targets:
        _build_targets(parsed, project, store)
    else:
        _build_everything(parsed, project, store)


def _build_targets(parsed: argparse.Namespace, project: "Project", store: "RunStore") -> None:
    """Build the named targets, and print their files and those of the targets they read."""
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

    print(
        "Building everything takes about 6 minutes on 2 cores. `fedrec reference build TARGET` builds one "
        "target.",
        file=sys.stderr,
    )
    names = build_stored(project, store, parsed.jobs)
    if parsed.publish:
        print(f"Copied {len(publish(project.results, parsed.store))} files to {parsed.store}.")
    print(
        f"Wrote {len(names)} tables, figures and pages to {parsed.out}. Open {parsed.out}/report/report.html"
    )


def _project(parsed: argparse.Namespace) -> "Project":
    """The project with the configuration of the reference, or with the files of --configfile."""
    parsed.configfile = parsed.configfile or [REFERENCE_CONFIGURATION]
    return project_of(parsed)


def _opened(folder: Path) -> "RunStore":
    from fedrec.runs.store import RunStore

    if not RunStore.is_at(folder):
        raise ResultError(
            f"{folder}: holds no packed runs. Add runs with: fedrec reference add results --store {folder}"
        )
    return RunStore(folder)


def _packed(results: Path) -> "Iterator[PackedRun]":
    """Yield the finished runs below a folder of results; none if it has only datasets or other scores."""
    from fedrec.plan.evaluated import EVALUATED_FOLDER
    from fedrec.runs.results import records_below
    from fedrec.runs.store import packed_run

    others = [results / "data", results / EVALUATED_FOLDER]
    without_runs = any(folder.is_dir() for folder in others) and not (results / "runs").exists()
    for record in [] if without_runs else records_below(results / "runs"):
        yield packed_run(record)


def _measured(
    runs: "Iterable[PackedRun]", results: Path, store: "RunStore", device: str
) -> "Iterator[PackedRun]":
    """Yield runs with the audit's measurements of their models; skip models that the store has measured."""
    from fedrec.audit.model_measurements import measure_model
    from fedrec.runs.record import RunRecord

    before = {run.name: run for run in store.every_run() if run.audit}
    for run in runs:
        known = before.get(run.name)
        if known is not None and known.summary == run.summary:
            yield run
            continue
        print(f"measuring {run.name}", file=sys.stderr)
        # A new record for each run, so that no model stays in memory.
        yield replace(run, audit=measure_model(RunRecord(results / run.name, device=device)))


def _report(store: "RunStore", changes: "Changes") -> None:
    """Print what adding runs did, and how far retrained runs differ from the stored ones."""
    counts = ", ".join(f"{len(getattr(changes, field))} {word}" for field, word in _DONE.items())
    print(f"{store.folder}: {counts}.")
    for field in ("replaced", "rejected"):
        for name in getattr(changes, field):
            print(f"  {_DONE[field]}: {name}{_distance(changes.hr_change, name)}")
    if changes.hr_change:
        others = [apart for apart in changes.hr_change.values() if apart is not None]
        farthest = f"; the test HR@10 of the others differs by up to {max(others):.4f}" if others else ""
        same = len(changes.hr_change) - len(others)
        print(f"Retrained: {len(changes.hr_change)} runs. {same} give every user the same rank{farthest}.")


def _distance(hr_change: "Mapping[str, float | None]", name: str) -> str:
    if name not in hr_change:
        return ""
    return ", the same ranks" if hr_change[name] is None else f", test HR@10 differs by {hr_change[name]:.4f}"
