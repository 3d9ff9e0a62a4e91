"""How alike the uploads of clients are, for all pairs of clients at once."""

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

from fedrec.federation.server.mixing import columns
from fedrec.methods._math.symmetric import products_of_rows

_SAME = 0.9
"""Directions more similar than this are taken for equal."""
_TINY = 1e-12


def squared_distances(vectors: Tensor) -> Tensor:
    """The squared distance of every pair of rows, by matrix products.

    Rows are centred first: what all have in common would drown their differences in rounding.
    """
    return _distances(_centred(part) for part in columns(vectors))


def cosine_distances(vectors: Tensor) -> Tensor:
    """1 minus the cosine of every pair of rows: half the squared distance of their directions."""
    length = vectors.norm(dim=1, keepdim=True).clamp(min=_TINY)
    return _distances(_centred(part / length) for part in columns(vectors)) / 2


def first_components(tables: Tensor) -> Tensor:
    """Each table (tables x items x d), centred and projected on its first principal axis: tables x items.

    The axis points to where its largest coordinate is positive; by itself it has no direction.
    """
    centred = tables - tables.mean(1, keepdim=True)
    _, axes = torch.linalg.eigh(centred.transpose(1, 2) @ centred)
    first = axes[:, :, -1]
    largest = first.gather(1, first.abs().argmax(1, keepdim=True))
    return torch.einsum("tid,td->ti", centred, first * largest.sign())


def same_direction(vectors: Tensor, start: Tensor) -> Tensor:
    """The cosine of every pair of ways from `start` to a row, 1 where it is above 0.9."""
    starts = columns(start.expand(len(vectors), -1))
    product = _products(part - first for part, first in zip(columns(vectors), starts, strict=True))
    length = product.diagonal().sqrt().clamp(min=_TINY)
    cosine = product / length / length.unsqueeze(1)
    cosine.fill_diagonal_(1.0)
    return torch.where(cosine > _SAME, 1.0, cosine)


def neighbours(likeness: Tensor, threshold: float, count: int | None) -> Tensor:
    """Equal weights for each client's neighbours, rows adding up to 1; itself alone where it has none.

    Neighbours are those whose likeness is above `threshold` times the mean over all pairs, or the `count`
    most alike.
    """
    if count is None:
        chosen = likeness > threshold * likeness.mean()
    else:
        nearest = likeness.topk(min(count, len(likeness)), dim=1).indices
        chosen = torch.zeros_like(likeness, dtype=torch.bool).scatter_(1, nearest, value=True)
    alone = ~chosen.any(1)
    chosen = chosen | torch.diag(alone)
    return chosen.to(likeness.dtype) / chosen.sum(1, keepdim=True)


def _products(parts: Iterable[Tensor]) -> Tensor:
    """The product of every two rows of a matrix, of which only some columns are held at a time."""
    return reduce(torch.add, map(products_of_rows, parts))


def _distances(parts: Iterable[Tensor]) -> Tensor:
    product = _products(parts)
    square = product.diagonal()
    distances = (square.unsqueeze(1) + square - 2 * product).clamp(min=0)
    return distances.fill_diagonal_(0)


def _centred(vectors: Tensor) -> Tensor:
    return vectors - vectors.mean(0)
