import errno
import os
import stat

import pytest

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic, canonical_json, remove_remains, unflushed, write_text


def test_a_file_appears_whole(tmp_path):
    write_text(tmp_path / "deep/er/file.txt", "content\n")
    assert (tmp_path / "deep/er/file.txt").read_text() == "content\n"
    assert [path.name for path in (tmp_path / "deep/er").iterdir()] == ["file.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file.txt"
    write_text(path, "old")
    with pytest.raises(AttributeError), atomic(path) as temporary:
        temporary.write_text("half").and_fail()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_reported_plainly(tmp_path):
    with pytest.raises(StorageError, match="no space left"), atomic(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_results_are_readable_by_others(tmp_path):
    old = os.umask(0o022)
    try:
        write_text(tmp_path / "file", "x")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o644


def test_canonical_json_has_one_spelling():
    assert (
        canonical_json({"b": 1, "a": [1, 2]}) == canonical_json({"a": [1, 2], "b": 1}) == '{"a":[1,2],"b":1}'
    )


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EIO])
def test_every_error_of_the_file_system_is_reported_plainly(tmp_path, number):
    said = rf"file: cannot be written \({os.strerror(number)}\)\. Give a path that you can write to"
    with pytest.raises(StorageError, match=said), atomic(tmp_path / "file"):
        raise OSError(number, os.strerror(number))
    assert list(tmp_path.iterdir()) == []


def test_what_is_in_the_way_is_named(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="folder: cannot be written: a folder has that name"):
        write_text(tmp_path / "folder", "text")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(StorageError, match=r"file is a file, not a folder\. Move it away"):
        write_text(tmp_path / "file/below/it", "text")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_lost_connection_is_no_matter_of_files(tmp_path):
    with pytest.raises(ConnectionResetError), atomic(tmp_path / "file"):
        raise ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")


def test_remains_of_dead_writers_go_and_those_of_living_ones_stay(tmp_path):
    path = tmp_path / "file"
    dead, foreign = tmp_path / ".file.abc.part", tmp_path / ".other.abc.part"
    for remains in (dead, foreign):
        remains.write_text("half")
    with atomic(path) as living:
        assert not dead.exists()
        write_text(path, "by another")
        assert living.exists(), "it is being written"
        living.write_text("whole")
    assert path.read_text() == "whole"
    assert foreign.exists()
    remove_remains(tmp_path / "other")
    assert list(tmp_path.iterdir()) == [path]


def test_writers_wait_for_the_disk_unless_disabled(tmp_path, monkeypatch):
    flushed = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    with unflushed():
        write_text(tmp_path / "one.txt", "made again at any time")
    assert flushed == []
    write_text(tmp_path / "two.txt", "kept")
    assert len(flushed) == 2, "the file, and the folder that names it"
    assert (tmp_path / "one.txt").read_text() == "made again at any time"
