import io
import tarfile
import zipfile

import pytest

from fedrec.data import archives
from fedrec.data.archives import read_member
from fedrec.errors import SourceError


def make_zip(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def make_tar(path, members, links=()):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for name, target in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            archive.addfile(info)
    return path


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz")])
def test_a_member_is_read_and_nothing_is_written(tmp_path, make, name):
    archive = make(tmp_path / name, {"in/u.data": b"1,2\n", "../evil": b"x"})
    assert read_member(archive, "in/u.data") == b"1,2\n"
    assert list(tmp_path.rglob("*")) == [archive]
    assert not (tmp_path.parent / "evil").exists()


def test_an_archive_inside_an_archive(tmp_path):
    inner = make_zip(tmp_path / "inner.zip", {"rows.csv": b"1\n"}).read_bytes()
    tarred = make_tar(tmp_path / "inner.tar.gz", {"rows.csv": b"2\n"}).read_bytes()
    outer = make_zip(tmp_path / "outer.zip", {"data/inner.zip": inner, "inner.tar.gz": tarred})
    assert read_member(outer, "data/inner.zip!rows.csv") == b"1\n"
    assert read_member(outer, "inner.tar.gz!rows.csv") == b"2\n"


@pytest.mark.parametrize("member", ["../evil", "/etc/passwd", "a/../../evil", "..\\evil"])
@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz")])
def test_a_name_that_points_outside_is_refused(tmp_path, member, make, name):
    archive = make(tmp_path / name, {member: b"x"})
    with pytest.raises(SourceError, match="points outside the archive"):
        read_member(archive, member)


def test_links_are_refused(tmp_path):
    tarred = make_tar(tmp_path / "a.tar.gz", {}, links=[("link", "/etc/passwd")])
    with pytest.raises(SourceError, match="is a link"):
        read_member(tarred, "link")
    zipped = tmp_path / "a.zip"
    with zipfile.ZipFile(zipped, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(SourceError, match="is a link"):
        read_member(zipped, "link")


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz")])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_truncated_archive_is_said_to_be_damaged(tmp_path, make, name, kept):
    rows = "".join(f"{number * 7919 % 104729}\n" for number in range(20_000)).encode()
    archive = make(tmp_path / name, {"u.data": rows})
    archive.write_bytes(archive.read_bytes()[: int(kept * archive.stat().st_size)])
    with pytest.raises(SourceError, match="damaged or was cut short"):
        read_member(archive, "u.data")


def test_a_missing_member_lists_what_is_there(tmp_path):
    archive = make_zip(tmp_path / "a.zip", {"b": b"", "a": b""})
    with pytest.raises(SourceError, match=r"no member c; it holds a, b"):
        read_member(archive, "c")


def test_a_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 10)
    archive = make_zip(tmp_path / "a.zip", {"big": b"x" * 11})
    with pytest.raises(SourceError, match="more than the 10 allowed"):
        read_member(archive, "big")
