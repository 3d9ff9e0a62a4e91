"""Stopping a training by a signal: at once, or after its round where that takes a moment only."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
_STDERR = 2


class StopRequest:
    """Whether somebody asked to stop (Ctrl-C, `kill`, a scheduler), and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None
        self.rounds_are_quick = False
        """Whether the round in work is waited for, so that nothing of it is lost."""

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Take note of a signal; `KeyboardInterrupt` if the round is not waited for, or it is the second."""
        repeated, self.signal = self.signal is not None, number
        if repeated or not self.rounds_are_quick:
            raise KeyboardInterrupt
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
