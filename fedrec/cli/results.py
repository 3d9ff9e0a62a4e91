"""`fedrec results`: finished runs as one archive, written here and taken in elsewhere."""

import argparse
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from fedrec.cli.options import add_command, add_project, project_of
from fedrec.errors import ResultError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from fedrec.cli.options import Commands
    from fedrec.plan.project import Project
    from fedrec.plan.runs import RunId

_STREAM = "-"
"""Stands for standard input or output, where a file is named."""
_MOST_TOLD = 20


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "results", _results)
    parts = parser.add_subparsers(required=True, metavar="WHAT")

    part = add_command(parts, "export", _export)
    part.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="tables, figures, pages, papers, or files of runs, as for Snakemake (default: every run)",
    )
    part.add_argument(
        "--out", required=True, metavar="FILE", help="archive to write, or - for standard output"
    )
    part.add_argument("--method", action="append", default=[], help="of these methods alone, by any settings")
    part.add_argument("--dataset", action="append", default=[], help="on these datasets alone")
    add_project(part)

    part = add_command(parts, "import", _import)
    part.add_argument("archive", metavar="FILE", help="what `export` wrote, or - for standard input")
    part.add_argument(
        "--replace", action="store_true", help="let a run give way that is there already and differs"
    )
    add_project(part)


def _results(_parsed: argparse.Namespace) -> None:
    """Carry finished runs from one machine to another, as one archive."""


def _export(parsed: argparse.Namespace) -> None:
    """Write finished runs, with their models, as one archive."""
    from fedrec.runs.travel import export_runs, exportable

    project = project_of(parsed)
    runs, left_out = _asked(parsed, project)
    chosen, others = exportable(project, runs)
    left_out |= others
    if not chosen:
        raise ResultError(f"none of the runs asked for is finished here.{_told(left_out)}")
    with _written(parsed.out) as stream:
        size = export_runs(project, chosen, stream)
    rest = f"; {len(left_out)} left out:{_told(left_out)}" if left_out else "."
    print(f"{parsed.out}: {len(chosen)} runs, {size / 1e6:.1f} MB{rest}", file=sys.stderr)


def _import(parsed: argparse.Namespace) -> None:
    """Take the runs of an archive that are those of the plan here: same code, settings and split."""
    from fedrec.runs.travel import import_runs

    project = project_of(parsed)
    with _opened(parsed.archive) as stream:
        done = import_runs(project, stream, parsed.archive, replace=parsed.replace)
    every = len(done.taken) + len(done.same) + len(done.refused)
    print(
        f"{parsed.archive}: of {every} runs {len(done.taken)} were taken, {len(done.same)} were here before."
    )
    if done.refused:
        raise ResultError(f"{len(done.refused)} of {every} runs were refused:{_told(done.refused)}")


@contextmanager
def _written(out: str) -> "Iterator[IO[bytes]]":
    """What an archive is written to: a file, whole or not at all, or a stream."""
    from fedrec.files.atomic import as_storage_error, atomic

    path = Path(out)
    if out == _STREAM:
        with as_storage_error(Path("standard output")):
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
    elif path.exists() and not (path.is_file() or path.is_dir()):
        # A pipe or a device, which a file is not to take the place of.
        with as_storage_error(path), path.open("wb") as stream:
            yield stream
    else:
        with atomic(path) as temporary, temporary.open("wb") as stream:
            yield stream


@contextmanager
def _opened(archive: str) -> "Iterator[IO[bytes]]":
    if archive == _STREAM:
        yield sys.stdin.buffer
        return
    path = Path(archive)
    if not path.exists():
        raise ResultError(f"{path}: no such file. `fedrec results export TARGET --out {path}` writes one.")
    with path.open("rb") as stream:
        yield stream


def _asked(parsed: argparse.Namespace, project: "Project") -> "tuple[list[RunId], dict[str, str]]":
    """The runs that are asked for, and why others that are there cannot be."""
    from fedrec.config.methods import canonical
    from fedrec.config.names import parse
    from fedrec.plan.asked import check_asked, runs_asked
    from fedrec.runs.travel import runs_there

    methods = {canonical(project.methods, name) for name in parsed.method}
    datasets = {project.catalogue[name].name for name in parsed.dataset}
    left_out: dict[str, str] = {}
    if parsed.targets:
        check_asked(project, parsed.targets, dict.fromkeys(project.groups))
        runs = runs_asked(project, parsed.targets)
    else:
        runs, left_out = runs_there(project)
    of_methods = [
        run for run in runs if not methods or not methods.isdisjoint((run.method, parse(run.method).name))
    ]
    return [run for run in of_methods if not datasets or run.dataset in datasets], left_out


def _told(reasons: "Mapping[str, str]") -> str:
    """Runs by folder, each with a reason, below each other; the first few."""
    lines = [f"\n  {folder}: {why}" for folder, why in list(reasons.items())[:_MOST_TOLD]]
    more = len(reasons) - len(lines)
    return "".join([*lines, f"\n  ... and {more} more" if more else ""])
