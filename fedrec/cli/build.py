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
    parser = add_command(commands, "build", _build)
    parser.add_argument(
        "target", help="for example pfedclr_table1, verdicts, ml-100k_comparison or report; see fedrec papers"
    )
    parser.add_argument(
        "--plan",
        type=Path,
        metavar="FILE",
        help="the plan to build by, as results/plan holds it (default: planned from the configuration)",
    )
    add_project(parser)


def _build(parsed: argparse.Namespace) -> None:
    """Build a table, figure or page from its finished runs."""
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
        raise ConfigurationError(f"{parsed.plan}: no such file. Leave --plan out to plan anew.") from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f"{parsed.plan}: this is not the plan of a target: {error}. Delete it and let Snakemake write it "
            "again, or leave --plan out to plan anew."
        ) from None
    if target.name != parsed.target:
        raise ConfigurationError(f"{parsed.plan}: this is the plan of {target.name}, not of {parsed.target}.")
    return target


def _check_inputs(target: "Target", project: "Project") -> None:
    missing = [file for file in target.inputs if not (project.results / file).is_file()]
    if missing:
        shown = ", ".join(first_lines(missing, _MISSING_SHOWN, indent=""))
        raise ResultError(
            f"{target.name}: {len(missing)} of the {len(target.inputs)} files it is made from are missing in "
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
            f"{target.name}: {len(outdated)} of its {len(target.runs)} runs are not those of the plan. "
            f"{project.results / first.folder}: {matches[first].reason} Train outdated runs again with: "
            f"fedrec run --cores 2 {project.snakemake_target(target)}"
        )
