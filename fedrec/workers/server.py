"""A server of workers for other processes of this machine: a client sends a command and waits.

The command's worker was started in the client's folder, with the same environment and the current sources. So
the result is the same as in a process of its own.
"""

import os
import signal
import socket
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.workers.channel import Channel, close_files
from fedrec.workers.client import SOCKET_VARIABLE
from fedrec.workers.log_tail import ERROR_PREFIX
from fedrec.workers.process import NOT_REUSABLE, Worker, describe_exit, error_text
from fedrec.workers.sources import state_of_sources

_OF_THE_SHELL = ("_", "SHLVL", "OLDPWD", "PWD")
"""Variables in which a shell describes itself."""


@dataclass(frozen=True)
class _Start:
    """The folder, environment and sources of a worker at its start."""

    folder: str
    environment: Mapping[str, str]
    sources: str


class WorkerServer:
    """Listen on a socket until closed; the environment of this process has its path.

    `command` starts a worker. The server has as many workers as it ran commands at once.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._idle: list[tuple[_Start, Worker]] = []
        self._closed = False
        self._lock = threading.Lock()
        # A folder of its own, because the path of a socket is limited to about a hundred characters.
        self._folder = tempfile.TemporaryDirectory(prefix="fedrec-", ignore_cleanup_errors=True)
        address = str(Path(self._folder.name, "workers"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(128)
        os.environ[SOCKET_VARIABLE] = address
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Stop listening, and end workers: idle ones at once, others after their command."""
        os.environ.pop(SOCKET_VARIABLE, None)
        # `shutdown` wakes the listening thread; `close` alone would not.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._folder.cleanup()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for _, worker in idle:
            worker.end()

    def _listen(self) -> None:
        with self._listening:
            while True:
                try:
                    connection, _ = self._listening.accept()
                except OSError:
                    return
                threading.Thread(target=self._serve, args=(Channel(connection),), daemon=True).start()

    def _serve(self, channel: Channel) -> None:
        """Run the command of one client."""
        received = channel.receive()
        if received is None:
            channel.close()
            return
        message, files = received
        try:
            status = self._run_command(channel, message, files)
            message_text = f"{ERROR_PREFIX}{describe_exit(status)}.\n" if status < 0 else ""
        except Exception as error:
            # Report any error to the client, which would otherwise wait.
            status, message_text = 1, error_text(error)
        close_files(files)
        channel.send({"status": status if status >= 0 else 128 - status, "message": message_text})
        channel.close()

    def _run_command(self, channel: Channel, message: Mapping[str, Any], files: Sequence[int]) -> int:
        """Run the command of a message; return its exit status, negative if the worker died."""
        start = _start_of(message)
        worker = self._take(start)
        call = _Call(channel, worker)
        status = worker.do(message["arguments"], *files)
        call.is_over()
        if status in NOT_REUSABLE:
            worker.end()
        else:
            self._put_back(start, worker)
        return status

    def _put_back(self, start: _Start, worker: Worker) -> None:
        """Keep a worker for further commands, or end it if the server is closed."""
        with self._lock:
            if not self._closed:
                self._idle.append((start, worker))
                return
        worker.end()

    def _take(self, start: _Start) -> Worker:
        """Take an idle worker with the same start, or a new one; end dead workers and old sources."""
        with self._lock:
            gone = [pair for pair in self._idle if not pair[1].is_alive or pair[0].sources != start.sources]
            fit = [pair for pair in self._idle if pair not in gone and pair[0] == start]
            self._idle = [pair for pair in self._idle if pair not in [*gone, *fit[-1:]]]
        for _, worker in gone:
            worker.end()
        return fit[-1][1] if fit else Worker(self._command, start.environment, Path(start.folder))


def _start_of(message: Mapping[str, Any]) -> _Start:
    variables = {name: value for name, value in message["environment"].items() if name not in _OF_THE_SHELL}
    return _Start(message["folder"], variables, state_of_sources())


class _Call:
    """A running command; its client's signals are forwarded to the worker until it ends."""

    def __init__(self, channel: Channel, worker: Worker) -> None:
        self._channel = channel
        self._worker = worker
        self._over = False
        self._lock = threading.Lock()
        threading.Thread(target=self._forward_signals, daemon=True).start()

    def is_over(self) -> None:
        """Stop forwarding signals."""
        with self._lock:
            self._over = True

    def _forward_signals(self) -> None:
        """Forward the client's signals; if the client is killed, stop its command."""
        while (received := self._channel.receive()) is not None:
            self._stop(received[0]["signal"])
        self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        with self._lock:
            if not self._over:
                self._worker.stop(number)
