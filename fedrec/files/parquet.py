"""Parquet files with metadata: settings, counts and a hash of their content.

This module needs only pyarrow, because machines that train may not have polars.
"""

import hashlib
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from fedrec.errors import StorageError
from fedrec.files.atomic import atomic, behind_link, canonical_json
from fedrec.files.checked_json import verified, with_checksum

_KEY = b"fedrec"
_REBUILD = "Delete it and type the command again that writes it."
_CLOSEST = 11
"""Brotli's highest level: files are a tenth smaller than with zstd's highest, and read nearly as fast."""
_SPELLED_AT_ONCE = 1 << 18
"""Values other than plain numbers to hash as one text."""
_DAMAGE = (
    pa.ArrowException,
    OSError,
    ValueError,
    TypeError,
    KeyError,
    NotImplementedError,
    MemoryError,
    OverflowError,
)
"""Errors of reading a damaged file: its bytes decide the number and the type of rows."""


def write_table(path: Path, table: pa.Table, about: dict[str, Any], *, archival: bool = False) -> str:
    """Write `table`, with `about`, the table's hash and a checksum as metadata; return the table's hash.

    Equal tables and equal `about` give equal bytes: this function fixes the writer's settings. With
    `archival` the compression is strongest, which takes seconds for each megabyte.
    """
    content = content_hash(table)
    metadata = {_KEY: canonical_json(with_checksum(about | {"content": content})).encode()}
    with atomic(path) as temporary:
        pq.write_table(
            table.replace_schema_metadata(metadata),
            temporary,
            compression="brotli" if archival else "zstd",
            compression_level=_CLOSEST if archival else None,
            # For columns of bytes, statistics would store two values uncompressed.
            write_statistics=not archival,
            use_dictionary=False,
            row_group_size=1 << 20,
            version="2.6",
        )
    return content


def read_table(
    path: Path,
    *,
    content: str | None = None,
    columns: Collection[str] = (),
    says: Collection[str] = (),
    rebuild: str = _REBUILD,
) -> tuple[pa.Table, dict[str, Any]]:
    """Read a table and its metadata; `StorageError` for a file that is damaged or not the expected one.

    With `content`, the table must have that hash. It must have `columns`, and the metadata keys in `says`.
    `rebuild` is the advice to the user for getting a good file.
    """
    rebuild += behind_link(path)
    try:
        # Not pq.read_table: it would read a parent folder called `d=8` as a column.
        table = pq.ParquetFile(path).read()
        stored = (table.schema.metadata or {}).get(_KEY)
    except FileNotFoundError:
        raise StorageError(f"{path}: no such file. {rebuild}") from None
    except _DAMAGE as error:
        raise StorageError(f"{path}: cannot be read ({error}). {rebuild}") from error
    if stored is None:
        raise StorageError(f"{path}: fedrec did not write it. {rebuild}")
    try:
        about = verified(stored)
        checksum = content_hash(table)
        if checksum != about["content"]:
            raise ValueError("its content does not match its checksum")
    except _DAMAGE as error:
        raise StorageError(f"{path}: is damaged: {error}. {rebuild}") from error
    if content not in (None, checksum):
        raise StorageError(f"{path}: is another file than the one written here. {rebuild}")
    missing = [*(set(columns) - set(table.column_names)), *(set(says) - about.keys())]
    if missing:
        raise StorageError(f"{path}: is another file of fedrec, without {min(missing)}. {rebuild}")
    return table, about


def read_metadata(path: Path) -> dict[str, Any]:
    """Metadata of a file, read without its rows; raise `StorageError` if it has none."""
    try:
        return verified((pq.read_schema(path).metadata or {})[_KEY])
    except _DAMAGE as error:
        raise StorageError(f"{path}: its metadata cannot be read ({error}). {_REBUILD}") from error


def content_hash(*tables: pa.Table) -> str:
    """sha256 of the columns' names, types and values, independent of the storage in a file."""
    digest = hashlib.sha256()
    for table in tables:
        for name, column in zip(table.column_names, table.columns, strict=True):
            digest.update(canonical_json([name, _type_name(column.type), len(column)]).encode())
            for piece in _bytes_of(column):
                digest.update(piece)
    return digest.hexdigest()


def _type_name(kind: pa.DataType) -> str:
    """The name of a type without its storage form, which a file may change."""
    if pa.types.is_fixed_size_list(kind):
        return f"{_type_name(kind.value_type)}[{kind.list_size}]"
    if pa.types.is_dictionary(kind):
        return _type_name(kind.value_type)
    return str(kind).removeprefix("large_").removesuffix("_view")


def _bytes_of(column: pa.ChunkedArray) -> Iterator[bytes | memoryview]:
    """The bytes of plain numbers; of bytes, their lengths and all of them; of everything else the JSON of a
    list, some values at a time.
    """
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks)
    words = None
    if pa.types.is_dictionary(array.type):
        if pa.types.is_primitive(array.type.value_type):
            array = array.dictionary_decode()
        else:
            words, array = _spelled(array)
    if pa.types.is_fixed_size_list(array.type):
        array = array.flatten()
    if words is None and pa.types.is_primitive(array.type) and array.null_count == 0:
        yield memoryview(array.to_numpy(zero_copy_only=False)).cast("B")
        return
    if pa.types.is_binary(array.type) and array.null_count == 0:
        yield np.diff(np.frombuffer(array.buffers()[1], np.int32)[array.offset :][: len(array) + 1]).tobytes()
        yield b"".join(array.to_pylist())
        return
    yield b"["
    for first in range(0, len(array), _SPELLED_AT_ONCE):
        part = array.slice(first, _SPELLED_AT_ONCE)
        text = canonical_json(part.to_pylist())[1:-1] if words is None else ",".join(words[part.to_numpy()])
        yield (f",{text}" if first else text).encode()
    yield b"]"


def _spelled(array: pa.DictionaryArray) -> tuple[NDArray[np.object_], pa.Array]:
    """The JSON of each word of a dictionary, that of no word behind them, and the index of each value's."""
    words = [canonical_json(word) for word in array.dictionary.to_pylist()]
    return np.array([*words, "null"], dtype=object), array.indices.fill_null(len(words))
