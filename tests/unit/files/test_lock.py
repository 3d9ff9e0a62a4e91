"""A folder that one process at a time writes to."""

import errno
import logging
import os
import subprocess
import sys

import pytest

from fedrec.errors import StorageError
from fedrec.files import lock
from fedrec.files.lock import LOCK, locked

HOLD = """
import sys, pathlib
from fedrec.files.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds_it(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(StorageError, match=rf"process {holder.pid} on \S+ writes to this folder now"),
            locked(tmp_path),
        ):
            pass
        holder.kill()
        holder.wait()
        # The lock of a killed process is nobody's; its file is taken over and goes in the end.
        assert (tmp_path / LOCK).exists()
        with locked(tmp_path):
            assert str(os.getpid()) in (tmp_path / LOCK).read_text()
        assert list(tmp_path.iterdir()) == []
    finally:
        holder.kill()
        holder.communicate()


def test_a_lock_is_held_within_a_process_too(tmp_path):
    with locked(tmp_path / "new/folder"):
        with pytest.raises(StorageError, match="writes to this folder now"), locked(tmp_path / "new/folder"):
            pass
        assert (tmp_path / "new/folder" / LOCK).exists()


def test_a_folder_without_locks_is_used_with_a_warning(tmp_path, monkeypatch, caplog):
    def unsupported(_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "try_lock", unsupported)
    with caplog.at_level(logging.WARNING), locked(tmp_path):
        pass
    assert "cannot be locked (No locks available)" in caplog.text


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, r"cannot be written \(Read-only file system\)\. Name a place where you may write"),
        (errno.EACCES, r"cannot be written \(Permission denied\)"),
        (errno.ENOSPC, "no space left on the disk"),
    ],
)
def test_a_folder_that_may_not_be_written_to_is_said_plainly(tmp_path, monkeypatch, number, said):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.os, "open", refused)
    with pytest.raises(StorageError, match=said), locked(tmp_path):
        pass


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(StorageError, match=r"there is a file of that name. Move it away"),
        locked(tmp_path / "file"),
    ):
        pass
    below = tmp_path / "file/below/it"
    with pytest.raises(StorageError, match=r"file is a file, where a folder is needed"), locked(below):
        pass
    assert (tmp_path / "file").read_text() == "mine"
