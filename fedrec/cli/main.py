"""The entry point of `fedrec`. A worker may run the command, so this module imports little itself."""

import sys
from collections.abc import Sequence

from fedrec.workers.client import run_on_server

_ON_WORKERS = ("prepare", "split", "describe", "train", "build")
"""Commands that a worker runs if there is one: their imports often take longer than their work."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is that of `fedrec.cli.commands.perform`."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in _ON_WORKERS:
        status = run_on_server(words)
        if status is not None:
            return status
    from fedrec.cli.commands import perform

    return perform(words)
