"""All commands of `fedrec`: arguments in, one call, files out.

Commands import what they need when they run, so that each starts fast and needs no more
packages than its own work does.
"""

import argparse
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence

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
from fedrec.errors import DeviceLostError, FedrecError, MemoryTakenError, StoppedError
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


def perform(arguments: Sequence[str]) -> int:
    """Run one command; the exit status is 0, or after an error message 1 or one of `_STATUSES`."""
    parser = _parser()
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
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
