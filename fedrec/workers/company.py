"""One command done by several processes together, which know of each other as those of torchrun do.

When one of them ends with an error or is killed, all end; who it was is said.
"""

import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from fedrec.errors import FedrecError
from fedrec.workers.client import PLACE
from fedrec.workers.process import death_of

LEFT_ALONE = 75
"""The exit status of a process that cannot go on because another one has ended."""
_WATCHED = "FEDREC_WATCHED"
"""The variable of the environment that tells a process that its input ends when its starter does."""
_SECONDS_BETWEEN_LOOKS = 0.05
_SECONDS_TO_FOLLOW = 2.0
"""How long others are waited for when one has failed: they most often do so at once, for the same reason."""
_SECONDS_TO_END = 5.0
_LOOPBACK = "lo"


@dataclass(frozen=True)
class Member:
    """One of the processes, and the file of what it says where that is not shown at once."""

    rank: int
    process: "subprocess.Popen[bytes]"
    said: Path

    @property
    def status(self) -> int | None:
        """Its exit status, as `subprocess` tells it; None while it lives."""
        return self.process.poll()


def do_together(command: Sequence[str], processes: int, cores: int) -> int:
    """Start `command` in so many processes on `cores` of this machine, and wait for them; their exit status.

    The first one shows what it writes; of the others only what one says that failed is shown. Signals to
    stop are passed on to all. Raises `FedrecError`, which names the process, if one fails.
    """
    with tempfile.TemporaryDirectory(prefix="fedrec-") as folder:
        members = [_started(command, rank, environment, folder)
                   for rank, environment in enumerate(environments(processes, cores))]  # fmt: skip
        try:
            with _passing_on(members) as received:
                failed = _first_failure(members)
        finally:
            _end(members)
        if failed is None:
            return 0
        if received:
            return 128 + received[0]
        _show(failed)
        raise FedrecError(
            f"of {processes} processes, numbered from 0, number {failed.rank} (pid {failed.process.pid} on "
            f"{socket.gethostname()}) ended the run: {_how(failed)}."
        )


def end_with_starter(environment: Mapping[str, str] = os.environ) -> None:
    """Where `do_together` started this process, let it end when that one ends, in whatever way."""
    if environment.get(_WATCHED):
        threading.Thread(target=_wait_for_end_of_input, daemon=True).start()


def _wait_for_end_of_input() -> None:
    while os.read(0, 1):
        pass
    # Another thread may wait for a process that is gone, and hear no signal. Files are whole or not there.
    os._exit(LEFT_ALONE)


def environments(processes: int, cores: int) -> Iterator[dict[str, str]]:
    """What each process is told, by the names that torchrun uses."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {name: value for name, value in os.environ.items() if name != PLACE}
    common.setdefault("OMP_NUM_THREADS", str(max(1, cores // processes)))
    if sys.platform == "linux":
        # All are on this machine, whatever its name resolves to.
        common.setdefault("GLOO_SOCKET_IFNAME", _LOOPBACK)
    for rank in range(processes):
        yield common | {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            _WATCHED: "1",
        }  # fmt: skip


def _started(command: Sequence[str], rank: int, environment: Mapping[str, str], folder: str) -> Member:
    """A process in a session of its own, so that a terminal's Ctrl-C reaches it through its starter alone."""
    said = Path(folder, str(rank))
    with said.open("wb") as stream:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL if rank else None,
            stderr=stream if rank else None,
            start_new_session=True,
        )
    return Member(rank, process, said)


@contextmanager
def _passing_on(members: Sequence[Member]) -> Iterator[list[int]]:
    """The signals to stop that came for a while; each is passed on to all processes."""
    received: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        for member in members:
            member.process.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM)
               if signal.getsignal(number) is not signal.SIG_IGN]  # fmt: skip
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_failure(members: Sequence[Member]) -> Member | None:
    """Wait until all have ended well, or one has not: the one that was killed or failed by itself."""
    until = math.inf
    while True:
        statuses = [member.status for member in members]
        if all(status == 0 for status in statuses):
            return None
        ended = [member for member in members if member.status]
        if ended:
            until = min(until, time.monotonic() + _SECONDS_TO_FOLLOW)
        if ended and (None not in statuses or time.monotonic() > until):
            return min(ended, key=_guilt)
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _guilt(member: Member) -> tuple[int, int]:
    """Small for who made the others end: one that was killed, then one that failed, then one left alone."""
    status = member.status or 0
    return (0 if status < 0 else 2 if status == LEFT_ALONE else 1), member.rank


def _end(members: Sequence[Member]) -> None:
    """End those that still live: they are asked to, and then are not; nothing of any is left open."""
    living = [member.process for member in members if member.status is None]
    for process in living:
        process.terminate()
    until = time.monotonic() + _SECONDS_TO_END
    for process in living:
        try:
            process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    for member in members:
        if member.process.stdin is not None:
            member.process.stdin.close()


def _show(member: Member) -> None:
    """Show what a process said before it failed, unless it was shown already."""
    sys.stderr.write(member.said.read_text("utf-8", "replace"))


def _how(member: Member) -> str:
    """How a process ended that ended the run."""
    status = member.status or 0
    if status > 0:
        return f"it failed with status {status}, for the reason above"
    return f"{death_of(status)}. The same command goes on from the last checkpoint"
