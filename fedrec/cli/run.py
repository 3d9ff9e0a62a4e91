"""`fedrec run`: check targets, print which runs to train, and start Snakemake.

Snakemake's own parser reads the arguments, so that `fedrec run` and `snakemake` build the same.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from fedrec.cli.options import MIRROR_VARIABLE, add_command
from fedrec.errors import ConfigurationError, StoppedError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands

_SEPARATOR = "--"
"""The word before targets."""
_PROJECT_OPTIONS = ("directory", "snakefile")
"""Options of Snakemake that name another project than that of the current folder."""
_LAST_WINS = (("--config", "-C"), ("--configfile", "--configfiles"))
"""Options of Snakemake with several values; if one is repeated, only the last counts."""
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals that stop the workflow: Ctrl-C, `kill`, a closed terminal, Ctrl-\\."""


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "run", _run, "run --cores 2 demo")
    parser.usage = "fedrec run [--workers] [OPTIONS OF SNAKEMAKE] [TARGET ...]"
    parser.description = (
        f"{_run.__doc__} A TARGET is a table, figure, page, paper, group or file (default: all). All other "
        "options are Snakemake's: --cores N, -n (dry run), -k (keep going), --config KEY=VALUE. `snakemake "
        "--help` lists them."
    )
    # An abbreviation may mean an option of Snakemake.
    parser.allow_abbrev = False
    parser.set_defaults(takes_others=True)
    parser.add_argument(
        "--workers",
        action="store_true",
        help="run jobs in a few long-lived worker processes, which import torch once. Many short runs finish "
        "sooner, but a debugger or profiler of a job sees only a process that waits",
    )


def _run(parsed: argparse.Namespace) -> NoReturn:
    """Build targets with Snakemake: check their names, print the runs to train, retrain outdated runs."""
    from fedrec.cli.snakemake_arguments import read_words
    from fedrec.plan.availability import check_mirror
    from fedrec.plan.rule_functions import check_writable, load_project, warn_of_unused_keys
    from fedrec.plan.unused_keys import refuse_unused_keys
    from fedrec.plan.workflow_start import prepare_start
    from fedrec.workers.process import WORKER_COMMAND
    from fedrec.workers.server import WorkerServer

    _check_order(parsed)
    options, changes = read_words(parsed.others)
    _check_folder(options)
    project = load_project(options.configfile, changes, os.environ.get(MIRROR_VARIABLE))
    check_mirror(project.mirror)
    check_writable(Path())
    start = prepare_start(project, list(options.targets))
    load = partial(load_project, options.configfile, mirror=os.environ.get(MIRROR_VARIABLE))
    refuse_unused_keys(project, changes, start.targets, load)
    warn_of_unused_keys(project, options.configfile, changes, start.targets, os.environ.get(MIRROR_VARIABLE))
    print(start.summary(options.cores), flush=True)
    if not options.dryrun:
        start.write_run_list()
    with ExitStack() as stack:
        if parsed.workers and not options.dryrun:
            stack.enter_context(closing(WorkerServer(WORKER_COMMAND)))
        status = _snakemake(_arguments(parsed.others, options, start.forced_files))
    raise SystemExit(status)


def _check_order(parsed: argparse.Namespace) -> None:
    """Raise `ConfigurationError` for options that Snakemake would read as targets, or ignore."""
    end, words = _end_of_options(parsed.others), parsed.others
    for names in _LAST_WINS:
        if sum(word.partition("=")[0] in names for word in words[:end]) > 1:
            raise ConfigurationError(
                f"{names[0]} is given twice, and Snakemake uses only the last. Give all values to one: "
                f"{names[0]} ONE ANOTHER -- TARGET"
            )
    first = next((index for index in range(end + 1, len(words)) if words[index].startswith("-")), None)
    if first is not None:
        workers = ["--workers"] if parsed.workers else []
        targets = words[end:first] if first > end + 1 else []
        right = shlex.join([*workers, *words[:end], *words[first:], *targets])
        raise ConfigurationError(
            f"{words[first]}: arguments after {_SEPARATOR} are targets, as in Snakemake. Options come before "
            f"{_SEPARATOR}. Type: fedrec run {right}"
        )


def _check_folder(options: argparse.Namespace) -> None:
    """Raise `ConfigurationError` for the project of another folder, or if this folder has none."""
    from snakemake.common import SNAKEFILE_CHOICES

    for option in _PROJECT_OPTIONS:
        if (value := getattr(options, option)) is not None:
            raise ConfigurationError(
                f"--{option} {value}: `fedrec run` builds the project in the current folder. Change to the "
                "folder of the other project, or type `snakemake` instead of `fedrec run`."
            )
    if not any(Path(choice).is_file() for choice in SNAKEFILE_CHOICES):
        raise ConfigurationError(
            "Snakefile: no such file. Start `fedrec run` in the top folder of a clone of the project. "
            "`fedrec prepare`, `split`, `train` and `train-list` need no Snakefile."
        )


def _end_of_options(words: Sequence[str]) -> int:
    return words.index(_SEPARATOR) if _SEPARATOR in words else len(words)


def _arguments(words: Sequence[str], options: argparse.Namespace, forced: Sequence[str]) -> list[str]:
    """The arguments for Snakemake: `words`, the files to make again, and for a dry run less output."""
    end = _end_of_options(words)
    brief = ["--quiet", "host", "rules", "reason", "--dry-run"] if options.dryrun else []
    # One option with all files: Snakemake reads only the last --forcerun.
    again = ["--forcerun", *sorted({*options.forcerun, *forced})] if forced else []
    return [*brief, *words[:end], *again, *words[end:]]


def _snakemake(arguments: Sequence[str]) -> int:
    """The exit status of Snakemake; `StoppedError` if a signal to this process stopped it and its jobs."""
    from fedrec.plan.workflow_start import SUMMARY_PRINTED

    handled = [number for number in _STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    started: list[subprocess.Popen[bytes]] = []
    received: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        if number in handled:
            received.append(number)
            for process in started:
                if process.poll() is None:
                    # To Snakemake and its jobs. After SIGTERM Snakemake would wait for the jobs to finish.
                    os.killpg(process.pid, signal.SIGINT)

    # A background process ignores SIGINT, and Snakemake and its jobs would inherit that.
    for number in {*handled, signal.SIGINT}:
        signal.signal(number, stop)
    # A process group of its own: a terminal sends Ctrl-C to this process only, which forwards it once.
    command = [sys.executable, "-m", "snakemake", *arguments]
    environment = os.environ | {SUMMARY_PRINTED: "yes"}
    with subprocess.Popen(command, env=environment, process_group=0) as process:
        started.append(process)
        status = process.wait()
    if received and status:
        raise StoppedError(
            "finished results are kept. Type the same command again to continue; runs resume from "
            "checkpoints.",
            128 + received[0],
        )
    return status
