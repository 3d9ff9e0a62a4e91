"""All commands of `fedrec`: arguments in, one call, files out.

Commands import what they need when they run, so that each starts fast and needs no more
packages than its own work does.
"""

import argparse
import logging
import os
import re
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
from fedrec.errors import DeviceLostError, FedrecError, MemoryTakenError, StoppedError, did_you_mean
from fedrec.workers.process import DEVICE_LOST, OUT_OF_MEMORY

_WRONG_PLACE: Mapping[type[OSError], str] = {
    PermissionError: "no permission. Change its rights, or name another place.",
    IsADirectoryError: "is a folder, where a file is needed.",
    NotADirectoryError: "lies below a file, where a folder is needed.",
}
"""What is wrong with a path that cannot be read, in words."""
_STATUSES: Mapping[type[FedrecError], int] = {
    MemoryTakenError: OUT_OF_MEMORY,
    DeviceLostError: DEVICE_LOST,
}
"""The exit statuses of errors that who started the command can do something about."""


class _Parser(argparse.ArgumentParser):
    """A parser whose error names the nearest of the words that it knows."""

    def error(self, message: str) -> NoReturn:
        found = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message)
        hint = did_you_mean(found[1], re.findall(r"[\w-]+", found[2])) if found else ""
        super().error(f"{message}.{hint}" if hint else message)


def perform(arguments: Sequence[str]) -> int:
    """Run one command; the exit status is 0, or after an error message 1 or one of `_STATUSES`."""
    parser = _parser()
    unreadable = next((word for word in arguments if not _is_text(word)), None)
    if unreadable is not None:
        parser.error(
            f"{unreadable!a} cannot be read as text in this locale, whose encoding is "
            f"{sys.getfilesystemencoding()}. Set PYTHONUTF8=1, or use plain letters alone"
        )
    parsed, others = parser.parse_known_args(arguments)
    if others and not parsed.takes_others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
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
        print(f"fedrec: {error.filename}: {_WRONG_PLACE[type(error)]}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "fedrec"):
            raise
        print(
            f"fedrec: the package {package} is needed here, and {sys.executable} does not have it. Install "
            "what fedrec needs (in a checkout: make, then source .venv/bin/activate), or start that Python.",
            file=sys.stderr,
        )
        return 1
    except BrokenPipeError:
        # Whoever read the output (`| head`) has enough; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except StoppedError as stopped:
        # Of several processes that train a run, the first one alone writes checkpoints.
        if os.environ.get("RANK", "0") == "0":
            print(f"fedrec: stopped; {stopped}", file=sys.stderr)
        return stopped.status
    except KeyboardInterrupt:
        print("fedrec: interrupted; nothing half-written was kept.", file=sys.stderr)
        return 130
    return 0


def _is_text(word: str) -> bool:
    """Whether a word was decoded whole, so that it can name a file for every library."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="fedrec",
        description="Federated recommendation papers, regenerated under an honest protocol. "
        "Snakemake calls these commands; each can be called by hand.",
    )
    parser.add_argument("--version", action="version", version=f"fedrec {__version__}")
    parser.set_defaults(takes_others=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    parts = (
        inspect, check, new, run, data, train, compare, tune, evaluate, work, status, kernel, build, runs,
        results, adopt, reference,
    )  # fmt: skip
    for part in parts:
        part.add_commands(commands)
    return parser
