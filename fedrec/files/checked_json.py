"""JSON that carries a hash of what it says, so that a damaged file is not taken for good."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json, write_text

CHECKSUM_KEY = "sha256"
"""The key of the hash, beside the content."""


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` as JSON gives it back, with its hash."""
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return {**plain, CHECKSUM_KEY: _hash(plain)}


def verified(text: str | bytes) -> dict[str, Any]:
    """The content of a sealed JSON text, without its hash; `ValueError` says what a damaged one has wrong."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict) or CHECKSUM_KEY not in content:
        raise ValueError("it has no checksum, or another version of fedrec wrote it")
    said = content.pop(CHECKSUM_KEY)
    if said != _hash(content):
        raise ValueError("its content does not match its checksum")
    return content


def write_checked_json(path: Path, content: Mapping[str, Any], indent: int = 2) -> None:
    """Write `content` with its hash, whole or not at all."""
    write_text(path, json.dumps(with_checksum(content), indent=indent) + "\n")


def read_checked_json(path: Path) -> dict[str, Any]:
    """The content that `write_checked_json` wrote.

    `FileNotFoundError` where there is no such file, `ValueError` where it is damaged: the caller knows how it
    is made again.
    """
    try:
        return verified(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror}).") from error


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode("utf-8", "surrogatepass")).hexdigest()
