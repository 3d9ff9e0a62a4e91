"""A process that does `fedrec` commands one after another: `python -m fedrec.cli.worker CONNECTION`."""

import os
import socket
import sys

from fedrec.workers.channel import Channel
from fedrec.workers.gpu_sharing import wait_asleep
from fedrec.workers.worker import work

# `-P`, as an installed command does: what is imported does not depend on the folder it is called in.
COMMAND = (sys.executable, "-P", "-m", "fedrec.cli.worker")
"""Starts such a process."""


def _main() -> None:
    """Do what comes through the connection whose number is the only argument."""
    from fedrec.cli.commands import perform

    wait_asleep()
    work(Channel(socket.socket(fileno=int(sys.argv[1]))), perform)
    # Whatever it did is written. To take all modules apart would take a second, and somebody waits for that.
    os._exit(0)


if __name__ == "__main__":
    _main()
