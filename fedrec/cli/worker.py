"""A process that does `fedrec` commands one after another: `python -m fedrec.cli.worker CONNECTION`."""

import os
import socket
import sys

from fedrec.cli.commands import perform
from fedrec.workers.channel import Channel
from fedrec.workers.gpu_sharing import wait_asleep
from fedrec.workers.worker import work


def _main() -> None:
    """Do what comes through the connection whose number is the only argument."""
    wait_asleep()
    work(Channel(socket.socket(fileno=int(sys.argv[1]))), perform)
    # Whatever it did is written. To take all modules apart would take a second, and somebody waits for that.
    os._exit(0)


if __name__ == "__main__":
    _main()
