"""`fedrec adopt`: add the settings that finished searches found to the configuration."""

import argparse
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_project, project_of
from fedrec.errors import ConfigurationError, ResultError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fedrec.cli.options import Commands
    from fedrec.plan.project import Project


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "adopt", _adopt, "adopt --skip-unfinished tune_clean")
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="TARGET",
        help="a search, for example tune_fedmf_plgc_ml_100k; tune for all searches, tune_clean for those of "
        "the leaderboard",
    )
    parser.add_argument(
        "--skip-unfinished",
        action="store_true",
        help="adopt the finished searches only (default: fail if one is unfinished)",
    )
    add_project(parser)


def _adopt(parsed: argparse.Namespace) -> None:
    """Write the settings that finished searches found into config/found.yaml, for all later runs."""
    from fedrec.reporting.adoption import adopt, collect

    project = project_of(parsed)
    names = dict.fromkeys(name for word in parsed.targets for name in _searches(project, word))
    collected = collect(project, names)
    unfinished = "".join(f"\n  {name}: {why}" for name, why in collected.lacking.items())
    if collected.lacking and not parsed.skip_unfinished:
        raise ResultError(
            f"{len(collected.lacking)} of {len(names)} searches are not finished, so none was adopted. Train "
            f"their runs, or add --skip-unfinished:{unfinished}"
        )
    adopted = adopt(project, collected)
    for key, why in adopted.stale.items():
        print(f"Removed {key}: {why}")
    print(
        f"{project.configuration['found_file']}: wrote the settings of {len(adopted.found)} of {len(names)} "
        "searches." + (f" Not finished:{unfinished}" if unfinished else "")
    )


def _searches(project: "Project", name: str) -> "Iterable[str]":
    """The searches of a target."""
    if name.startswith("tune") and name in project.groups:
        return project.groups[name]
    if name not in project.tuning.searches:
        raise ConfigurationError(project.no_target(name))
    return [name]
