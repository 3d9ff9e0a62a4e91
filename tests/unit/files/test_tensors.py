"""Tensors in files, as this package and as the safetensors package read and write them."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.torch import save_file

from fedrec.errors import StorageError
from fedrec.files.tensors import load_tensors, save_tensors

TENSORS = {
    "shared/Q": torch.linspace(-1, 1, 6).reshape(2, 3),
    "optimiser/Q/steps": torch.tensor([3.5, 1e300], dtype=torch.float64),
    "clients/user": torch.tensor([-1, 2**40]),
    "kept/Q/place": torch.tensor([[1], [-2]], dtype=torch.int32),
    "clients/joined": torch.tensor([True, False]),
    "rounds": torch.tensor(7),
    "empty": torch.zeros(0, 2),
}


def test_tensors_travel_through_a_file(tmp_path):
    tensors = {"b": torch.arange(6).reshape(2, 3), "a": torch.tensor([1.5]), "empty": torch.zeros(0, 2)}
    save_tensors(tmp_path / "t.safetensors", tensors, "note")
    found, note = load_tensors(tmp_path / "t.safetensors")
    assert note == "note"
    assert all(torch.equal(tensors[name], found[name]) for name in tensors)
    content = (tmp_path / "t.safetensors").read_bytes()
    save_tensors(tmp_path / "again.safetensors", dict(reversed(tensors.items())), "note")
    assert (tmp_path / "again.safetensors").read_bytes() == content
    (tmp_path / "t.safetensors").write_bytes(content[:-4])
    with pytest.raises(StorageError, match="is damaged"):
        load_tensors(tmp_path / "t.safetensors")


def test_the_safetensors_package_reads_what_is_written(tmp_path):
    path = tmp_path / "state.safetensors"
    save_tensors(path, TENSORS, json.dumps({"method": "fedmf"}))
    arrays = load_file(path)
    assert arrays.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert arrays[name].dtype == value.numpy().dtype, name
        assert np.array_equal(arrays[name], value.numpy()), name
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["note"]) == {"method": "fedmf"}
        assert torch.equal(file.get_tensor("shared/Q"), TENSORS["shared/Q"])


def test_what_the_safetensors_package_writes_is_read(tmp_path):
    path = tmp_path / "state.safetensors"
    save_file(TENSORS, path, metadata={"note": "written elsewhere"})
    tensors, note = load_tensors(path)
    assert note == "written elsewhere"
    assert tensors.keys() == TENSORS.keys()
    for name, value in TENSORS.items():
        assert tensors[name].dtype == value.dtype, name
        assert torch.equal(tensors[name], value), name
