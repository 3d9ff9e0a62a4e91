"""`fedrec build`: one table, figure or page, from finished runs."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_project, project_of
from fedrec.errors import ConfigurationError, ResultError, first_lines

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.plan.project import Project
    from fedrec.plan.targets import Target

_MISSING_SHOWN = 3


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "build", _build, "build pfedclr_table1")
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="a table, figure or page: pfedclr_table1, verdicts, ml-100k_comparison, report. `fedrec "
        "artefacts` lists those of papers",
    )
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="the target's plan, from results/plan (default: plan from the configuration)",
    )
    add_project(parser)


def _build(parsed: argparse.Namespace) -> None:
    """Build one table, figure or page from finished runs."""
    from fedrec.plan.target_names import with_attacked_runs
    from fedrec.reporting.build import build

    project = with_attacked_runs(project_of(parsed), [parsed.target])
    target = project.target(parsed.target) if parsed.plan is None else _planned(parsed)
    _check_inputs(target, project)
    _check_runs(target, project)
    build(target, project)


def _planned(parsed: argparse.Namespace) -> "Target":
    from fedrec.plan.targets import Target

    try:
        target = Target.from_json(parsed.plan.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{parsed.plan}: no such file. Omit --plan to plan from the configuration."
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{parsed.plan}: not the plan of a target: {error}. Delete the file, and Snakemake writes it "
            "again; or omit --plan."
        ) from None
    if target.name != parsed.target:
        raise ConfigurationError(
            f"{parsed.plan}: is the plan of {target.name}, not of {parsed.target}. Give the plan of "
            f"{parsed.target}."
        )
    return target


def _check_inputs(target: "Target", project: "Project") -> None:
    missing = [file for file in target.inputs if not (project.results / file).is_file()]
    if missing:
        shown = ", ".join(first_lines(missing, _MISSING_SHOWN, indent=""))
        raise ResultError(
            f"{target.name}: {len(missing)} of its {len(target.inputs)} input files are missing in "
            f"{project.results}: {shown}. Build them with: snakemake --cores 2 "
            f"{project.snakemake_target(target)}"
        )


def _check_runs(target: "Target", project: "Project") -> None:
    """Raise `ResultError` if a run is not the planned one, or its run.json is damaged.

    Snakemake accepts files that it did not make, and does not read those that it made.
    """
    from fedrec.plan.run_matching import RunMatcher

    matcher = RunMatcher()
    matches = {run: matcher.match(project.spec(run)) for run in target.runs}
    outdated = [run for run, match in matches.items() if match.differences or match.damage]
    if outdated:
        first = outdated[0]
        raise ResultError(
            f"{target.name}: {len(outdated)} of its {len(target.runs)} runs do not match the plan, for "
            f"example {project.results / first.folder}: {matches[first].reason} Train them again with: "
            f"fedrec run --cores 2 {project.snakemake_target(target)}"
        )
