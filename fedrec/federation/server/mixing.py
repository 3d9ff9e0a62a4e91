"""Client values that the server reads in chunks."""

import torch
from torch import Tensor

from fedrec.federation.model.server_rule import PersonalValues
from fedrec.federation.table_sums import add_weighted_sum

_CHUNK = 1 << 24
"""Elements of clients' values that are processed at once."""


def columns(vectors: Tensor) -> tuple[Tensor, ...]:
    """Blocks of columns of the vectors of all clients: (clients, columns)."""
    parts: tuple[Tensor, ...] = vectors.split(max(1, _CHUNK // len(vectors)), dim=1)
    return parts


def clients_at_once(shape: torch.Size) -> int:
    """Number of clients whose values of a shape are processed at once."""
    return max(1, _CHUNK // max(1, shape.numel()))


def weighted_sums(values: Tensor, weights: Tensor) -> Tensor:
    """The sum over clients of weight x value, in double precision: (..., *shape).

    `values` has the shape (clients, *shape), `weights` the shape (..., clients).
    """
    shape = values.shape[1:]
    total = torch.zeros((*weights.shape[:-1], *shape), dtype=torch.float64, device=values.device)
    if add_weighted_sum(total, values, weights):
        return total
    at_once = clients_at_once(shape)
    for some, by in zip(values.split(at_once), weights.double().split(at_once, dim=-1), strict=True):
        total += torch.tensordot(by, some.double(), 1)
    return total


def means_of(values: PersonalValues, who: Tensor, weights: Tensor) -> Tensor:
    """The weighted means of some clients' values, one per row of `weights`."""
    total = values.sums(who, weights)
    size = weights.double().sum(-1)
    size = size.reshape(*size.shape, *(1 for _ in range(total.dim() - size.dim())))
    return (total / size).to(torch.get_default_dtype())


def mean_of(values: PersonalValues, who: Tensor) -> Tensor:
    """The plain mean of some clients' values."""
    return means_of(values, who, torch.ones(len(who), device=who.device))
