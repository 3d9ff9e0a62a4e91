"""A worker process, controlled by the process that started it."""

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
"""The command that starts a worker process."""
OUT_OF_MEMORY = 71
"""The exit status of a command that ran out of memory, perhaps because of other processes.

Its own process may still use memory, and should end.
"""
DEVICE_LOST = 72
"""The exit status of a command whose process has lost its GPU.

Another process on the same GPU may have caused it. This process cannot use the GPU any more.
"""
KILLED = -signal.SIGKILL
"""The status of a killed process: Linux ran out of memory, or somebody killed it."""
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS)
"""Statuses of a process that crashes after the loss of its GPU, when it frees recorded CUDA graphs."""
NOT_REUSABLE = (OUT_OF_MEMORY, DEVICE_LOST, *CRASHES)
"""Exit statuses after which a process must not run another command."""
_SECONDS_TO_END = 60.0
"""Seconds in which an idle process may end by itself. Freeing many gigabytes takes time, and killing a
process on a shared GPU may end the others on it."""


class Worker:
    """A process that runs one command after another; `command` starts it, with its socket as last argument.

    It has its own session, so that a terminal's Ctrl-C reaches only the process that started it. `stop` then
    sends a single signal.
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
        """Run a command that writes to open files; return its exit status, negative if the worker died."""
        if self._channel.send({"arguments": list(arguments)}, (stdout, stderr)):
            received = self._channel.receive()
            if received is not None:
                return int(received[0]["status"])
        return self._process.wait()

    @property
    def is_alive(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    def stop(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the process, which stops its command."""
        self._process.send_signal(number)

    def end(self) -> None:
        """End the process: at once if it is idle, otherwise after its command has stopped."""
        self._channel.close()
        try:
            self._process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _with_sources(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, with this `fedrec` on PYTHONPATH unless it is an installed package."""
    sources = str(Path(__file__).resolve().parents[2])
    if sources in {sysconfig.get_path(name) for name in ("purelib", "platlib")}:
        return dict(environment)
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    known = others if sources in others else [sources, *others]
    return {**environment, "PYTHONPATH": os.pathsep.join(known)}


def describe_exit(status: int) -> str:
    """The death of a worker that ended with a negative `status`, as text."""
    name = signal.Signals(-status).name if -status in set(signal.Signals) else f"signal {-status}"
    causes = ": memory ran out, or somebody killed it" if status == KILLED else ""
    return f"its process was ended by {name}{causes}"


def error_text(error: Exception) -> str:
    """The message of a command that no worker could run: an error of the machine, or a traceback."""
    if isinstance(error, OSError):
        return (
            f"{ERROR_PREFIX}the machine could not start a process for this command: {error}. Free memory, "
            "processes or disk space, then type the same command again.\n"
        )
    return "".join(traceback.format_exception(error))
