"""What clients hold, looked at by the server some numbers at a time."""

import torch
from torch import Tensor

from fedrec.federation.model.server_rule import PersonalValues

_CHUNK = 1 << 24
"""Numbers of clients' values that are looked at together."""


def columns(vectors: Tensor) -> tuple[Tensor, ...]:
    """Some columns at a time of as many vectors as there are clients."""
    parts: tuple[Tensor, ...] = vectors.split(max(1, _CHUNK // len(vectors)), dim=1)
    return parts


def weighted_sums(values: Tensor, weights: Tensor) -> Tensor:
    """The sum over clients of weight x value, in double precision, for every row of `weights`.

    Clients are the leading axis of `values` and the last one of `weights`; some are looked at at a time.
    """
    shape = values.shape[1:]
    total = torch.zeros((*weights.shape[:-1], *shape), dtype=torch.float64, device=values.device)
    at_once = max(1, _CHUNK // max(1, shape.numel()))
    for some, by in zip(values.split(at_once), weights.double().split(at_once, dim=-1), strict=True):
        total += torch.tensordot(by, some.double(), 1)
    return total


def means_of(kept: PersonalValues, who: Tensor, weights: Tensor) -> Tensor:
    """Weighted means of what some clients hold, one for every row of `weights`; some clients at a time."""
    first = kept.whole(who[:1])
    at_once = max(1, _CHUNK // first.numel())
    total = weighted_sums(first[:0], weights[..., :0])
    for some, by in zip(who.split(at_once), weights.split(at_once, dim=-1), strict=True):
        total += weighted_sums(kept.whole(some), by)
    size = weights.double().sum(-1).reshape(*weights.shape[:-1], *(1 for _ in first.shape[1:]))
    return (total / size).to(first.dtype)


def mean_of(kept: PersonalValues, who: Tensor) -> Tensor:
    """The plain mean of what some clients hold."""
    return means_of(kept, who, torch.ones(len(who), device=who.device))
