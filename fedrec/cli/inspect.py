"""Commands that change nothing: `fedrec datasets`, `methods`, `artefacts`, `audit`."""

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.cli.options import (
    COMMAND,
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
    parser = add_command(commands, "datasets", _datasets, "datasets")
    add_catalogue(parser)
    add_raw(parser)
    add_mirror(parser)

    parser = add_command(commands, "methods", _methods, "methods pfedclr")
    parser.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="a method or plug-in, shown with all settings (default: list all)",
    )
    add_methods(parser)

    parser = add_command(commands, "artefacts", _artefacts, "artefacts pfedclr_table1")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="papers, tables or figures (default: all); a single one also shows its runs by split",
    )
    add_project(parser)

    _add_audit(add_command(commands, "audit", _audit, "audit --run my-run"))


def _add_audit(parser: argparse.ArgumentParser) -> None:
    """Add the options for the audit of a run, and the subcommand for a log of draws."""
    parser.set_defaults(parser=parser)
    parser.add_argument("--run", type=Path, metavar="FOLDER", help="the folder of a finished run")
    parser.add_argument(
        "--exposed",
        type=Path,
        metavar="FOLDER",
        help="the same run under the protocol only-pool, where clients may sample held-out items (default: "
        "look beside RUN)",
    )
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="the dataset's folder, with its splits (default: the one among the run's results)",
    )
    _add_forms(parser)
    parts = parser.add_subparsers(metavar=COMMAND)

    part = add_command(
        parts, "draws", _audit_draws, "audit draws negatives.csv --data results/data/demo --protocol clean"
    )
    part.add_argument(
        "log", metavar="FILE", type=Path, help="a csv or parquet file with the columns user, item, round"
    )
    part.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the dataset's folder, with its splits"
    )
    part.add_argument(
        "--protocol", default="clean", help="the split that was trained on (default: %(default)s)"
    )
    part.add_argument(
        "--ids",
        choices=("original", "fedrec"),
        default="original",
        help="the ids in the file: original, those of the dataset's raw file; fedrec, the numbers in the "
        "split (default: %(default)s)",
    )
    part.add_argument(
        "--sampler",
        choices=("any", "uniform"),
        default="any",
        help="how your code samples negatives. uniform: every item with the same probability; any: unknown, "
        "so that users who have not rated an item give its expected count (default: %(default)s)",
    )
    _add_forms(part)


def _add_forms(parser: argparse.ArgumentParser) -> None:
    """Add the options for the output of an audit."""
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the JSON to this file (default: print it)"
    )
    parser.add_argument("--json", action="store_true", help="print no text, only JSON")


def _datasets(parsed: argparse.Namespace) -> None:
    """List the datasets of the catalogue and their availability."""
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
    """List methods and plug-ins: paper, kind, parameters by location, uploads."""
    from fedrec.runs.method_info import all_methods, format_method, format_methods

    methods = methods_of(parsed)
    print(
        format_methods(all_methods(methods)) if parsed.name is None else format_method(methods, parsed.name)
    )


def _artefacts(parsed: argparse.Namespace) -> None:
    """List the papers' tables and figures: built or not, finished and required runs, training time left."""
    from fedrec.config.papers import artefacts_of
    from fedrec.plan.artefact_status import artefact_text, list_artefacts

    project = project_of(parsed)
    artefacts = artefacts_of(project.papers, parsed.names or project.papers)
    if [artefact.target for artefact in artefacts] == parsed.names and len(artefacts) == 1:
        print(artefact_text(project, artefacts[0], os.cpu_count() or 1))
    else:
        print(list_artefacts(project, artefacts))


def _audit(parsed: argparse.Namespace) -> None:
    """Audit a finished run: which held-out items do its negative samples and its uploads reveal?"""
    if parsed.run is None:
        parser: argparse.ArgumentParser = parsed.parser
        parser.error(
            "give a finished run, --run FOLDER, or a log of negative samples: fedrec audit draws FILE"
        )
    from fedrec.audit.run_audit import audit_run, audit_text
    from fedrec.runs.record import RunRecord

    findings = audit_run(RunRecord(parsed.run, parsed.data), parsed.exposed)
    _write_output(parsed, findings, audit_text(findings))


def _audit_draws(parsed: argparse.Namespace) -> None:
    """Audit a log of the negatives that any training code sampled: does it leak held-out items?"""
    from fedrec.audit.drawn_negatives import audit_draw_log, draw_audit_text

    findings = audit_draw_log(
        parsed.log, parsed.data, parsed.protocol, ids=parsed.ids, is_uniform=parsed.sampler == "uniform"
    )
    _write_output(parsed, findings.as_dict(), draw_audit_text(findings))


def _write_output(parsed: argparse.Namespace, findings: dict[str, Any], summary: str) -> None:
    """Print the text of an audit, and print or write its values as JSON."""
    from fedrec.files.atomic import write_text

    text = json.dumps(findings, indent=2) + "\n"
    if parsed.out is not None:
        write_text(parsed.out, text)
    if not parsed.json:
        print(summary)
    if parsed.out is None:
        print(text if parsed.json else f"\n{text}", end="")
