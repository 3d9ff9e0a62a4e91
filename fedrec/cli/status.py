"""`fedrec status`: the state of runs, read from the files of the results while they are trained."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_methods, add_project, is_list, methods_of, project_of
from fedrec.errors import ConfigurationError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.config.methods import Methods
    from fedrec.plan.run_list import ListedRun

_CLEARED = "\033[H\033[2J"
"""Clears a terminal."""


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "status", _status, "status --watch")
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="tables, figures, pages or papers, or a run list (.jsonl) as in `fedrec train-list` (default: "
        "the targets for which the workflow was last started)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON, for scripts")
    parser.add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=5.0,
        metavar="SECONDS",
        help="print again every SECONDS (%(const)s if not given) until every run is done or failed",
    )
    add_methods(parser)
    add_project(parser)


def _status(parsed: argparse.Namespace) -> None:
    """Show which runs are done, running, failed, lost or waiting, and estimate the time left."""
    from fedrec.plan.state import DONE, FAILED, forecast_of, states_of
    from fedrec.plan.told import states_as_json, told_states

    if parsed.watch is not None and not parsed.watch > 0:
        raise ConfigurationError(
            f"--watch {parsed.watch:g}: give a number of seconds above 0, for example 5."
        )
    runs, methods, since = _asked(parsed)
    while True:
        states = states_of(runs, methods, since, needs_models=not is_list(parsed.targets))
        forecast = forecast_of(states)
        if parsed.json:
            text = json.dumps(states_as_json(states, forecast), indent=2)
        else:
            text = told_states(states, forecast)
        cleared = _CLEARED if parsed.watch is not None and sys.stdout.isatty() else ""
        print(f"{cleared}{text}", flush=True)
        if parsed.watch is None or all(state.kind in (DONE, FAILED) for state in states):
            return
        time.sleep(parsed.watch)


def _asked(parsed: argparse.Namespace) -> "tuple[list[ListedRun], Methods, float | None]":
    """The runs that are asked for, the methods' settings, and since when they are, where that is known."""
    from fedrec.plan.run_list import listed_runs

    if not parsed.targets:
        return _of_the_workflow(parsed)
    if not is_list(parsed.targets):
        return _planned(parsed, parsed.targets)
    methods = methods_of(parsed)
    return listed_runs(Path(parsed.targets[0]), methods), methods, None


def _of_the_workflow(
    parsed: argparse.Namespace,
) -> "tuple[list[ListedRun], Methods, float | None]":
    """What the workflow noted when it last began; where it never did, all that it would be asked for."""
    from fedrec.config.configuration import read_configuration
    from fedrec.config.methods import load_methods
    from fedrec.plan.run_list import ASKED, listed_runs

    said = read_configuration([parsed.project, *parsed.configfile]).content
    noted = Path(str(said.get("results", "results")), ASKED)
    if not noted.is_file():
        return _planned(parsed, ["all"])
    found = said.get("found_file", parsed.found)
    methods = load_methods(Path(said.get("method_file", parsed.methods)), found and Path(found))
    return listed_runs(noted, methods), methods, noted.stat().st_mtime


def _planned(
    parsed: argparse.Namespace, targets: list[str]
) -> "tuple[list[ListedRun], Methods, float | None]":
    from fedrec.plan.asked import asking_for, runs_asked, validate_targets

    project = project_of(parsed)
    validate_targets(project, targets)
    project = asking_for(project, targets)
    runs = [project.job(run).listed(project.results) for run in runs_asked(project, targets)]
    return runs, project.methods, None
