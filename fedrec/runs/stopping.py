"""Stopping a training by a signal: at once, or after its round where that takes a moment only."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
_ONE_REQUEST = 2.0
"""Seconds in which signals are one request: a scheduler sends its own to every process of a job, and those
that started this one pass theirs on."""


class StopRequest:
    """Whether somebody asked to stop (Ctrl-C, `kill`, a scheduler), and by which signal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._received_at = 0.0
        self.signal: int | None = None
        self.rounds_are_quick = False
        """Whether the round in work is waited for, so that nothing of it is lost."""

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take note of a signal; `KeyboardInterrupt` if the round is not waited for, or it is the second."""
        known, self.signal = self.signal is not None, number
        if not self.rounds_are_quick:
            raise KeyboardInterrupt
        if known and self._clock() - self._received_at > _ONE_REQUEST:
            raise KeyboardInterrupt
        if known:
            return
        self._received_at = self._clock()
        # Straight to the file: a signal may come in the middle of a print.
        os.write(_STDERR, b"\nstopping after this round; once more stops at once\n")

    @property
    def status(self) -> int:
        """The exit status of a command that ends so."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """A request that signals reach until the block ends; outside of the main thread none do."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # Who starts a command in the background may have it ignore a signal.
    before = {
        number: handler for number in SIGNALS if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, request.receive)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
