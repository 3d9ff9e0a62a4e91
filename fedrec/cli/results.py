"""`fedrec results`: move finished runs between machines as one archive."""

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedrec.cli.options import COMMAND, add_command, add_methods, add_project, is_list, methods_of, project_of
from fedrec.errors import ResultError, first_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from fedrec.cli.options import Commands
    from fedrec.config.methods import Methods
    from fedrec.plan.run_matching import RunSpec

_STREAM = "-"
"""The name that means standard input or output instead of a file."""
_MOST_LISTED = 20


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "results", _results, "results export pfedclr_table1 --out runs.tar")
    parts = parser.add_subparsers(required=True, metavar=COMMAND)

    part = add_command(parts, "export", _export, "results export pfedclr_table1 --out runs.tar")
    part.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="tables, figures, pages, papers or files of runs, as in Snakemake; or a run list (.jsonl), as "
        "in `fedrec train-list` (default: every finished run)",
    )
    part.add_argument(
        "--out", required=True, metavar="FILE", help="the archive to write; - is standard output"
    )
    part.add_argument(
        "--method", action="append", default=[], help="export only this method; may be repeated"
    )
    part.add_argument(
        "--dataset", action="append", default=[], help="export only this dataset; may be repeated"
    )
    add_methods(part)
    add_project(part)

    part = add_command(parts, "import", _import, "results import runs.tar")
    part.add_argument(
        "archive", metavar="FILE", help="an archive of `fedrec results export`; - is standard input"
    )
    part.add_argument(
        "--replace", action="store_true", help="replace runs here that differ from those of the archive"
    )
    add_project(part)


def _results(_parsed: argparse.Namespace) -> None:
    """Move finished runs from one machine to another, as one archive."""


def _export(parsed: argparse.Namespace) -> None:
    """Write finished runs, with their models, to an archive."""
    from fedrec.runs.exporting import export_runs

    chosen, left_out = _listed_runs(parsed) if is_list(parsed.targets) else _planned_runs(parsed)
    if not chosen:
        raise ResultError(
            "no run to export: none of these runs is finished here. `fedrec run` trains the runs of targets."
            f"{_outcome_text(left_out)}"
        )
    with _archive_stream(parsed.out) as stream:
        size = export_runs(chosen, stream)
    rest = f"; {len(left_out)} runs left out:{_outcome_text(left_out)}" if left_out else "."
    print(f"Wrote {parsed.out}: {len(chosen)} runs, {size / 1e6:.1f} MB{rest}", file=sys.stderr)


def _import(parsed: argparse.Namespace) -> None:
    """Import the runs of an archive whose code, settings and split match the plan here."""
    from fedrec.runs.importing import import_runs

    project = project_of(parsed)
    with _input_stream(parsed.archive) as stream:
        done = import_runs(project, stream, parsed.archive, replace=parsed.replace)
    every = len(done.imported) + len(done.unchanged) + len(done.refused)
    print(
        f"{parsed.archive}: imported {len(done.imported)} of {every} runs; {len(done.unchanged)} were here "
        "already."
    )
    if done.refused:
        raise ResultError(
            f"{len(done.refused)} of {every} runs were not imported:{_outcome_text(done.refused)}"
        )


@contextmanager
def _archive_stream(out: str) -> "Iterator[IO[bytes]]":
    """Open the output of an archive: a file, written atomically, or a stream."""
    from fedrec.files.atomic import as_storage_error, atomic

    path = Path(out)
    if out == _STREAM:
        with as_storage_error(Path("standard output")):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
    elif path.exists() and not (path.is_file() or path.is_dir()):
        # A pipe or a device: write into it instead of replacing it by a file.
        with as_storage_error(path), path.open("wb") as stream:
            yield stream
    else:
        with atomic(path) as temporary, temporary.open("wb") as stream:
            yield stream


@contextmanager
def _input_stream(archive: str) -> "Iterator[IO[bytes]]":
    if archive == _STREAM:
        yield sys.stdin.buffer
        return
    path = Path(archive)
    if not path.exists():
        raise ResultError(f"{path}: no such file. Write one with: fedrec results export TARGET --out {path}")
    with path.open("rb") as stream:
        yield stream


def _planned_runs(parsed: argparse.Namespace) -> "tuple[dict[str, Path], dict[str, str]]":
    """The folders of the chosen runs of a plan that are current, and the reasons to leave out others."""
    from fedrec.plan.target_names import runs_for_targets, runs_in_results, validate_targets

    project = project_of(parsed)
    nameless: dict[str, str] = {}
    if parsed.targets:
        validate_targets(project, parsed.targets)
        runs = runs_for_targets(project, parsed.targets)
    else:
        runs, nameless = runs_in_results(project)
    for name in parsed.dataset:
        _ = project.catalogue[name]
    is_chosen = _filter(parsed, project.methods)
    wanted = sorted({run for run in runs if is_chosen(run.method, run.dataset)})
    chosen, left_out = _current({run.folder: project.spec(run) for run in wanted})
    return chosen, nameless | left_out


def _listed_runs(parsed: argparse.Namespace) -> "tuple[dict[str, Path], dict[str, str]]":
    """The same for the runs of a list. This needs only the packages of training."""
    from fedrec.plan.run_list import listed_runs, spec_of
    from fedrec.plan.runs import below_results

    methods = methods_of(parsed)
    is_chosen = _filter(parsed, methods)
    specs: dict[str, RunSpec] = {}
    nameless: dict[str, str] = {}
    for run in listed_runs(Path(parsed.targets[0]), methods):
        folder = below_results(run.out)
        if not is_chosen(run.request.method, run.request.dataset):
            continue
        if folder is None:
            nameless[str(run.out)] = "its folder is not of the form runs/PAPER/DATASET/PROTOCOL/METHOD/seedN."
        else:
            specs[folder.as_posix()] = spec_of(run, methods, needs_model=True)
    chosen, left_out = _current(specs)
    return chosen, nameless | left_out


def _current(specs: "Mapping[str, RunSpec]") -> "tuple[dict[str, Path], dict[str, str]]":
    """The folders of the runs that are current, and for every other run the reason why it is not."""
    from fedrec.plan.run_matching import RunMatcher

    matcher = RunMatcher()
    reasons = {folder: matcher.match(spec).reason for folder, spec in specs.items()}
    chosen = {folder: spec.folder for folder, spec in specs.items() if not reasons[folder]}
    return chosen, {folder: reason for folder, reason in reasons.items() if reason}


def _filter(parsed: argparse.Namespace, methods: "Methods") -> "Callable[[str, str], bool]":
    """Return a function that decides if --method and --dataset accept a run."""
    from fedrec.config.methods import canonical
    from fedrec.config.names import parse

    wanted = {canonical(methods, name) for name in parsed.method}

    def is_wanted(method: str, dataset: str) -> bool:
        spelled = canonical(methods, method)
        of_method = not wanted or not wanted.isdisjoint((spelled, parse(spelled).name))
        return of_method and (not parsed.dataset or dataset in parsed.dataset)

    return is_wanted


def _outcome_text(reasons: "Mapping[str, str]") -> str:
    """The first runs with their reasons, one per line."""
    lines = [f"  {folder}: {why}" for folder, why in reasons.items()]
    return "".join(f"\n{line}" for line in first_lines(lines, _MOST_LISTED))
