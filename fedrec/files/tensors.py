"""Tensors in a file, in the safetensors format: a json header, then the bytes.

Written here in a few lines because the machines that train need not have the package; any
safetensors reader opens the files, and files of others are read if they hold these types of numbers alone.
"""

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic

_NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
}
_NUMPY = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}


def save_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> None:
    """Write `tensors` and a `note` to `path`, whole or not at all; equal content gives equal bytes."""
    header: dict[str, object] = {"__metadata__": {"note": note}}
    arrays, offset = [], 0
    for name in sorted(tensors):
        value = tensors[name].detach().cpu().contiguous()
        header[name] = {
            "dtype": _NAMES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + value.nbytes],
        }
        arrays.append(value.numpy())
        offset += value.nbytes
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with atomic(path) as temporary, temporary.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        for array in arrays:
            stream.write(array.data)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], str]:
    """The tensors of a file, and the note `save_tensors` wrote with them (empty where there is none)."""
    tensors = {}
    try:
        with path.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
            note = header.pop("__metadata__", {}).get("note", "")
            # One tensor after the other, as they lie: a file may fill most of the memory.
            for name, entry in sorted(header.items(), key=lambda named: named[1]["data_offsets"]):
                stream.seek(8 + length + entry["data_offsets"][0])
                count = int(np.prod(entry["shape"], dtype=np.int64))
                flat = np.fromfile(stream, dtype=_NUMPY[entry["dtype"]], count=count)
                tensors[name] = torch.from_numpy(flat.reshape(entry["shape"]))
    except (struct.error, ValueError, KeyError) as error:
        raise StorageError(f"{path}: is damaged ({error}). Delete it and run again.") from error
    return tensors, note
