"""How a server weighs uploads against each other, for all clients at once."""

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.kept import Kept

_SAME = 0.9
"""Directions more similar than this are taken for equal."""
_CHUNK = 1 << 24
"""Numbers of clients' values that are looked at together."""


def squared_distances(vectors: Tensor) -> Tensor:
    """The squared distance of every pair of rows; one matrix product.

    Rows are centred first: what all have in common would drown their differences in rounding.
    """
    centred = vectors - vectors.mean(0)
    product = centred @ centred.T
    square = product.diagonal()
    distances = (square.unsqueeze(1) + square - 2 * product).clamp(min=0)
    return distances.fill_diagonal_(0)


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


def same_direction(vectors: Tensor) -> Tensor:
    """The cosine of every pair of rows, 1 where it is above 0.9."""
    unit = functional.normalize(vectors)
    cosine = unit @ unit.T
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


def mean_of(kept: Kept, who: Tensor, share: Tensor | None = None) -> Tensor:
    """The mean of what some clients hold, plain or weighted by a share each; some at a time."""
    first = kept.whole(who[:1])[0]
    weight = torch.ones(len(who), device=who.device) if share is None else share
    total = torch.zeros_like(first, dtype=torch.float64)
    at_once = max(1, _CHUNK // first.numel())
    for some, by in zip(who.split(at_once), weight.double().split(at_once), strict=True):
        total += torch.tensordot(by, kept.whole(some).double(), 1)
    return (total / weight.double().sum()).to(first.dtype)
