"""Workers that other processes of this machine may use: who calls a command hands it over, and waits.

A command is done by a worker that was started in its folder, with its environment and with the sources as
they are now, so that it does what a process of its own would have done.
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
"""Variables that a shell sets to speak of itself."""


@dataclass(frozen=True)
class _Start:
    """Where, and out of what, a worker was started."""

    folder: str
    environment: Mapping[str, str]
    sources: str


class WorkerServer:
    """Listens at a socket, whose place it notes in the environment of this process, until it is closed.

    `command` starts a worker. There are as many workers as commands were handed over at once.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._idle: list[tuple[_Start, Worker]] = []
        self._closed = False
        self._lock = threading.Lock()
        # The path of a socket is limited to a hundred characters or so: it lies by itself.
        self._folder = tempfile.TemporaryDirectory(prefix="fedrec-", ignore_cleanup_errors=True)
        place = str(Path(self._folder.name, "workers"))
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(place)
        self._listening.listen(128)
        os.environ[SOCKET_VARIABLE] = place
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Let nobody find the server, idle workers end, and others as soon as their command is done."""
        os.environ.pop(SOCKET_VARIABLE, None)
        # Ends the thread that waits for clients, which closing alone does not.
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
        """Do what one client asks for."""
        received = channel.receive()
        if received is None:
            channel.close()
            return
        message, files = received
        try:
            status = self._done(channel, message, files)
            said = f"{ERROR_PREFIX}{describe_exit(status)}.\n" if status < 0 else ""
        except Exception as error:
            # Whatever it is, the client must know: it would wait, or say that nobody is there.
            status, said = 1, error_text(error)
        close_files(files)
        channel.send({"status": status if status >= 0 else 128 - status, "said": said})
        channel.close()

    def _done(self, channel: Channel, message: Mapping[str, Any], files: Sequence[int]) -> int:
        """The exit status of the command of a message, negative if its worker died."""
        start = _start_of(message)
        worker = self._taken(start)
        call = _Call(channel, worker)
        status = worker.do(message["arguments"], *files)
        call.is_over()
        if status in NOT_REUSABLE:
            worker.end()
        else:
            self._put_back(start, worker)
        return status

    def _put_back(self, start: _Start, worker: Worker) -> None:
        """Keep a worker for commands to come; where none will, it ends."""
        with self._lock:
            if not self._closed:
                self._idle.append((start, worker))
                return
        worker.end()

    def _taken(self, start: _Start) -> Worker:
        """An idle worker of that start, or a new one; one that died or has other sources is let go."""
        with self._lock:
            gone = [pair for pair in self._idle if not pair[1].is_alive or pair[0].sources != start.sources]
            fit = [pair for pair in self._idle if pair not in gone and pair[0] == start]
            self._idle = [pair for pair in self._idle if pair not in [*gone, *fit[-1:]]]
        for _, worker in gone:
            worker.end()
        return fit[-1][1] if fit else Worker(self._command, start.environment, Path(start.folder))


def _start_of(message: Mapping[str, Any]) -> _Start:
    own = {name: value for name, value in message["environment"].items() if name not in _OF_THE_SHELL}
    return _Start(message["folder"], own, state_of_sources())


class _Call:
    """A command in work for a client, whose signals are passed on to the worker until it is over."""

    def __init__(self, channel: Channel, worker: Worker) -> None:
        self._channel = channel
        self._worker = worker
        self._over = False
        self._lock = threading.Lock()
        threading.Thread(target=self._pass_on, daemon=True).start()

    def is_over(self) -> None:
        """No signal of this client reaches the worker from here on."""
        with self._lock:
            self._over = True

    def _pass_on(self) -> None:
        """A client that goes without a word, being killed, wants its command stopped."""
        while (received := self._channel.receive()) is not None:
            self._stop(received[0]["signal"])
        self._stop(signal.SIGTERM)

    def _stop(self, number: int) -> None:
        with self._lock:
            if not self._over:
                self._worker.stop(number)
