"""A worker process as its starter sees it."""

import os
import signal
import socket
import subprocess
import sys
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from fedrec.workers.channel import Channel
from fedrec.workers.log_tail import ERROR_PREFIX

# `-P`, as an installed command does: imports do not depend on the folder that the process starts in.
WORKER_COMMAND = (sys.executable, "-P", "-m", "fedrec.cli.worker")
"""Starts a process that does `fedrec` commands."""
OUT_OF_MEMORY = 71
"""The exit status of a command that found too little memory free, which others may hold.

Its process may still hold some itself, and is best ended.
"""
DEVICE_LOST = 72
"""The exit status of a command whose GPU takes no more work of its process.

That may be the fault of another process that shares the GPU. This one can do nothing more on it.
"""
KILLED = -signal.SIGKILL
"""How a process ends that Linux kills for want of memory, or somebody kills: it cannot tell which."""
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
"""How a process may end that has lost its GPU, when it takes apart what it had recorded there."""
NOT_REUSABLE = (OUT_OF_MEMORY, DEVICE_LOST, *CRASHES)
"""Exit statuses after which a process is not to do another command."""
_SECONDS_TO_END = 60.0
"""How long an idle process may take to end: giving back many gigabytes takes a busy machine a while, and one
that is killed while it holds a GPU may take those with it that share it."""


class Worker:
    """A process that does one command after another; `command` starts it, with the number of its connection.

    It is a session of its own, so that a terminal's Ctrl-C reaches who started it alone: what it does is
    stopped by `stop`, once.
    """

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], folder: Path | None = None
    ) -> None:
        """Start it; it imports the same `fedrec`, also from a checkout that is not installed."""
        own, other = socket.socketpair()
        self._channel = Channel(own)
        with other, ExitStack() as on_error:
            on_error.callback(self._channel.close)
            self._process = subprocess.Popen(
                [*command, str(other.fileno())],
                env=_with_sources(environment),
                cwd=folder,
                pass_fds=(other.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            on_error.pop_all()

    def do(self, arguments: Sequence[str], stdout: int, stderr: int) -> int:
        """The exit status of a command that writes to two open files; as `subprocess`, if the worker died."""
        if self._channel.send({"arguments": list(arguments)}, (stdout, stderr)):
            received = self._channel.receive()
            if received is not None:
                return int(received[0]["status"])
        return self._process.wait()

    @property
    def is_alive(self) -> bool:
        """Whether it can do another command."""
        return self._process.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the process, if it lives: what it does stops."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Let the process end: at once if it is idle, otherwise as soon as what it does has stopped."""
        self._channel.close()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _with_sources(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds this `fedrec`, unless it is among the installed packages."""
    sources = str(Path(__file__).resolve().parents[2])
    if sources in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        return dict(environment)
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    known = others if sources in others else [sources, *others]
    return {**environment, "PYTHONPATH": os.pathsep.join(known)}


def describe_exit(status: int) -> str:
    """In words, how a worker died that ended with a negative `status`."""
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    causes = ": memory ran out, or somebody killed it" if status == KILLED else ""
    return f"its process was ended by {name}{causes}"


def error_text(error: Exception) -> str:
    """What a command is to say that no worker could do, for an error of the machine or a defect of fedrec."""
    if isinstance(error, OSError):
        return (
            f"{ERROR_PREFIX}the machine could not start a process for this command: {error}. Free memory, "
            "processes or disk space, then type the same command again.\n"
        )
    return "".join(traceback.format_exception(error))
