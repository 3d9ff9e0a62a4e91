import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
from pathlib import Path

import pytest

from fedrec.data import archives
from fedrec.data.archives import extract_member, read_member
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


def make_gz(path, members):
    (content,) = members.values()
    path.write_bytes(gzip.compress(content))
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


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz")])
def test_a_large_member_is_refused(tmp_path, monkeypatch, make, name):
    archive = make(tmp_path / name, {"big": b"x" * 11})
    assert read_member(archive, "big") == b"x" * 11
    monkeypatch.setattr(archives, "MAX_MEMBER_BYTES", 10)
    with pytest.raises(SourceError, match="big has 11 bytes or more, but 10 are allowed"):
        read_member(archive, "big")


@pytest.mark.parametrize(("make", "name"), [(make_zip, "a.zip"), (make_tar, "a.tar.gz"), (make_gz, "big.gz")])
def test_a_bomb_is_refused(tmp_path, monkeypatch, make, name):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED_BYTES", 1000)
    monkeypatch.setattr(archives, "_CHUNK_BYTES", 1000)
    archive = make(tmp_path / name, {"big": bytes(1_000_000)})
    with pytest.raises(
        SourceError,
        match=r"and 200 times its compressed size\)\. If that is right, unpack the archive by hand\.",
    ):
        read_member(archive, "big")


def test_a_size_that_lies_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED_BYTES", 1000)
    archive = make_zip(tmp_path / "a.zip", {"big": bytes(1_000_000)})
    # The directory, and the member's own header, say that it has 999 bytes.
    told = archive.read_bytes().replace((1_000_000).to_bytes(4, "little"), (999).to_bytes(4, "little"))
    archive.write_bytes(told)
    with pytest.raises(SourceError, match=r"damaged or was cut short \(Bad CRC-32"):
        read_member(archive, "big")


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz"])
def test_a_compressed_file_holds_one_member(tmp_path, ending):
    archive = tmp_path / f"rows.csv.{ending}"
    archive.write_bytes({"gz": gzip, "bz2": bz2, "xz": lzma}[ending].compress(b"1,2\n"))
    assert read_member(archive, "rows.csv") == b"1,2\n"
    with pytest.raises(SourceError, match=r"no member other\.csv; it holds rows\.csv"):
        read_member(archive, "other.csv")


@pytest.mark.parametrize("member", ["rows.csv", "u.data"])
def test_the_checksum_at_the_end_of_gzip_is_read(tmp_path, member):
    make = make_gz if member == "rows.csv" else make_tar
    archive = make(tmp_path / "rows.csv.gz", {member: b"1,2\n" * 1000})
    assert read_member(archive, member) == b"1,2\n" * 1000
    content = bytearray(archive.read_bytes())
    content[-8] ^= 1
    archive.write_bytes(content)
    with pytest.raises(SourceError, match="damaged or was cut short"):
        read_member(archive, member)


def test_an_encrypted_member_and_an_unknown_method_are_told(tmp_path):
    archive = make_zip(tmp_path / "a.zip", {"u.data": b"1,2\n" * 9})
    content = archive.read_bytes()
    local, central = content.index(b"PK\x03\x04"), content.index(b"PK\x01\x02")

    def changed(offset, value):
        made = bytearray(content)
        made[local + 6 + offset] = made[central + 8 + offset] = value
        archive.write_bytes(made)

    changed(0, 1)
    with pytest.raises(SourceError, match=r"u\.data is encrypted\. Unpack the archive by hand"):
        read_member(archive, "u.data")
    changed(2, 97)
    with pytest.raises(SourceError, match="is stored in an unsupported way"):
        read_member(archive, "u.data")


@pytest.mark.parametrize("size", [2**60, 10**6, -512, -(2**40)])
@pytest.mark.parametrize("member", ["first", "second"])
def test_a_tar_with_an_absurd_size_is_damaged(tmp_path, size, member):
    archive = tmp_path / "a.tar"
    with archive.open("wb") as stream:
        for name in ("first", "second"):
            info = tarfile.TarInfo(name)
            info.size = size if name == member else 4
            stream.write(info.tobuf(tarfile.GNU_FORMAT) + b"1,2\n".ljust(512, b"\0"))
        stream.write(bytes(1024))
    with pytest.raises(SourceError, match="damaged or was cut short"):
        read_member(archive, "second")


def test_what_is_no_archive_is_told(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"<html>Not found</html>" * 50)
    with pytest.raises(
        SourceError, match="it is not a zip or tar archive, nor compressed by gzip, bzip2 or xz"
    ):
        read_member(tmp_path / "a.zip", "u.data")


def test_a_full_disk_is_not_the_archives_fault(tmp_path):
    archive = make_zip(tmp_path / "a.zip", {"u.data": b"1,2\n"})
    with pytest.raises(OSError, match="No space left"):
        extract_member(archive, "u.data", Path("/dev/full"))


def test_names_of_an_archive_do_not_fill_the_message(tmp_path):
    archive = make_zip(tmp_path / "a.zip", {"x" * 50_000: b"", "\x1b[2J": b""})
    with pytest.raises(SourceError) as error:
        read_member(archive, "u.data")
    assert len(str(error.value)) < 1000
    assert "\x1b" not in str(error.value)
