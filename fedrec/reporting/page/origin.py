"""Split captions into text for readers and sentences with hashes, which the page folds."""

import re
from collections.abc import Iterable

_HASH = re.compile(r"\b[0-9a-f]{8}\b")
"""The first letters of a hash."""
_SENTENCES = re.compile(r"(?<=\.)\s+(?=[A-Z])")
"""The blank between two sentences."""


def sentences_of(text: str) -> list[str]:
    """The sentences of a caption."""
    return _SENTENCES.split(text)


def split_by_hash(parts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The sentences or lines without hashes, and those with hashes."""
    every = list(parts)
    return [part for part in every if not _HASH.search(part)], [part for part in every if _HASH.search(part)]
