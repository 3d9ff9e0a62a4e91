"""What a worker process does: one command after another, until nobody is left to ask for more.

A command in work is stopped as one that runs by itself: by a signal to the process, which an idle one
ignores. Where the process that asked has gone it gets SIGTERM, so that it keeps what it has.
"""

import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import TypeAlias

from fedrec.workers.channel import Channel, close_files

Perform: TypeAlias = Callable[[Sequence[str]], int]
_Asked: TypeAlias = "queue.SimpleQueue[tuple[list[str], list[int]] | None]"
_STANDARD = (1, 2)
"""Where a command writes to."""


def work(channel: Channel, perform: Perform) -> None:
    """Do the commands that come through `channel` by `perform`, which returns the exit status of one."""
    asked: _Asked = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, asked), daemon=True).start()
    own = [os.dup(number) for number in _STANDARD]
    _ignore_signals()
    while (task := asked.get()) is not None:
        arguments, files = task
        _redirect(files)
        close_files(files)
        _heed_signals()
        status = _performed(perform, arguments)
        _ignore_signals()
        _redirect(own)
        channel.send({"status": status})


def _listen(channel: Channel, asked: _Asked) -> None:
    """Hand on what comes; a thread of its own, to notice the end while a command is in work."""
    while (received := channel.receive()) is not None:
        message, files = received
        asked.put((message["arguments"], files))
    asked.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _heed_signals() -> None:
    """As a process that has just started does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _performed(perform: Perform, arguments: Sequence[str]) -> int:
    try:
        return perform(arguments)
    except SystemExit as leaving:
        # The parser of arguments leaves so, after it has said why.
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


def _redirect(files: Sequence[int]) -> None:
    """Let standard output and error go to `files` from here on."""
    sys.stdout.flush()
    sys.stderr.flush()
    for file, standard in zip(files, _STANDARD, strict=True):
        os.dup2(file, standard)
