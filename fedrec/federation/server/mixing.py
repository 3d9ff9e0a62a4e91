"""Uploads of all clients, looked at in parts."""

from torch import Tensor

_CHUNK = 1 << 24
"""Numbers of clients' values that are looked at together."""


def columns(vectors: Tensor) -> tuple[Tensor, ...]:
    """Some columns at a time of as many vectors as there are clients."""
    parts: tuple[Tensor, ...] = vectors.split(max(1, _CHUNK // len(vectors)), dim=1)
    return parts
