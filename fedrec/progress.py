"""Progress of long work: a bar on a terminal, plain lines in a log."""

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NoReturn, TextIO, TypeAlias

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_NOTES = 1.0


@dataclass(frozen=True)
class RoundsDone:
    """The progress of a training."""

    round: int
    rounds: int
    seconds: float | None
    """Mean seconds of a round since this process began; None before its first."""


_Listener: TypeAlias = Callable[[RoundsDone], None]
_LISTENER: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def report_rounds(listener: _Listener) -> Iterator[None]:
    """Report the progress of the training inside the block to `listener` at intervals."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)


_SHOWN: ContextVar[bool] = ContextVar("shown", default=True)


@contextmanager
def rounds_shown(shown: bool) -> Iterator[None]:
    """Choose whether trainings inside the block show their rounds."""
    token = _SHOWN.set(shown)
    try:
        yield
    finally:
        _SHOWN.reset(token)


def is_shown() -> bool:
    """Whether trainings show their progress."""
    return _SHOWN.get()


class ByteProgress:
    """Counts the bytes of one transfer, with the attributes of pooch's progress bars."""

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self.total: int = 0
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._done = 0
        self._last_line = time.monotonic()
        self._bar: tqdm[NoReturn] | None = None

    def update(self, count: int) -> None:
        """Count `count` more bytes."""
        self._done += count
        if self._stream.isatty():
            if self._bar is None:
                self._bar = tqdm(
                    total=self.total or None, desc=self._label, unit="B", unit_scale=True, file=self._stream
                )
            self._bar.update(count)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self._stream.write(f"{self._label}: {self._amount()}\n")
            self._stream.flush()

    def reset(self) -> None:
        """Start again from zero, after a retry or before pooch's `close`."""
        self._done = 0
        if self._bar is not None:
            self._bar.reset()

    def close(self) -> None:
        """End the transfer."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _amount(self) -> str:
        megabytes = f"{self._done / 1e6:.1f}"
        return f"{megabytes} of {self.total / 1e6:.1f} MB" if self.total else f"{megabytes} MB"


class RoundProgress:
    """Rounds of training: a bar on a terminal, occasional lines in a log."""

    def __init__(self, label: str, rounds: int, done: int, stream: TextIO | None = None) -> None:
        self._label = label
        self._rounds = rounds
        self._done = done
        self._stream = stream if stream is not None else sys.stderr
        self._last_line = float("-inf")
        self._started, self._first = time.monotonic(), done
        self._last_round = self._started
        self._last_note = float("-inf")
        self._report()
        self._bar: tqdm[NoReturn] | None = None
        self._is_shown = _SHOWN.get()
        if self._is_shown and self._stream.isatty():
            self._bar = tqdm(total=rounds, initial=done, desc=label, unit="round", file=self._stream)

    def update(self, loss: float, metric: float, seconds: float) -> None:
        """Count a round, with its loss, its validation HR@10 and the seconds of its training.

        The loss is NaN for a method without gradient steps.
        """
        self._done += 1
        self._report()
        now = time.monotonic()
        whole, self._last_round = now - self._last_round, now
        if not self._is_shown:
            return
        of_round = f"{whole:.3f} s per round, of which {seconds:.3f} s training"
        loss_text = "" if math.isnan(loss) else f"loss {loss:.4f}, "
        text = f"{loss_text}validation HR@10 {metric:.4f}, {of_round}"
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update()
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES or self._done == self._rounds:
            self._last_line = time.monotonic()
            self._stream.write(f"{self._label}: round {self._done} of {self._rounds}, {text}\n")
            self._stream.flush()

    def _report(self) -> None:
        listener, now = _LISTENER.get(), time.monotonic()
        if listener is not None and now - self._last_note >= _SECONDS_BETWEEN_NOTES:
            self._last_note = now
            done = self._done - self._first
            listener(RoundsDone(self._done, self._rounds, (now - self._started) / done if done else None))

    def close(self) -> None:
        """End the training."""
        if self._bar is not None:
            self._bar.close()


class TaskProgress:
    """Tasks of different lengths: the numbers done, failed and left, and an estimate of the time left."""

    def __init__(self, tasks: Sequence[tuple[float, int]], stream: TextIO | None = None) -> None:
        """Take the relative seconds of each task, and the number of runs that it stands for."""
        self._all = sum(count for _, count in tasks)
        self.left = self._all
        self.at_once: int | None = None
        """The number of simultaneous tasks, if it is lower than requested."""
        self._failed = 0
        self._seconds_to_do = sum(seconds for seconds, _ in tasks)
        self._seconds_done = 0.0
        self._started = time.monotonic()
        self._stream = stream if stream is not None else sys.stderr
        self._last_line = self._started
        self._bar: tqdm[NoReturn] | None = None
        if self._stream.isatty():
            shape = "{n_fmt} of {total_fmt} runs |{bar}| {postfix}"
            self._bar = tqdm(total=self._all, bar_format=shape, file=self._stream)

    def update(self, seconds: float, count: int = 1, *, failed: bool) -> None:
        """Count a finished task by its relative seconds, for `count` runs."""
        self.left -= count
        self._failed += count * failed
        self._seconds_to_do -= seconds
        # The time of a failed task does not predict the others.
        self._seconds_done += 0.0 if failed else seconds
        if self._bar is not None:
            self._bar.update(count)
        if not self.left:
            self._last_line = float("-inf")
        self.show()

    def is_longer_by(self, seconds: float) -> None:
        """Add relative seconds to the work left."""
        self._seconds_to_do += seconds

    def show(self) -> None:
        """Show the progress; in a log, at intervals."""
        if self._bar is not None:
            self._bar.set_postfix_str(self._suffix(), refresh=True)
        elif time.monotonic() - self._last_line >= _SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self._stream.write(f"{self._all - self.left} of {self._all} runs{self._suffix()}\n")
            self._stream.flush()

    @property
    def seconds_left(self) -> float | None:
        """Estimate the seconds left from the pace so far; None before the first finished task."""
        if not self._seconds_done:
            return None
        return (time.monotonic() - self._started) * self._seconds_to_do / self._seconds_done

    def close(self) -> None:
        """End the progress."""
        if self._bar is not None:
            self._bar.close()

    def _suffix(self) -> str:
        failed = f", {self._failed} failed" if self._failed else ""
        if not self.left:
            return f"{failed}, {span_text(time.monotonic() - self._started)}"
        fewer = "" if self.at_once is None else f", {self.at_once} at the same time"
        left = self.seconds_left
        return failed + fewer + ("" if left is None else f", about {span_text(left)} left")


def span_text(seconds: float) -> str:
    """A time in words: `12 s`, `5 min 3 s`, `2 h 10 min`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
