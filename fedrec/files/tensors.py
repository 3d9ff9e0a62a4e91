"""Tensors in a file, in the safetensors format: a json header, then the bytes.

Machines that train need not have the safetensors package; any safetensors reader opens the files. The header
carries a checksum of the tensors and of a note. A file without a checksum, or with another one, is refused.
Threads write and hash: 8.6 GB of an H200 take 4 s with eight threads, and 11 s with one.
"""

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic, behind_link, canonical_json

_NAMES = {
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.bool: "BOOL",
}
_NUMPY = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4", "BOOL": "|b1"}
_METADATA = "__metadata__"
_PREFIX = 8
"""Bytes before the header: its length."""
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, struct.error)
"""Errors of a header that is not JSON, or does not describe tensors."""
_PIECE = 1 << 24
"""Bytes to hash at once."""
_BUFFERS, _THREADS = 8, 8
_REBUILD = "Delete it and type the command again that writes it."


def save_tensors(path: Path, tensors: Mapping[str, Tensor], note: str = "") -> str:
    """Write `tensors` and a `note` to `path`, atomically; return the hash of both.

    Equal content gives equal bytes.
    """
    named = {name: tensors[name].detach().contiguous() for name in sorted(tensors)}
    # The hash is known at the end. A placeholder of the same length reserves its bytes.
    header = _header_text(named, note, "0" * hashlib.sha256().digest_size * 2)
    with atomic(path) as temporary, temporary.open("wb") as stream, _pool() as pool:
        offset = stream.write(header)
        stream.flush()
        digest = _begun(note)
        for name, value in named.items():
            pieces: list[Future[bytes]] = []
            for piece in _pieces(value, pieces):
                pieces.append(pool.submit(_written, stream.fileno(), piece, offset))
                offset += len(piece)
            _add(digest, name, value, (piece.result() for piece in pieces))
        content = digest.hexdigest()
        stream.seek(0)
        stream.write(_header_text(named, note, content))
    return content


def _header_text(named: Mapping[str, Tensor], note: str, content: str) -> bytes:
    """The bytes before the tensors."""
    header: dict[str, object] = {_METADATA: {"note": note, "sha256": content}}
    offset = 0
    for name, value in named.items():
        header[name] = {
            "dtype": _NAMES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [offset, offset + value.nbytes],
        }
        offset += value.nbytes
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _pieces(value: Tensor, under_way: "list[Future[bytes]]") -> Iterator[NDArray[np.uint8]]:
    """Yield the bytes of a tensor in pieces.

    A tensor on a GPU is copied through a few buffers. A buffer is reused once the earlier work on it, in
    `under_way`, is done.
    """
    flat = value.reshape(-1).view(torch.uint8) if value.numel() else value.new_empty(0, dtype=torch.uint8)
    buffers: list[Tensor] = []
    for number, start in enumerate(range(0, len(flat), _PIECE)):
        piece = flat[start : start + _PIECE]
        if piece.is_cuda:
            if number < _BUFFERS:
                buffers.append(torch.empty(_PIECE, dtype=torch.uint8, pin_memory=True))
            else:
                under_way[number - _BUFFERS].result()
            piece = buffers[number % _BUFFERS][: len(piece)].copy_(piece)
        yield piece.numpy()


def load_tensors(
    path: Path, *, content: str | None = None, rebuild: str = _REBUILD
) -> tuple[dict[str, Tensor], str]:
    """Read the tensors and the note that `save_tensors` wrote; `StorageError` for a damaged or foreign file.

    With `content`, they must have that hash. `rebuild` is the advice to the user for getting a good file.
    """
    rebuild += behind_link(path)
    try:
        with path.open("rb") as stream:
            tensors, metadata = _read(stream)
        note, checksum = metadata.get("note", ""), metadata.get("sha256")
        if checksum is None:
            raise ValueError("it has no checksum, or another version of fedrec wrote it")
        actual = _hash(note, sorted(tensors.items()))
        if checksum != actual:
            raise ValueError("its content does not match its checksum")
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror}). {rebuild}") from error
    except ValueError as error:
        raise StorageError(f"{path}: is damaged: {error}. {rebuild}") from error
    except _MALFORMED as error:
        raise StorageError(f"{path}: is damaged: its header is malformed ({error!r}). {rebuild}") from error
    if content not in (None, actual):
        raise StorageError(f"{path}: is another file than the one written here. {rebuild}")
    return tensors, note


def noted_in(path: Path) -> str:
    """Read the note of a file without its tensors; `StorageError` if it is unreadable."""
    try:
        with path.open("rb") as stream:
            return _header(stream)[1].get("note", "")
    except (OSError, *_MALFORMED) as error:
        raise StorageError(f"{path}: its metadata cannot be read ({error}). {_REBUILD}") from error


def _header(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, str]]:
    """The header's entries of tensors, and its metadata; raises one of `_MALFORMED` for a damaged header."""
    (length,) = struct.unpack("<Q", stream.read(_PREFIX))
    if length > _size(stream) - _PREFIX:
        raise ValueError("its header is longer than the file")
    header = json.loads(stream.read(length))
    return header, header.pop(_METADATA, {})


def _read(stream: BinaryIO) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the metadata of a file; raises one of `_MALFORMED` if the header does not fit it.

    It reads one tensor after the other, in the order of the file, which may fill most of the memory.
    """
    entries, metadata = _header(stream)
    first, size = stream.tell(), _size(stream)
    tensors = {}
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, end = entry["data_offsets"]
        if not 0 <= start <= end <= size - first:
            raise ValueError(f"{name} is outside of it")
        stream.seek(first + start)
        flat = np.fromfile(stream, np.uint8, count=end - start)
        tensors[name] = torch.from_numpy(flat.view(_NUMPY[entry["dtype"]]).reshape(entry["shape"]))
    return tensors, metadata


def _size(stream: BinaryIO) -> int:
    return os.fstat(stream.fileno()).st_size


def _hash(note: str, tensors: Iterable[tuple[str, Tensor]]) -> str:
    """sha256 of the note, and of each tensor, by name: its name, type, shape and the sha256 of its pieces."""
    digest = _begun(note)
    with _pool() as pool:
        for name, value in tensors:
            _add(digest, name, value, pool.map(_sha256, _pieces(value, [])))
    return digest.hexdigest()


def _begun(note: str) -> "hashlib._Hash":
    return hashlib.sha256(canonical_json(note).encode("utf-8", "surrogatepass"))


def _add(digest: "hashlib._Hash", name: str, value: Tensor, pieces: Iterable[bytes]) -> None:
    about = [name, _NAMES[value.dtype], list(value.shape)]
    digest.update(canonical_json(about).encode("utf-8", "surrogatepass"))
    for piece in pieces:
        digest.update(piece)


def _written(file: int, piece: NDArray[np.uint8], offset: int) -> bytes:
    """Write a piece at the byte `offset` of an open file; return its hash."""
    left = piece.data
    while left:
        written = os.pwrite(file, left, offset)
        left, offset = left[written:], offset + written
    return _sha256(piece)


def _sha256(piece: NDArray[np.uint8]) -> bytes:
    return hashlib.sha256(piece.data).digest()


def _pool() -> ThreadPoolExecutor:
    """Threads that write and hash pieces while a GPU copies the next ones."""
    return ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1))
