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
"""The code that clears a terminal."""


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
    from fedrec.plan.run_status import DONE, FAILED, estimate_time, run_statuses
    from fedrec.plan.status_text import format_status, status_as_dict

    if parsed.watch is not None and not parsed.watch > 0:
        raise ConfigurationError(
            f"--watch {parsed.watch:g}: give a number of seconds above 0, for example 5."
        )
    runs, methods, since = _requested(parsed)
    while True:
        states = run_statuses(runs, methods, since, needs_models=not is_list(parsed.targets))
        estimate = estimate_time(states)
        if parsed.json:
            text = json.dumps(status_as_dict(states, estimate), indent=2)
        else:
            text = format_status(states, estimate)
        cleared = _CLEARED if parsed.watch is not None and sys.stdout.isatty() else ""
        print(f"{cleared}{text}", flush=True)
        if parsed.watch is None or all(state.state in (DONE, FAILED) for state in states):
            return
        time.sleep(parsed.watch)


def _requested(parsed: argparse.Namespace) -> "tuple[list[ListedRun], Methods, float | None]":
    """The requested runs, the methods' settings, and the start time of the workflow if known."""
    from fedrec.plan.run_list import listed_runs

    if not parsed.targets:
        return _workflow_runs(parsed)
    if not is_list(parsed.targets):
        return _planned(parsed, parsed.targets)
    methods = methods_of(parsed)
    return listed_runs(Path(parsed.targets[0]), methods), methods, None


def _workflow_runs(
    parsed: argparse.Namespace,
) -> "tuple[list[ListedRun], Methods, float | None]":
    """The runs for which the workflow was last started; before its first start, those of `all`."""
    from fedrec.config.configuration import read_configuration
    from fedrec.config.methods import load_methods
    from fedrec.plan.run_list import RUN_LIST_FILE, listed_runs

    configuration = read_configuration([parsed.project, *parsed.configfile]).content
    run_list = Path(str(configuration.get("results", "results")), RUN_LIST_FILE)
    if not run_list.is_file():
        return _planned(parsed, ["all"])
    found_file = configuration.get("found_file", parsed.found)
    methods = load_methods(
        Path(configuration.get("method_file", parsed.methods)), found_file and Path(found_file)
    )
    return listed_runs(run_list, methods), methods, run_list.stat().st_mtime


def _planned(
    parsed: argparse.Namespace, targets: list[str]
) -> "tuple[list[ListedRun], Methods, float | None]":
    from fedrec.plan.target_names import runs_for_targets, validate_targets, with_attacked_runs

    project = project_of(parsed)
    validate_targets(project, targets)
    project = with_attacked_runs(project, targets)
    runs = [project.job(run).listed(project.results) for run in runs_for_targets(project, targets)]
    return runs, project.methods, None
