"""Archives: the same files give the same bytes, and an archive that is damaged or not ours is refused."""

import hashlib
import io
import json
import re
import tarfile

import pytest

from fedrec.errors import StorageError
from fedrec.files import run_archive
from fedrec.files.checked_json import verified, with_checksum
from fedrec.files.run_archive import extract_archive, write_archive

PINNED = "329008d8c233ac9ec5cf6938116cae8affbe26429c1d18fc46ee0d41c05ba124"
NAMES = ("a/first", "a/second", f"b/{'long' * 40}", "c/empty")
CONTENTS = (b"one", bytes(range(256)) * 8, b"x" * 512, b"")


@pytest.fixture
def files(tmp_path):
    folder = tmp_path / "files"
    folder.mkdir()
    paths = [folder / str(number) for number in range(len(NAMES))]
    for path, content in zip(paths, CONTENTS, strict=True):
        path.write_bytes(content)
    return dict(zip(NAMES, paths, strict=True))


@pytest.fixture
def extracted(tmp_path):
    """What an archive holds, by name."""

    def extract(data):
        target = tmp_path / "extracted"
        names = extract_archive(io.BytesIO(data), target, "made.tar")
        return {name: (target / name).read_bytes() for name in names}

    return extract


def written(files):
    stream = io.BytesIO()
    write_archive(stream, files)
    return stream.getvalue()


def members_of(data):
    """The members of an archive, each with its content."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(member, archive.extractfile(member).read()) for member in archive]


def made_of(members):
    """An archive of these members, by hand."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for member, content in members:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return stream.getvalue()


def with_manifest(data, change):
    """An archive whose manifest is changed, and sealed again."""
    (manifest, text), *others = members_of(data)
    return made_of([(manifest, json.dumps(with_checksum(change(verified(text)))).encode()), *others])


def flipped(data, place):
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


def outcome_of(extracted, data):
    """The files of an archive, or the message that refuses it."""
    try:
        return extracted(data)
    except StorageError as error:
        return str(error)


def replaced(content, key, value):
    content["files"][0][key] = value
    return content


def test_an_archive_holds_what_was_written_and_tar_reads_it(files, extracted):
    data = written(files)
    expected = dict(zip(NAMES, CONTENTS, strict=True))
    assert extracted(data) == expected
    assert [member.name for member, _ in members_of(data)] == ["manifest.json", *NAMES]
    assert [content for _, content in members_of(data)[1:]] == list(CONTENTS)


def test_the_same_files_give_the_same_bytes_on_every_machine(files):
    assert hashlib.sha256(written(files)).hexdigest() == PINNED


def test_a_changed_byte_never_reaches_a_file(files, extracted):
    """It is refused, or was none of a file's: tar fills its blocks up, and keeps times and rights."""
    data = written(files)
    expected = extracted(data)
    outcomes = [outcome_of(extracted, flipped(data, place)) for place in range(0, len(data), 61)]
    messages = [outcome for outcome in outcomes if outcome != expected]
    assert len(messages) > 50
    assert all(re.match(r"made\.tar: .* fedrec imported nothing\.", message) for message in messages)


@pytest.mark.parametrize(
    "content", [b"manifest.json", b"fedrec archive", b"a/second", *filter(None, CONTENTS)]
)
def test_a_changed_byte_of_a_name_or_a_content_is_refused(files, extracted, content):
    data = written(files)
    with pytest.raises(StorageError, match=r"^made\.tar: .* fedrec imported nothing\."):
        extracted(flipped(data, data.rindex(content)))


def test_an_archive_that_ends_too_early_is_refused(files, extracted):
    data = written(files)
    end = data.rindex(b"c/empty")
    for length in (0, 1, 511, 512, 700, *range(1024, end, 501), end):
        with pytest.raises(StorageError, match=r"^made\.tar: .* fedrec imported nothing\."):
            extracted(data[:length])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda content: replaced(content, 0, "a/other"),
            "contains 'a/first', which its manifest does not list",
        ),
        (lambda content: replaced(content, 2, "0" * 64), "'a/first' in it is damaged"),
        (lambda content: content | {"files": content["files"][1:]}, "contains 'a/first', which its manifest"),
        (
            lambda content: content | {"files": content["files"][:-1]},
            "contains 'c/empty', which its manifest",
        ),
        (lambda content: content | {"files": [*content["files"], ["d", 1, "0"]]}, "it ends before 'd'"),
        (lambda content: content | {"files": 3}, "its manifest lists no files"),
        (lambda content: content | {"files": [3]}, "its manifest lists no files"),
        (lambda content: content | {"version": 2}, "another version of fedrec wrote it"),
    ],
)
def test_a_manifest_that_does_not_fit_its_archive_is_refused(files, extracted, change, said):
    with pytest.raises(StorageError, match=said):
        extracted(with_manifest(written(files), change))


def test_a_manifest_that_is_not_sealed_is_refused(files, extracted):
    data = written(files).replace(b'"version": 1', b'"version": 3')
    with pytest.raises(
        StorageError, match="its manifest is damaged: its content does not match its checksum"
    ):
        extracted(data)


@pytest.mark.parametrize("name", ["../outside", "/absolute", "a/../../outside", "nu\0l"])
def test_a_name_that_leads_out_of_the_folder_is_refused(files, extracted, tmp_path, name):
    (manifest, text), (first, content), *others = members_of(written(files))
    listed = json.dumps(with_checksum(replaced(verified(text), 0, name))).encode()
    first.name = name
    with pytest.raises(StorageError, match=r"^made\.tar: .* fedrec imported nothing\."):
        extracted(made_of([(manifest, listed), (first, content), *others]))
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
@pytest.mark.parametrize("target", ["second", "/etc/passwd"])
def test_a_link_in_the_place_of_a_file_is_refused(files, extracted, kind, target):
    data = bytearray(written(files))
    place = bytes(data).index(b"a/first\0")
    header = tarfile.TarInfo("a/first")
    header.type, header.linkname, header.size = kind, target, 0
    data[place : place + 512] = header.tobuf(tarfile.GNU_FORMAT)
    with pytest.raises(StorageError, match=r"^made\.tar: .* fedrec imported nothing\."):
        extracted(bytes(data))


def test_an_archive_of_others_is_refused(files, extracted):
    (_, *others) = members_of(written(files))
    for data in (made_of(others), made_of([]), b"no tar", b"\x1f\x8b" + bytes(2000)):
        with pytest.raises(StorageError, match=r"^made\.tar: .* fedrec imported nothing\."):
            extracted(data)


def test_a_file_that_changes_while_it_is_written_is_named(files, monkeypatch):
    first = files["a/first"]
    monkeypatch.setattr(run_archive, "sha256_of_file", lambda path: path.write_bytes(b"longer"))
    with pytest.raises(StorageError, match=f"{first}: changed while fedrec read it. Export it again."):
        written(files)
