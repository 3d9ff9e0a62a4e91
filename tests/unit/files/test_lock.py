"""A folder that one process at a time writes to."""

import errno
import logging
import os
import socket
import subprocess
import sys
import time

import pytest

from fedrec.errors import StorageError
from fedrec.files import lock
from fedrec.files.lock import LOCK, holder_of, locked

HOLD = """
import sys, pathlib
from fedrec.files.lock import locked
with locked(pathlib.Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_learns_who_holds_it(tmp_path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(StorageError, match=rf"process {holder.pid} on \S+ is writing to this folder"),
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
        with (
            pytest.raises(
                StorageError,
                match=r"is writing to this folder\. Wait until it has ended, or give another folder\.",
            ),
            locked(tmp_path / "new/folder"),
        ):
            pass
        assert (tmp_path / "new/folder" / LOCK).exists()


def test_who_looks_from_outside_learns_who_holds_a_lock_and_how_far_it_is(tmp_path):
    assert holder_of(tmp_path) is None
    with locked(tmp_path) as held:
        for note in ("", "a long note on the first step", "short"):
            held.note(note)
            holder = holder_of(tmp_path)
            assert (holder.process, holder.host, holder.note) == (os.getpid(), socket.gethostname(), note)
            assert holder.is_alive
    assert holder_of(tmp_path) is None


@pytest.mark.parametrize(
    "content", ["", "\n", "process x on y", "process 1 on ", "\0\1", "process 99999999999 on y"]
)
def test_a_lock_that_names_nobody_has_no_holder(tmp_path, content):
    (tmp_path / LOCK).write_text(content)
    assert holder_of(tmp_path) is None


def test_a_holder_gives_signs_of_life_though_its_work_says_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_SECONDS_BETWEEN_BEATS", 0.001)
    with locked(tmp_path):
        os.utime(tmp_path / LOCK, (1.0, 1.0))
        while holder_of(tmp_path).silent > 60:
            time.sleep(0.001)
        assert holder_of(tmp_path).is_alive


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
        (
            errno.EROFS,
            (
                "cannot be written \\(Read-only file system\\)\\. Give a path that you can write to, or change its "
                "permissions\\."
            ),
        ),
        (errno.EACCES, r"cannot be written \(Permission denied\)"),
        (errno.ENOSPC, "no space left on the disk"),
    ],
)
def test_a_folder_that_may_not_be_written_to_is_reported_plainly(tmp_path, monkeypatch, number, said):
    def refused(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(lock.os, "open", refused)
    with pytest.raises(StorageError, match=said), locked(tmp_path):
        pass


def test_a_file_in_the_way_of_a_folder_is_named(tmp_path):
    (tmp_path / "file").write_text("mine")
    with (
        pytest.raises(StorageError, match=r"a file has that name\. Move it away"),
        locked(tmp_path / "file"),
    ):
        pass
    below = tmp_path / "file/below/it"
    with pytest.raises(StorageError, match="file is a file, not a folder"), locked(below):
        pass
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_that_was_made_for_the_lock_is_removed_if_nothing_was_written(tmp_path):
    """A run that is refused leaves nothing behind."""
    with locked(tmp_path / "refused"):
        pass
    with locked(tmp_path / "written"):
        (tmp_path / "written" / "run.json").write_text("{}")
    (tmp_path / "there").mkdir()
    with locked(tmp_path / "there"):
        pass
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there", "written"]
