"""A worker process, which runs `fedrec` commands in turn: `python -m fedrec.cli.worker CONNECTION`."""

import os
import socket
import sys

from fedrec.cli.commands import perform
from fedrec.workers.channel import Channel
from fedrec.workers.gpu_sharing import use_blocking_sync
from fedrec.workers.worker import work


def _main() -> None:
    """Run the commands from a connection; its file descriptor is the only argument."""
    use_blocking_sync()
    work(Channel(socket.socket(fileno=int(sys.argv[1]))), perform)
    # All files are written. A normal exit would unload modules for a second, while another process waits.
    os._exit(0)


if __name__ == "__main__":
    _main()
