"""All commands of `fedrec`, and the translation of errors to messages and exit statuses.

A command imports packages when it runs. So it starts fast, and needs only its own packages.
"""

import argparse
import logging
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from fedrec import __version__
from fedrec.cli import (
    adopt,
    build,
    check,
    compare,
    data,
    evaluate,
    inspect,
    kernel,
    new,
    reference,
    results,
    run,
    runs,
    status,
    train,
    tune,
    work,
)
from fedrec.cli.old_names import with_new_names
from fedrec.cli.options import COMMAND
from fedrec.errors import DeviceLostError, FedrecError, MemoryTakenError, StoppedError, did_you_mean
from fedrec.workers.process import DEVICE_LOST, OUT_OF_MEMORY

_PATH_ERRORS: Mapping[type[OSError], str] = {
    PermissionError: "permission denied. Change its permissions, or give another path.",
    IsADirectoryError: "is a folder. Give the path of a file.",
    NotADirectoryError: "lies below a file. Give a path below a folder.",
}
"""The message for each error of a path."""
_STATUSES: Mapping[type[FedrecError], int] = {
    MemoryTakenError: OUT_OF_MEMORY,
    DeviceLostError: DEVICE_LOST,
}
"""The exit statuses of errors after which the caller may retry the command."""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors name the nearest known command."""

    def error(self, message: str) -> NoReturn:
        match = re.search(r"argument (.*): invalid choice: '(.*)' \(choose from (.*)\)", message)
        if match is None:
            super().error(message)
        hint = did_you_mean(match[2], re.findall(r"[\w-]+", match[3]))
        if match[1] == COMMAND:
            message = f"unknown command '{match[2]}'"
            hint += f" `{self.prog} --help` lists the commands."
        super().error(f"{message}.{hint}" if hint else message)


def perform(arguments: Sequence[str]) -> int:
    """Run one command; the exit status is 0, or after an error message 1 or one of `_STATUSES`."""
    parser = _parser()
    unreadable = next((word for word in arguments if not _is_text(word)), None)
    if unreadable is not None:
        parser.error(
            f"{unreadable!a} is not valid text in this locale, whose encoding is "
            f"{sys.getfilesystemencoding()}. Set PYTHONUTF8=1, or use ASCII letters only"
        )
    parsed, others = parser.parse_known_args(with_new_names(arguments))
    if others and not parsed.takes_others:
        hint = did_you_mean(others[0].partition("=")[0], re.findall(r"--[\w-]+", parsed.usage()))
        parser.error(f"unrecognized arguments: {' '.join(others)}.{hint}")
    parsed.others = others
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    command: Callable[[argparse.Namespace], None] = parsed.command
    try:
        command(parsed)
        sys.stdout.flush()
    except FedrecError as error:
        print(f"fedrec: {error}", file=sys.stderr)
        return _STATUSES.get(type(error), 1)
    except (PermissionError, IsADirectoryError, NotADirectoryError) as error:
        if error.filename is None:
            raise
        print(f"fedrec: {error.filename}: {_PATH_ERRORS[type(error)]}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "fedrec"):
            raise
        print(
            f"fedrec: this command needs the package {package}, which {sys.executable} does not have. "
            "Install fedrec's dependencies. In a checkout, type: "
            f"{shlex.quote(sys.executable)} -m pip install --constraint constraints.txt --editable .",
            file=sys.stderr,
        )
        return 1
    except BrokenPipeError:
        # The reader of the output (`| head`) has closed it; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except StoppedError as stopped:
        # If several processes train a run, only the first one writes checkpoints.
        if os.environ.get("RANK", "0") == "0":
            print(f"fedrec: stopped; {stopped}", file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("fedrec: interrupted; no incomplete file was kept.", file=sys.stderr)
        return 130
    return 0


def _is_text(word: str) -> bool:
    """Whether a word is valid text, so that every library accepts it as the name of a file."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fedrec",
        description="Retrain the experiments of federated recommendation papers, under the papers' "
        "protocols and under a protocol without leaks. `fedrec COMMAND --help` explains a command.",
        epilog="example: fedrec run --cores 2 demo",
    )
    parser.add_argument("--version", action="version", version=f"fedrec {__version__}")
    parser.set_defaults(takes_others=False)
    commands = parser.add_subparsers(required=True, metavar=COMMAND)
    parts = (
        inspect, check, new, run, data, train, compare, tune, evaluate, work, status, kernel, build, runs,
        results, adopt, reference,
    )  # fmt: skip
    for part in parts:
        part.add_commands(commands)
    return parser
