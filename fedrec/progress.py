"""Progress of long work: a bar on a terminal, plain lines in a log."""

import sys
import time
from typing import NoReturn, TextIO

from tqdm import tqdm

_SECONDS_BETWEEN_LINES = 10.0


class ByteProgress:
    """Counts bytes of one transfer.

    Has the attributes pooch asks of a progress bar: `total`, `update`, `reset`, `close`.
    """

    def __init__(self, label: str, stream: TextIO | None = None) -> None:
        self.total: int = 0
        self._label = label
        self._stream = stream if stream is not None else sys.stderr
        self._done = 0
        self._last_line = time.monotonic()
        self._bar: tqdm[NoReturn] | None = None

    def update(self, count: int) -> None:
        """Tell that `count` more bytes have arrived."""
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
        """Start again from zero (a retry, or pooch's last word before `close`)."""
        self._done = 0
        if self._bar is not None:
            self._bar.reset()

    def close(self) -> None:
        """The transfer has ended."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _amount(self) -> str:
        megabytes = f"{self._done / 1e6:.1f}"
        return f"{megabytes} of {self.total / 1e6:.1f} MB" if self.total else f"{megabytes} MB"
