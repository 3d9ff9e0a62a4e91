"""The main loop of a worker process: run one command after another until the connection closes.

A signal to the process stops a running command; an idle worker ignores signals. If the connection closes, the
running command gets SIGTERM, so that it can save its work.
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
_Commands: TypeAlias = "queue.SimpleQueue[tuple[list[str], list[int]] | None]"
_STANDARD = (1, 2)
"""File descriptors of standard output and standard error."""


def work(channel: Channel, perform: Perform) -> None:
    """Run the commands from `channel` by `perform`, which returns an exit status."""
    commands: _Commands = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(channel, commands), daemon=True).start()
    standard_files = [os.dup(number) for number in _STANDARD]
    _ignore_signals()
    while (task := commands.get()) is not None:
        arguments, files = task
        _redirect(files)
        close_files(files)
        _restore_signals()
        status = _status_of(perform, arguments)
        _ignore_signals()
        _redirect(standard_files)
        channel.send({"status": status})


def _listen(channel: Channel, commands: _Commands) -> None:
    """Queue received commands, in a thread that notices the end of the connection during a command."""
    while (received := channel.receive()) is not None:
        message, files = received
        commands.put((message["arguments"], files))
    commands.put(None)
    os.kill(os.getpid(), signal.SIGTERM)


def _ignore_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def _restore_signals() -> None:
    """Handle signals as a new process does."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _status_of(perform: Perform, arguments: Sequence[str]) -> int:
    try:
        return perform(arguments)
    except SystemExit as leaving:
        # The argument parser exits this way, after its message.
        return leaving.code if isinstance(leaving.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


def _redirect(files: Sequence[int]) -> None:
    """Redirect standard output and standard error to `files`."""
    sys.stdout.flush()
    sys.stderr.flush()
    for file, standard in zip(files, _STANDARD, strict=True):
        os.dup2(file, standard)
