"""`fedrec plan` and `fedrec train-list`: write run lists, and train them on any machine."""

import argparse
import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import (
    add_command,
    add_methods,
    add_no_model,
    add_project,
    add_strict,
    methods_of,
    project_of,
)
from fedrec.errors import ConfigurationError, ResultError, StoppedError
from fedrec.workers.order import ORDERS_OF_WORK

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from fedrec.cli.options import Commands
    from fedrec.plan.project import RunJob
    from fedrec.plan.run_list import ListedRun
    from fedrec.plan.train_request import TrainRequest
    from fedrec.workers.pool import Command, WorkerPool
    from fedrec.workers.process import Worker

_RUNS_PER_GPU = 4
"""Runs per GPU: while one waits for the CPU, another one computes."""


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "plan", _plan, "plan pfedclr_table1 > runs.jsonl")
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="tables, figures, pages, papers or files of runs, as in Snakemake: all, pfedclr_table1",
    )
    parser.add_argument("--include-finished", action="store_true", help="list finished runs, too")
    add_project(parser)

    parser = add_command(commands, "train-list", _work, "train-list runs.jsonl --jobs 4")
    parser.add_argument("list", type=Path, metavar="FILE", help="a run list that `fedrec plan` wrote")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help=f"runs to train at the same time (default: one per CPU core, or {_RUNS_PER_GPU} per GPU). If "
        "they do not fit into memory together, fedrec trains fewer at a time and retries those that "
        "failed",
    )
    parser.add_argument(
        "--order",
        choices=ORDERS_OF_WORK,
        default=ORDERS_OF_WORK[0],
        help="longest first finishes the list soonest; shortest first finishes the most runs in limited "
        "time; listed keeps the order of the list (default: %(default)s)",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="train a run again if its folder holds a different run (other code, settings or split) or a "
        "damaged one",
    )
    add_no_model(parser)
    add_strict(parser)
    add_methods(parser)


def _plan(parsed: argparse.Namespace) -> None:
    """Print the run list of targets for `fedrec train-list`, without finished runs."""
    from fedrec.plan.run_list import list_text
    from fedrec.plan.run_matching import unfinished
    from fedrec.plan.target_names import runs_for_targets, validate_targets, with_attacked_runs

    project = project_of(parsed)
    validate_targets(project, parsed.targets)
    project = with_attacked_runs(project, parsed.targets)
    runs = runs_for_targets(project, parsed.targets)
    if not parsed.include_finished:
        runs = unfinished(project, runs)
    jobs = [project.job(run) for run in runs]
    print(list_text(job.listed(project.results) for job in jobs), end="")
    print(listed_arguments(jobs, project.results), file=sys.stderr)


def listed_arguments(jobs: "Sequence[RunJob]", results: Path) -> str:
    """Count listed runs and splits, and give the command that makes missing splits.

    By force: Snakemake accepts a split that it did not make, whichever protocol it follows.
    """
    from fedrec.plan.run_matching import RunMatcher

    matcher = RunMatcher()
    splits = {spec.split: matcher.has_split(spec) for spec in (job.spec(results) for job in jobs)}
    missing = [split for split, is_here in splits.items() if not is_here]
    todo = (
        f" {len(missing)} of these splits are missing or outdated. Make them with: snakemake --cores 2 "
        f"--force {_braced(missing)}"
        if missing
        else ""
    )
    return f"{len(jobs)} runs on {len(splits)} splits.{todo}"


def _braced(splits: "Sequence[Path]") -> str:
    """The splits for a shell, grouped by dataset: d/{clean,published}/split.parquet."""
    protocols: dict[tuple[Path, str], list[str]] = {}
    for split in splits:
        protocols.setdefault((split.parents[1], split.name), []).append(shlex.quote(split.parent.name))
    return " ".join(
        f"{shlex.quote(str(data))}/{'{' + ','.join(names) + '}' if len(names) > 1 else names[0]}/{file}"
        for (data, file), names in protocols.items()
    )


