"""How a server weighs uploads against each other, for all clients at once."""

from collections.abc import Iterable
from functools import reduce

import torch
from torch import Tensor

from fedrec.federation.model.server_rule import PersonalValues

_SAME = 0.9
"""Directions more similar than this are taken for equal."""
_CHUNK = 1 << 24
"""Numbers of clients' values that are looked at together."""
_TINY = 1e-12


def columns(vectors: Tensor) -> tuple[Tensor, ...]:
    """Some columns at a time of as many vectors as there are clients."""
    parts: tuple[Tensor, ...] = vectors.split(max(1, _CHUNK // len(vectors)), dim=1)
    return parts


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


def project_on_simplex(vectors: Tensor) -> Tensor:
    """The nearest point of {x >= 0, sum x = 1} to each row: one sort instead of a programme per row."""
    ordered = vectors.sort(dim=1, descending=True).values
    excess = ordered.cumsum(1) - 1
    count = torch.arange(1, vectors.shape[1] + 1, device=vectors.device)
    support = (ordered * count > excess).sum(1, keepdim=True)
    threshold = excess.gather(1, support - 1) / support
    return (vectors - threshold).clamp(min=0)


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


def mean_of(kept: PersonalValues, who: Tensor, share: Tensor | None = None) -> Tensor:
    """The mean of what some clients hold, plain or weighted by a share each; some at a time."""
    first = kept.whole(who[:1])[0]
    weight = torch.ones(len(who), device=who.device) if share is None else share
    total = torch.zeros_like(first, dtype=torch.float64)
    at_once = max(1, _CHUNK // first.numel())
    for some, by in zip(who.split(at_once), weight.double().split(at_once), strict=True):
        total += torch.tensordot(by, kept.whole(some).double(), 1)
    return (total / weight.double().sum()).to(first.dtype)


def _products(parts: Iterable[Tensor]) -> Tensor:
    """The product of every two rows of a matrix, of which only some columns are held at a time."""
    return reduce(torch.add, (part @ part.T for part in parts))


def _distances(parts: Iterable[Tensor]) -> Tensor:
    product = _products(parts)
    square = product.diagonal()
    distances = (square.unsqueeze(1) + square - 2 * product).clamp(min=0)
    return distances.fill_diagonal_(0)


def _centred(vectors: Tensor) -> Tensor:
    return vectors - vectors.mean(0)
