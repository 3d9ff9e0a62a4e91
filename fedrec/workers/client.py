"""Run a command on the worker server, if there is one.

This module imports little, since the process does nothing else.
"""

import os
import signal
import socket
from collections.abc import Sequence
from types import FrameType

from fedrec.workers.channel import Channel

SOCKET_VARIABLE = "FEDREC_WORKERS"
"""The environment variable with the path of the server's socket."""


def run_on_server(arguments: Sequence[str]) -> int | None:
    """Run a command on a server's worker and return its exit status; None if no server answers.

    Signals to this process are forwarded to the worker's command.
    """
    address = os.environ.get(SOCKET_VARIABLE)
    connection = _connected(address) if address else None
    if connection is None:
        return None
    channel = Channel(connection)
    folder = os.getcwd()  # noqa: PTH109
    channel.send({"arguments": [*arguments], "folder": folder, "environment": dict(os.environ)}, (1, 2))
    _forward_signals(channel)
    received = channel.receive()
    if received is None:
        os.write(2, b"fedrec: the process that started the workers has ended. Type the same command again.\n")
        return 1
    answer, _ = received
    os.write(2, answer["message"].encode())
    return int(answer["status"])


def _connected(address: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(address)
    except OSError:
        # The server has ended, or runs on another machine to which the environment was copied.
        connection.close()
        return None
    return connection


def _forward_signals(channel: Channel) -> None:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        channel.send({"signal": number})

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