def _work(parsed: argparse.Namespace) -> None:
    """Train the runs of a run list, several at the same time."""
    from fedrec.plan.run_list import read_list, spec_of
    from fedrec.plan.run_matching import RunMatcher
    from fedrec.runs.stopping import stoppable
    from fedrec.runs.training_groups import group_by_training
    from fedrec.workers.gpu_sharing import shared_gpus
    from fedrec.workers.pool import WorkerPool

    methods = methods_of(parsed)
    runs = read_list(parsed.list, methods)
    matcher, needs_model = RunMatcher(), not parsed.no_model
    done = {run.out for run in runs if matcher.is_current(spec_of(run, methods, needs_model=needs_model))}
    jobs = _jobs(parsed.jobs)
    tasks = [_command(group, parsed, done) for group in group_by_training(runs)]
    with stoppable() as stop, shared_gpus(jobs) as sharing:
        pool = WorkerPool(tasks, jobs, lambda: _worker(jobs, sharing), parsed.order)
        try:
            pool.work()
        except KeyboardInterrupt:
            failed = f" {_failed(pool.failures, len(runs))}" if pool.failures else ""
            raise StoppedError(_stopped(pool, len(runs)) + failed, stop.status) from None
    if pool.failures:
        raise ResultError(_failed(pool.failures, len(runs)))
    if pool.left:
        raise ResultError(
            f"{pool.left} of {len(runs)} runs are not trained, because of the fedrec error above. Type the "
            "same command again to train them."
        )
    print(f"Finished all {len(runs)} runs of {parsed.list}.")


def _command(runs: "Sequence[ListedRun]", parsed: argparse.Namespace, done: "Collection[Path]") -> "Command":
    """The command that trains runs with a shared training; if it fails, its members train one by one.

    Runs with folders in `done` count as no time.
    """
    from fedrec.plan.runs import log_of
    from fedrec.workers.pool import Command

    members = tuple(
        Command(
            str(run.out),
            _arguments(run.request, parsed),
            run.kind,
            0.0 if run.out in done else run.seconds,
            log_of(run.out),
        )
        for run in runs
    )
    if len(members) == 1:
        return members[0]
    first = replace(runs[0].request, also={run.request.protocol: run.out for run in runs[1:]})
    seconds = max(member.seconds for member in members)
    return replace(
        members[0], arguments=_arguments(first, parsed), seconds=seconds, log=None, members=members
    )


def _arguments(request: "TrainRequest", parsed: argparse.Namespace) -> tuple[str, ...]:
    """The arguments of `fedrec` that train a listed run. With records, --no-model does not apply."""
    from fedrec.plan.runs import NEVER

    model = NEVER if parsed.no_model and not request.record else request.model
    request = replace(request, replace=parsed.replace, model=model, strict=parsed.strict)
    found_option = () if parsed.found is None else (f"--found={parsed.found}",)
    return (*request.arguments(), f"--methods={parsed.methods}", *found_option)


def _stopped(pool: "WorkerPool", runs: int) -> str:
    """The progress of a stopped list, and the estimated time of the rest, as text."""
    from fedrec.progress import span_text

    pace = "" if pool.seconds_left is None else f", about {span_text(pool.seconds_left)} by the pace so far"
    return (
        f"{runs - pool.left} of {runs} runs have ended, {pool.left} left{pace}. Type the same command "
        "again to continue from the checkpoints."
    )


def _failed(failures: "Mapping[str, str]", runs: int) -> str:
    """The failed runs with reasons, as text."""
    reasons = "\n".join(f"  {name}: {reason}" for name, reason in sorted(failures.items()))
    return f"{len(failures)} of {runs} runs failed:\n{reasons}"


def _jobs(requested: int | None) -> int:
    """The number of runs to train at once."""
    if requested is not None:
        if requested < 1:
            raise ConfigurationError(f"--jobs {requested}: give 1 or more.")
        return requested
    # Imported here: with --jobs, torch is not needed.
    from fedrec.runs.device import gpus
    from fedrec.runs.machine import usable_cores

    return min(usable_cores(), _RUNS_PER_GPU * gpus()) if gpus() else usable_cores()


def _worker(jobs: int, sharing: "Mapping[str, str]") -> "Worker":
    """Start a worker whose torch has an equal share of the cores, unless OMP_NUM_THREADS is set."""
    from fedrec.runs.machine import usable_cores
    from fedrec.workers.process import WORKER_COMMAND, Worker

    threads = {"OMP_NUM_THREADS": str(max(1, usable_cores() // jobs))}
    return Worker(WORKER_COMMAND, {**threads, **os.environ, **sharing})
