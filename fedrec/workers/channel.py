"""Messages between two processes of this machine, which open files may travel with."""

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
    """One end of a connection: messages are JSON, a line each."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = b""
        self._files: list[int] = []

    def send(self, message: Mapping[str, Any], files: Sequence[int] = ()) -> bool:
        """Send a message, and open files with it; whether there was somebody to send it to."""
        text = json.dumps(message).encode() + b"\n"
        attached = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        try:
            sent = self._connection.sendmsg([text], attached)
            self._connection.sendall(text[sent:])
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> tuple[dict[str, Any], list[int]] | None:
        """The next message and the files that came with it, which are the caller's to close.

        None when the other end is closed.
        """
        while b"\n" not in self._received:
            try:
                chunk, files, _, _ = socket.recv_fds(self._connection, _CHUNK, _MOST_FILES)
            except OSError:
                # The other end has gone, or another thread has closed this one.
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
        """Close this end, so that the other one knows that nothing more comes."""
        # Another thread may wait for a message, which closing alone does not end. The other end may be gone.
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()


def close_files(files: Sequence[int]) -> None:
    """Close files that came with a message."""
    for file in files:
        os.close(file)
