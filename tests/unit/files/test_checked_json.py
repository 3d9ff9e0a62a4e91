import json

import pytest

from fedrec.errors import StorageError
from fedrec.files.checked_json import (
    CHECKSUM_KEY,
    read_checked_json,
    verified,
    with_checksum,
    write_checked_json,
)

CONTENT = {"b": [1, 2.5, None, "ü", float("inf")], "a": {"1": True}, "nan": float("nan")}


def test_what_is_sealed_is_read_back(tmp_path):
    path = tmp_path / "deep/file.json"
    write_checked_json(path, CONTENT)
    found = read_checked_json(path)
    assert repr(found) == repr(CONTENT)
    assert json.loads(path.read_text())[CHECKSUM_KEY] == with_checksum(found)[CHECKSUM_KEY]


def test_keys_and_tuples_are_sealed_as_json_holds_them():
    assert verified(json.dumps(with_checksum({"a": {1: (2, 3)}}))) == {"a": {"1": [2, 3]}}


def test_every_byte_that_says_something_counts(tmp_path):
    path = tmp_path / "file.json"
    write_checked_json(path, {"rounds": 20, "seed": 0, "loss": [0.5, 1e-7]})
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(ValueError, match=r"checksum|Expecting|Invalid|Extra|decode|Unterminated|Illegal"):
            read_checked_json(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "no checksum"),
        ("{}", "no checksum"),
        ("[" * 100_000, "too deeply"),
        ('{"sha256": 7}', "its content does not match its checksum"),
    ],
)
def test_what_is_not_sealed_is_refused(text, said):
    with pytest.raises(ValueError, match=said):
        verified(text)


def test_what_cannot_be_read_is_reported_plainly(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_checked_json(tmp_path / "none.json")
    with pytest.raises(StorageError, match=r"cannot be read \(Is a directory\)"):
        read_checked_json(tmp_path)
