"""Commands that look and change nothing: datasets, methods, papers, audit of one run or of a log of draws."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.cli.options import (
    add_catalogue,
    add_command,
    add_methods,
    add_mirror,
    add_project,
    add_raw,
    methods_of,
    project_of,
)

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "datasets", _datasets)
    add_catalogue(parser)
    add_raw(parser)
    add_mirror(parser)

    parser = add_command(commands, "methods", _methods)
    parser.add_argument("name", nargs="?", help="one method or plug-in, with its settings (default: all)")
    add_methods(parser)

    parser = add_command(commands, "papers", _papers)
    parser.add_argument(
        "names",
        nargs="*",
        help="papers, tables or figures (default: all); of one table or figure, more is told",
    )
    add_project(parser)

    _add_audit(add_command(commands, "audit", _audit))


def _add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the options of the audit of a run, and the audit of a log of draws below it."""
    parser.set_defaults(parser=parser)
    parser.add_argument("--run", type=Path, help="the folder of a finished run")
    parser.add_argument(
        "--exposed", type=Path, help="the same run under only-pool (default: beside it, if there)"
    )
    parser.add_argument(
        "--data", type=Path, help="the folder of its dataset's splits (default: of its results)"
    )
    _add_forms(parser)
    parts = parser.add_subparsers(metavar="WHAT")

    part = add_command(parts, "draws", _audit_draws)
    part.add_argument(
        "log", metavar="FILE", type=Path, help="a csv or parquet file: columns user, item, round"
    )
    part.add_argument("--data", type=Path, required=True, help="the dataset's folder, with its splits")
    part.add_argument(
        "--protocol", default="clean", help="the split that the loop trained on (default: %(default)s)"
    )
    part.add_argument(
        "--ids",
        choices=("original", "fedrec"),
        default="original",
        help="ids of the dataset's raw file, or fedrec's own numbers (default: %(default)s)",
    )
    part.add_argument(
        "--sampler",
        choices=("any", "uniform"),
        default="any",
        help="any: expect of an item what users without a row of it draw; uniform: expect as much of all "
        "items (default: %(default)s)",
    )
    _add_forms(part)


def _add_forms(parser: argparse.ArgumentParser) -> None:
    """Add the options that say in which form an audit is printed or written."""
    parser.add_argument("--out", type=Path, help="json file to write (default: print it below the words)")
    parser.add_argument("--json", action="store_true", help="print or write the json alone, without words")


def _datasets(parsed: argparse.Namespace) -> None:
    """List the catalogue and what is available."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.plan.availability import availability, check_mirror

    check_mirror(parsed.mirror)
    for name, dataset in load_catalogue(parsed.catalogue).items():
        state, _, reason = availability(dataset, parsed.raw, parsed.mirror).partition(": ")
        licence = f" Licence: {dataset.licence}." if dataset.licence else ""
        print(f"{name:<16} {state:<14} {dataset.title}.{licence}")
        if reason:
            print(f"{'':<31} {reason}")


def _methods(parsed: argparse.Namespace) -> None:
    """List every method and plug-in: its paper, its kind, where its parameters live, what it uploads."""
    from fedrec.runs.method_info import all_methods, format_method, format_methods

    methods = methods_of(parsed)
    print(
        format_methods(all_methods(methods)) if parsed.name is None else format_method(methods, parsed.name)
    )


def _papers(parsed: argparse.Namespace) -> None:
    """List the papers' tables and figures: what each needs, what is built, what the rest would cost."""
    from fedrec.config.papers import artefacts_of
    from fedrec.plan.artefact_status import artefact_text, list_artefacts

    project = project_of(parsed)
    artefacts = artefacts_of(project.papers, parsed.names or project.papers)
    if [artefact.target for artefact in artefacts] == parsed.names and len(artefacts) == 1:
        print(artefact_text(project, artefacts[0], os.cpu_count() or 1))
    else:
        print(list_artefacts(project, artefacts))


def _audit(parsed: argparse.Namespace) -> None:
    """Audit a finished run: its draws, hits that vanish when items are exposed, what its uploads reveal."""
    if parsed.run is None:
        parser: argparse.ArgumentParser = parsed.parser
        parser.error("name a finished run by --run, or a log of draws: draws FILE")
    from fedrec.audit.run_audit import audit_run, audit_text
    from fedrec.runs.record import RunRecord

    found = audit_run(RunRecord(parsed.run, parsed.data), parsed.exposed)
    _put_out(parsed, found, audit_text(found))


def _audit_draws(parsed: argparse.Namespace) -> None:
    """Audit a log of the negatives that any training loop drew: does it leak held-out items?"""
    from fedrec.audit.drawn_negatives import audit_draw_log, draw_audit_text

    found = audit_draw_log(
        parsed.log, parsed.data, parsed.protocol, ids=parsed.ids, is_uniform=parsed.sampler == "uniform"
    )
    _put_out(parsed, found.as_dict(), draw_audit_text(found))


def _put_out(parsed: argparse.Namespace, found: dict[str, Any], words: str) -> None:
    """Print the words of an audit, and print or write its values, as the options say."""
    from fedrec.files.atomic import write_text

    text = json.dumps(found, indent=2) + "\n"
    if parsed.out is not None:
        write_text(parsed.out, text)
    if not parsed.json:
        print(words)
    if parsed.out is None:
        print(text if parsed.json else f"\n{text}", end="")
