import errno
import os
import stat

import pytest

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic, canonical_json, write_text


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


def test_a_full_disk_is_said_plainly(tmp_path):
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
