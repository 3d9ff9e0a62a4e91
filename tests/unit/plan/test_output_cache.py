"""The cache between checkouts: what would be lost is told before, and what differs is told apart."""

import hashlib

import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.errors import ConfigurationError
from fedrec.plan.output_cache import check_cache, unchecked_origin
from tests.conftest import entry

CHECKED = {"path": "a.csv", "sha256": hashlib.sha256(b"rows").hexdigest()}


@pytest.fixture
def raw(write_catalogue):
    """A raw file whose entry has some keys changed."""

    def made(**changes):
        usual = entry("a.csv")
        table = {key: value for key, value in usual["interactions"].items() if key != "unverified"}
        return load_catalogue(write_catalogue(made=usual | {"interactions": table | changes})).raw_file(
            "a.csv"
        )

    return made


def mirror_with(folder, content):
    folder.mkdir()
    (folder / "a.csv").write_bytes(content)
    return folder


def test_a_cache_lies_in_a_folder_where_one_may_write(tmp_path):
    check_cache(str(tmp_path))
    check_cache("s3://bucket/cache")
    for location, said in (
        (None, "--cache: no folder is set. Type: export"),
        ("", "--cache: no folder is set. Type: export"),
        (
            str(tmp_path / "gone"),
            "gone, which is not a folder that you can write to. Create it, or set another folder.",
        ),
        (__file__, "which is not a folder that you can write to. Create it, or set another folder."),
    ):
        with pytest.raises(ConfigurationError, match=said):
            check_cache(location)


def test_content_that_is_checked_has_no_other_origin(raw, tmp_path):
    mirror = mirror_with(tmp_path / "mirror", b"whatever")
    assert unchecked_origin(raw(sha256=CHECKED["sha256"]), mirror) == ""


def test_two_copies_of_what_nobody_checks_differ(raw, tmp_path):
    file = raw(unverified="made by a test")
    one, same, other = (
        unchecked_origin(file, mirror_with(tmp_path / name, content))
        for name, content in (("one", b"rows"), ("same", b"rows"), ("other", b"other rows"))
    )
    assert one == same
    assert len({one, other, unchecked_origin(file, None), unchecked_origin(file, tmp_path)}) == 3


def test_a_file_that_one_source_gives_otherwise_is_not_checked(raw, tmp_path):
    mirror = mirror_with(tmp_path / "mirror", b"rows")
    sources = [{"url": "https://example.org/a.csv", "unverified": "another edition"}]
    assert unchecked_origin(raw(sha256=CHECKED["sha256"], sources=sources), mirror) != ""
