"""Run a command on the worker server, if there is one.

Imports little: it is all that a process does whose command a worker does.
"""

import os
import signal
import socket
from collections.abc import Sequence
from types import FrameType

from fedrec.workers.channel import Channel

SOCKET_VARIABLE = "FEDREC_WORKERS"
"""The variable of the environment that names the socket of a server."""


def run_on_server(arguments: Sequence[str]) -> int | None:
    """The exit status of a command that a server's worker did; None where no server answers.

    Signals to this process are passed on, so that the command stops as if it were its own.
    """
    place = os.environ.get(SOCKET_VARIABLE)
    connection = _connected(place) if place else None
    if connection is None:
        return None
    channel = Channel(connection)
    folder = os.getcwd()  # noqa: PTH109
    channel.send({"arguments": [*arguments], "folder": folder, "environment": dict(os.environ)}, (1, 2))
    _pass_on_signals(channel)
    received = channel.receive()
    if received is None:
        os.write(2, b"fedrec: who started the workers has gone; start the same command again.\n")
        return 1
    answer, _ = received
    os.write(2, answer["said"].encode())
    return int(answer["status"])


def _connected(place: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(place)
    except OSError:
        # It has ended, or is on another machine: the environment may travel further than its sockets.
        connection.close()
        return None
    return connection


def _pass_on_signals(channel: Channel) -> None:
    def pass_on(number: int, _frame: FrameType | None) -> None:
        channel.send({"signal": number})

    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, pass_on)
