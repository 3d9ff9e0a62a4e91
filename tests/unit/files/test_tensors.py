"""Our few lines against the safetensors package itself, in both directions."""

import json
import struct

import pytest
import safetensors.torch
import torch

from fedrec.errors import StorageError
from fedrec.files import tensors as module
from fedrec.files.tensors import load_tensors, save_tensors

NUMBERS = torch.tensor([[0.0, -1.5, 3e7], [1.0, 2.0, -0.0]])
TENSORS = {
    # Three bytes, by its name in front of all others: nothing behind it stands at a multiple of its size.
    "a bool": torch.tensor([True, False, True]),
    **{f"numbers/{dtype}": NUMBERS.to(dtype) for dtype in module._NAMES},
    "empty": torch.zeros(0, 2),
    "extremes": torch.tensor([-(2**63), 2**63 - 1]),
    "not numbers": torch.tensor([torch.nan, torch.inf, -torch.inf], dtype=torch.float64),
    "one number": torch.tensor(7),
    "schräg": torch.arange(6.0).reshape(2, 3).T,
    "nobody's": torch.zeros(3, 0, dtype=torch.bool),
}


def same(first, second):
    """Whether two tensors are equal, bit for bit."""
    return (first.dtype, first.shape, first.contiguous().numpy().tobytes()) == (
        second.dtype, second.shape, second.contiguous().numpy().tobytes(),
    )  # fmt: skip


def all_the_same(first, second):
    return first.keys() == second.keys() and all(same(value, second[name]) for name, value in first.items())


def test_what_we_write_is_what_we_read(tmp_path):
    save_tensors(tmp_path / "t.safetensors", TENSORS, "a note")
    tensors, note = load_tensors(tmp_path / "t.safetensors")
    assert note == "a note"
    assert all_the_same(tensors, TENSORS)


def test_the_package_reads_what_we_write(tmp_path):
    path = tmp_path / "t.safetensors"
    save_tensors(path, TENSORS, 'a note, "quoted"')
    assert all_the_same(safetensors.torch.load_file(path), TENSORS)
    with safetensors.safe_open(path, framework="pt") as opened:
        assert opened.metadata().pop("note") == 'a note, "quoted"'
        assert same(opened.get_slice("numbers/torch.float32")[:, 1:], NUMBERS[:, 1:])


def test_we_read_what_the_package_writes(tmp_path):
    """In whatever order and places it puts tensors: the hash is that of the content."""
    path = tmp_path / "t.safetensors"
    content = save_tensors(path, TENSORS, "a note")
    contiguous = {name: value.contiguous() for name, value in TENSORS.items()}
    safetensors.torch.save_file(contiguous, path, metadata={"note": "a note", "sha256": content})
    tensors, note = load_tensors(path, content=content)
    assert note == "a note"
    assert all_the_same(tensors, TENSORS)


@pytest.mark.parametrize(
    ("metadata", "said"),
    [({"note": "theirs"}, "it has no checksum, or another version of fedrec wrote it"), (None, "it has no checksum, or another version of fedrec wrote it"), ({"sha256": "0" * 64}, "its content does not match its checksum")],
)  # fmt: skip
def test_what_does_not_carry_its_hash_is_refused(tmp_path, metadata, said):
    path = tmp_path / "t.safetensors"
    safetensors.torch.save_file({"a": torch.zeros(2)}, path, metadata=metadata)
    with pytest.raises(StorageError, match=said):
        load_tensors(path)


def test_every_byte_counts(tmp_path):
    path = tmp_path / "t.safetensors"
    content = save_tensors(path, {"a": torch.arange(3.0), "b": torch.tensor([True])}, "note")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StorageError, match=r"t.safetensors: is damaged: .*\. Delete it"):
            load_tensors(path)
    path.write_bytes(whole)
    assert load_tensors(path, content=content)[1] == "note"
    with pytest.raises(StorageError, match=r"is another file than the one written here\."):
        load_tensors(path, content="0" * 64)


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


@pytest.mark.parametrize(
    "header",
    [
        "[]", "7", "[" * 100_000, "{", "\udc80",
        {"a": 7}, {"a": {}}, {"a": ENTRY | {"dtype": 3}}, {"a": ENTRY | {"dtype": "F16"}},
        {"a": ENTRY | {"shape": [-2]}}, {"a": ENTRY | {"shape": 2}}, {"a": ENTRY | {"shape": [2.0]}},
        {"a": ENTRY | {"shape": [2**62, 2**62]}}, {"a": ENTRY | {"data_offsets": [8, 0]}},
        {"a": ENTRY | {"data_offsets": [0, 8, 16]}}, {"a": ENTRY | {"data_offsets": [2**40, 2**40 + 8]}},
        {"a": ENTRY | {"data_offsets": [-8, 0]}}, {"a": ENTRY | {"data_offsets": ["0", "8"]}},
        {"a": ENTRY | {"data_offsets": None}}, {"__metadata__": []}, {"__metadata__": {"note": 1}},
        {str(number): ENTRY for number in range(200)},
    ],
)  # fmt: skip
def test_a_header_that_cannot_be_is_refused(tmp_path, header):
    path = tmp_path / "t.safetensors"
    text = (header if isinstance(header, str) else json.dumps(header)).encode("utf-8", "surrogateescape")
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * 8)
    with pytest.raises(StorageError, match="is damaged"):
        load_tensors(path)


@pytest.mark.parametrize("length", [2**40, 2**63, 2**64 - 1, 17])
def test_a_header_longer_than_its_file_is_refused(tmp_path, length):
    path = tmp_path / "t.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}" + b"\0" * 14)
    with pytest.raises(StorageError, match="header is longer than the file"):
        load_tensors(path)


def test_what_cannot_be_opened_is_reported_plainly(tmp_path):
    with pytest.raises(StorageError, match=r"cannot be read \(Is a directory\)"):
        load_tensors(tmp_path)


def test_a_file_without_tensors_is_one_too(tmp_path):
    path = tmp_path / "t.safetensors"
    save_tensors(path, {})
    assert load_tensors(path) == ({}, "")
    assert safetensors.torch.load_file(path) == {}


def test_equal_content_gives_equal_bytes(tmp_path):
    save_tensors(tmp_path / "t.safetensors", TENSORS, "note")
    save_tensors(tmp_path / "again.safetensors", dict(reversed(TENSORS.items())), "note")
    assert (tmp_path / "t.safetensors").read_bytes() == (tmp_path / "again.safetensors").read_bytes()


@pytest.mark.parametrize("cut", [1, 100, -20])
def test_a_damaged_file_is_reported_plainly(tmp_path, cut):
    path = tmp_path / "t.safetensors"
    save_tensors(path, TENSORS)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(StorageError, match="is damaged"):
        load_tensors(path)


def test_types_we_do_not_hold_are_refused(tmp_path):
    path = tmp_path / "t.safetensors"
    safetensors.torch.save_file({"half": torch.zeros(2, dtype=torch.float16)}, path)
    with pytest.raises(StorageError, match="F16"):
        load_tensors(path)
