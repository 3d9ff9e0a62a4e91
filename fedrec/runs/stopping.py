"""Stop a training by a signal: at once, or after the current round if rounds are short."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2
_SAME_REQUEST_SECONDS = 2.0
"""Seconds in which several signals count as one request: a scheduler signals every process of a job, and
parent processes forward theirs."""


class StopRequest:
    """A request to stop (Ctrl-C, `kill`, a scheduler), and its signal."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._received_at = 0.0
        self.signal: int | None = None
        self.rounds_are_quick = False
        """Whether to finish the current round before stopping."""

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal; raise `KeyboardInterrupt` for a second request, or if rounds are long."""
        known, self.signal = self.signal is not None, number
        if not self.rounds_are_quick:
            raise KeyboardInterrupt
        if known and self._clock() - self._received_at > _SAME_REQUEST_SECONDS:
            raise KeyboardInterrupt
        if known:
            return
        self._received_at = self._clock()
        # Not by print: a signal may interrupt one.
        os.write(_STDERR, b"\nstopping after this round; once more stops at once\n")

    @property
    def status(self) -> int:
        """The exit status of a command that this signal stops."""
        return 128 + (self.signal or signal.SIGINT)


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """Handle signals by a request until the block ends; threads other than the main one receive none."""
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    # A shell may start a background command with ignored signals: keep them ignored.
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
