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


def mean_of(kept: PersonalValues, who: Tensor, share: Tensor | None = None) -> Tensor:
    """The mean of what some clients hold, plain or weighted by a share each; some at a time."""
    first = kept.whole(who[:1])[0]
    weight = torch.ones(len(who), device=who.device) if share is None else share
    total = torch.zeros_like(first, dtype=torch.float64)
    at_once = max(1, _CHUNK // first.numel())
    for some, by in zip(who.split(at_once), weight.double().split(at_once), strict=True):
        total += torch.tensordot(by, kept.whole(some).double(), 1)
    return (total / weight.double().sum()).to(first.dtype)
