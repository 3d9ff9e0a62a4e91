"""Messages between two processes of this machine, with open file descriptors."""

import array
import json
import os
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

_CHUNK = 1 << 16
_MOST_FILES = 2


class Channel:
    """One end of a connection. A message is one line of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._files: list[int] = []

    def send(self, message: Mapping[str, Any], files: Sequence[int] = ()) -> bool:
        """Send a message with open files; return False if the other end is closed."""
        text = json.dumps(message).encode() + b"\n"
        attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            sent = self._connection.sendmsg([text], attached)
            self._connection.sendall(text[sent:])
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """Receive the next message and its files, which the caller must close.

        None if the other end is closed.
        """
        while b"\n" not in self._received:
            try:
                chunk, files, _, _ = socket.recv_fds(self._connection, _CHUNK, _MOST_FILES)
            except OSError:
                # The other end is closed, or another thread has closed this one.
                chunk, files = b"", []
            self._files += files
            if not chunk:
                return None
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        files, self._files = self._files, []
        return message, files

    def close(self) -> None:
        """Close this end, which ends the other one's `receive`."""
        # Without `shutdown`, a thread that waits in `receive` would not wake. The other end may be gone.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def close_files(files: Sequence[int]) -> None:
    """Close the files of a message."""
    for file in files:
        os.close(file)
