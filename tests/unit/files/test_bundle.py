"""Archives: the same files give the same bytes, and nothing but what was written is read."""

import hashlib
import io
import json
import tarfile

import pytest

from fedrec.errors import StorageError
from fedrec.files.bundle import BundledFile, BundleReader, write_bundle
from fedrec.files.sealed import sealed, unsealed

PINNED = "d50b63046e25697202788c9fb6e9b70b3c31f2bad8df92549de73133b0a62ff2"
NAMES = ("a/first", "a/second", f"b/{'long' * 40}", "c/empty")


@pytest.fixture
def files(tmp_path):
    contents = (b"one", bytes(range(256)) * 8, b"x" * 512, b"")
    made = {}
    for number, (name, content) in enumerate(zip(NAMES, contents, strict=True)):
        path = tmp_path / str(number)
        path.write_bytes(content)
        made[BundledFile.of(name, path)] = path
    return made


def written(files):
    stream = io.BytesIO()
    write_bundle(stream, files)
    return stream.getvalue()


def contents(data):
    reader = BundleReader(io.BytesIO(data), "made.tar")
    found = {file.name: b"".join(reader.pieces(file)) for file in reader.files}
    reader.end()
    return found


def with_manifest(data, change):
    """An archive whose manifest is changed, and sealed again."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        text = archive.extractfile("manifest.json").read()
    changed = json.dumps(sealed(change(unsealed(text))), indent=1).encode()
    header = tarfile.TarInfo("manifest.json")
    header.size = len(changed)
    start = 512 + len(text) + -len(text) % 512
    return header.tobuf(tarfile.GNU_FORMAT) + changed + bytes(-len(changed) % 512) + data[start:]


def replaced(content, key, value):
    content["files"][0][key] = value
    return content


def test_what_was_written_is_read_by_us_and_by_tar(files):
    data = written(files)
    expected = {file.name: path.read_bytes() for file, path in files.items()}
    assert contents(data) == expected
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == ["manifest.json", *NAMES]
        assert {name: archive.extractfile(name).read() for name in NAMES} == expected


def test_the_same_files_give_the_same_bytes_on_every_machine(files):
    """The hash is pinned: an archive must be read by another version of Python than the one that wrote it."""
    assert hashlib.sha256(written(files)).hexdigest() == PINNED


def test_every_changed_byte_is_refused(files):
    data = written(files)
    for place in range(0, len(data), 61):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(StorageError, match=r"^made\.tar: .* Nothing of it was taken\."):
            contents(bytes(changed))


def test_every_early_end_is_refused_and_so_is_more(files):
    data = written(files)
    for length in (0, 1, 511, 512, 700, *range(1024, len(data), 501), len(data) - 1):
        with pytest.raises(StorageError, match=r"ends too early|does not begin with a manifest"):
            contents(data[:length])
    with pytest.raises(StorageError, match="holds more than its manifest says"):
        contents(data + b"\0")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda content: replaced(content, 0, "../outside"),
            r"lists what is not taken: the name '\.\./outside'",
        ),
        (lambda content: replaced(content, 0, "/etc/passwd"), "the name '/etc/passwd'"),
        (lambda content: replaced(content, 0, "a//b"), "the name 'a//b'"),
        (lambda content: replaced(content, 0, "a\0b"), "the name"),
        (lambda content: replaced(content, 0, "\ud800"), "lists what is not taken"),
        (lambda content: replaced(content, 0, "long" * 1000), "the name"),
        (lambda content: replaced(content, 1, -1), "which is no file"),
        (lambda content: replaced(content, 1, 10**30), "which is no file"),
        (lambda content: replaced(content, 1, True), "which is no file"),
        (lambda content: replaced(content, 1, 3.0), "which is no file"),
        (
            lambda content: replaced(content, 1, 1 << 50),
            "holds a file called 'a/first' where its manifest has",
        ),
        (lambda content: replaced(content, 2, "0" * 64), "'a/first' in it is not what its manifest says"),
        (lambda content: replaced(content, 0, "a/other"), "holds a file called 'a/first' where its manifest"),
        (lambda content: content | {"files": content["files"][1:]}, "where its manifest has 'a/second'"),
        (lambda content: content | {"files": content["files"][:-1]}, "holds more than its manifest says"),
        (lambda content: content | {"files": 3}, "is of another version of fedrec"),
        (lambda content: content | {"files": [3]}, "which is no file"),
        (lambda content: content | {"version": 2}, "is of another version of fedrec"),
    ],
)
def test_a_manifest_that_says_what_is_not_so_is_refused_though_it_is_sealed(files, change, said):
    with pytest.raises(StorageError, match=said):
        contents(with_manifest(written(files), change))


def test_a_manifest_that_is_not_sealed_is_refused(files):
    data = written(files).replace(b'"version": 1', b'"version": 3')
    with pytest.raises(StorageError, match="its manifest is damaged: its content does not fit its hash"):
        contents(data)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_a_link_in_the_place_of_a_file_is_refused(files, kind):
    data = bytearray(written(files))
    place = bytes(data).index(b"a/first\0")
    header = tarfile.TarInfo("a/first")
    header.type, header.linkname, header.size = kind, "/etc/passwd", 0
    data[place : place + 512] = header.tobuf(tarfile.GNU_FORMAT)
    said = "a link" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "something else"
    with pytest.raises(StorageError, match=f"holds {said} called 'a/first' where its manifest has"):
        contents(bytes(data))


def test_a_manifest_as_large_as_nobody_writes_is_not_read(files):
    header = tarfile.TarInfo("manifest.json")
    header.size = 1 << 40
    with pytest.raises(StorageError, match="does not begin with a manifest of ours"):
        contents(header.tobuf(tarfile.GNU_FORMAT) + written(files)[512:])


def test_what_tar_writes_is_not_ours(files):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.add(next(iter(files.values())), "a/first")
    with pytest.raises(StorageError, match="does not begin with a manifest of ours"):
        contents(stream.getvalue())


def test_a_file_that_changes_while_it_is_written_is_told(files):
    path = files[next(iter(files))]
    for content in (b"two", b"", b"longer than before"):
        path.write_bytes(content)
        with pytest.raises(StorageError, match="was changed while it was read"):
            written(files)
