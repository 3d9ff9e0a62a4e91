"""A C compiler as a process; if it hangs, crashes or fails, fedrec trains without it."""

import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from fedrec.errors import NoCompilerError

SECONDS_TO_COMPILE = 300.0
"""The time limit of one call of a compiler; a kernel takes seconds."""
_MOST_CHARACTERS = 400
"""The length at which a compiler's message is cut in an error."""
_HANGING: dict[str, str] = {}
"""Compilers that exceeded the limit, with the reason; this process does not call them again."""


def compiler_output(command: Sequence[str], text: str = "", **environment: str) -> str:
    """The output of a compiler that reads `text`; raise `NoCompilerError` if it fails."""
    if command[0] in _HANGING:
        raise NoCompilerError(_HANGING[command[0]])
    try:
        # Files instead of pipes: a pipe would stay open for as long as any child of the compiler lives.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as printed:
            given.write(text.encode())
            given.seek(0)
            with tempfile.TemporaryFile() as complaints:
                status = _status(
                    command, (given.fileno(), printed.fileno(), complaints.fileno()), environment
                )
                complaints.seek(0)
                complaint = complaints.read().decode(errors="replace").strip()
            printed.seek(0)
            output = printed.read().decode(errors="replace")
    except OSError as error:
        raise NoCompilerError(f"{command[0]} cannot be started: {error}") from error
    if status:
        raise NoCompilerError(_failure(command[0], status, complaint))
    return output


def _status(command: Sequence[str], files: tuple[int, int, int], environment: Mapping[str, str]) -> int:
    """The exit status of a command. All processes that it started have ended when this returns or raises."""
    stdin, stdout, stderr = files
    process = subprocess.Popen(
        command,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    late = threading.Event()

    def stop() -> None:
        late.set()
        _end(process)

    # Python's wait with a timeout polls, which takes longer than some kernels do.
    timer = threading.Timer(SECONDS_TO_COMPILE, stop)
    timer.start()
    try:
        status = process.wait()
    finally:
        timer.cancel()
        _end(process)
        process.wait()
    if late.is_set():
        raise NoCompilerError(
            _HANGING.setdefault(
                command[0],
                f"{command[0]} did not end within {SECONDS_TO_COMPILE:g} seconds, and fedrec stopped it. Run "
                f"`{command[0]} --version` to see whether it hangs",
            )
        )
    return status


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a compiler and the processes that it started, which would otherwise continue to write."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure(compiler: str, status: int, complaint: str) -> str:
    """The reason of a compiler's failure: its message, the signal that killed it, or its exit status."""
    if status < 0:
        return (
            f"{compiler} was killed by signal {-status}: memory ran out, or somebody killed it. fedrec "
            "compiles again at its next start"
        )
    message = complaint[:_MOST_CHARACTERS] or f"it ends with status {status}, without a message"
    return f"{compiler} fails: {message}"
