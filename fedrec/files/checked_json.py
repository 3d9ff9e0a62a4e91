"""JSON with a checksum of its content, so that readers detect damage."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json, write_text

CHECKSUM_KEY = "sha256"
"""The key of the checksum, beside the content."""


def with_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """`content` after a round trip through JSON, with its checksum."""
    plain: dict[str, Any] = json.loads(json.dumps(content))
    return {**plain, CHECKSUM_KEY: _hash(plain)}


def verified(text: str | bytes) -> dict[str, Any]:
    """The content of JSON text with a checksum, without it; `ValueError` describes the damage."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict) or CHECKSUM_KEY not in content:
        raise ValueError("it has no checksum, or another version of fedrec wrote it")
    checksum = content.pop(CHECKSUM_KEY)
    if checksum != _hash(content):
        raise ValueError("its content does not match its checksum")
    return content


def write_checked_json(path: Path, content: Mapping[str, Any], indent: int = 2) -> None:
    """Write `content` with its checksum, atomically."""
    write_text(path, json.dumps(with_checksum(content), indent=indent) + "\n")


def read_checked_json(path: Path) -> dict[str, Any]:
    """The content that `write_checked_json` wrote.

    `FileNotFoundError` if the file does not exist, `ValueError` if it is damaged. The caller adds how to make
    it again.
    """
    try:
        return verified(path.read_bytes())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(f"{path}: cannot be read ({error.strerror}).") from error


def _hash(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content).encode("utf-8", "surrogatepass")).hexdigest()
