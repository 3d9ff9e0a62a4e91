"""The `fedrec` command, which may be done by a worker: what it imports itself is little."""

import sys
from collections.abc import Sequence

from fedrec.workers.client import run_on_server

_HANDED_OVER = ("prepare", "split", "describe", "train", "build")
"""Commands whose imports take longer than many a run of them."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is that of `fedrec.cli.commands.perform`."""
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] in _HANDED_OVER:
        status = run_on_server(words)
        if status is not None:
            return status
    from fedrec.cli.commands import perform

    return perform(words)
