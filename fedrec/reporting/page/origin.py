"""Captions without hashes: what names those of splits and code is for whoever checks, and shown folded."""

import re
from collections.abc import Iterable

_HASH = re.compile(r"\b[0-9a-f]{8}\b")
"""The first letters of a hash."""
_SENTENCES = re.compile(r"(?<=\.)\s+(?=[A-Z])")
"""What stands between two sentences."""


def sentences_of(text: str) -> list[str]:
    """The sentences of a caption."""
    return _SENTENCES.split(text)


def split_by_hash(parts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The sentences or lines that name no hash, and those that do."""
    every = list(parts)
    return [part for part in every if not _HASH.search(part)], [part for part in every if _HASH.search(part)]
