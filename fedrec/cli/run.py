"""`fedrec run`: checks targets, prints which runs they have trained, and starts Snakemake."""

import argparse
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fedrec.cli.options import MIRROR_VARIABLE, add_command
from fedrec.errors import ConfigurationError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.plan.workflow_start import WorkflowStart

_SEPARATOR = "--"
_OWN_OPTIONS = ("--config", "--configfile", "--configfiles", "-C")
"""Options of Snakemake that change the project, so that this command must read them, too."""


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "run", _run)
    parser.usage = "fedrec run [options] [TARGET ...] [-- SNAKEMAKE OPTIONS]"
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="tables, figures, pages, papers, groups or files, as for Snakemake (default: all); options of "
        "Snakemake follow after --",
    )
    parser.add_argument("--cores", metavar="N", help="jobs at once, as for Snakemake; or all")
    parser.add_argument(
        "-n", "--dry-run", action="store_true", help="print what would be done, and do none of it"
    )
    parser.add_argument(
        "--workers",
        action="store_true",
        help="let jobs hand their commands to a few long-lived processes, which import torch once: many "
        "short runs end sooner, but a debugger or profiler of a job sees a process that waits",
    )
    parser.add_argument(
        "--configfile",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a file whose keys replace those of the configuration, as for Snakemake",
    )
    parser.add_argument(
        "--config",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a value that replaces that of the configuration, as for Snakemake",
    )


def _run(parsed: argparse.Namespace) -> NoReturn:
    """Build targets by Snakemake: check their names, print the runs to train, train outdated runs again."""
    from fedrec.plan.rule_functions import load_project
    from fedrec.plan.workflow_start import prepare_start
    from fedrec.workers.process import WORKER_COMMAND
    from fedrec.workers.server import WorkerServer

    targets, options = _split(parsed)
    changes = dict(map(_parse_change, parsed.config))
    project = load_project(parsed.configfile, changes, os.environ.get(MIRROR_VARIABLE))
    start = prepare_start(project, targets)
    print(start.summary, flush=True)
    if not parsed.dry_run:
        start.write_run_list()
    with ExitStack() as stack:
        if parsed.workers and not parsed.dry_run:
            stack.enter_context(closing(WorkerServer(WORKER_COMMAND)))
        status = _snakemake(_arguments(parsed, start, options))
    raise SystemExit(status)


def _split(parsed: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The targets, and the options of Snakemake, which follow a separator."""
    words = list(parsed.words)
    options = words[words.index(_SEPARATOR) + 1 :] if _SEPARATOR in words else []
    for option in options:
        if option.partition("=")[0] in _OWN_OPTIONS:
            raise ConfigurationError(
                f"{option}: give it before the {_SEPARATOR}, as --config KEY=VALUE or --configfile FILE."
            )
    return parsed.targets[: len(parsed.targets) - len(options)], options


def _parse_change(text: str) -> tuple[str, Any]:
    import yaml

    from fedrec.config.yaml_text import values_of

    key, separator, value = text.partition("=")
    if not key or not separator:
        raise ConfigurationError(f"--config {text}: write KEY=VALUE, for example rounds=20.")
    try:
        return key, values_of(value)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"--config {text}: the value is not YAML: {error}") from None


def _arguments(parsed: argparse.Namespace, start: "WorkflowStart", options: Sequence[str]) -> list[str]:
    """The arguments of Snakemake; options of the caller come last and win."""
    given = {
        "--cores": [parsed.cores] if parsed.cores else [],
        "--configfile": [str(file) for file in parsed.configfile],
        "--config": parsed.config,
        "--forcerun": start.forced_files,
    }
    words = [word for option, values in given.items() if values for word in (option, *values)]
    brief = ["--dry-run", "--quiet", "host", "rules", "reason"] if parsed.dry_run else []
    return [*words, *brief, *options, _SEPARATOR, *start.targets]


def _snakemake(arguments: Sequence[str]) -> int:
    """The exit status of Snakemake, which stops as this process is asked to."""
    command = [sys.executable, "-m", "snakemake", *arguments]
    with subprocess.Popen(command) as process:
        # A terminal sends Ctrl-C to both processes.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
        return process.wait()
