"""Losses of two views of the same items: PLGC's, and those that its paper compares it with.

A view has the shape (..., batch, d); engines add leading axes. `chosen` (..., batch, 1) is 1 for the samples
that count.
"""

import torch
from torch import Tensor
from torch.nn import functional

_TEMPERATURE = 0.1
_TINY = 1e-12


def column_cosines(own: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """H (Eq. 18 of PLGC): the cosine of every column of one view with every column of the other."""
    own, other = own * chosen, other * chosen
    product = own.transpose(-1, -2) @ other
    return product / (_length(own).transpose(-1, -2) * _length(other)).clamp(min=_TINY)


def alignment_and_uniformity(own: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """AU: pulls the two views of an item together, and spreads different items over the sphere."""
    own, other = functional.normalize(own, dim=-1), functional.normalize(other, dim=-1)
    count = chosen.sum((-1, -2))
    aligned = ((own - other).square() * chosen).sum((-1, -2)) / count
    return aligned + (_uniformity(own, chosen) + _uniformity(other, chosen)) / 2


def contrast(own: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """InfoNCE (DuoRec): tells an item's other view from those of the other items of the mini-batch."""
    own, other = functional.normalize(own, dim=-1), functional.normalize(other, dim=-1)
    similarity = own @ other.transpose(-1, -2) / _TEMPERATURE
    similarity = similarity.masked_fill(chosen.transpose(-1, -2) == 0, -torch.inf)
    each = similarity.logsumexp(-1, keepdim=True) - (own * other).sum(-1, keepdim=True) / _TEMPERATURE
    return (each * chosen).sum((-1, -2)) / chosen.sum((-1, -2))


def decorrelation(own: Tensor, chosen: Tensor) -> Tensor:
    """FedDecorr: the squared norm of the columns' correlation matrix, divided by d^2."""
    columns = centred(own, chosen) * chosen
    correlation = column_cosines(columns, columns, chosen)
    return correlation.square().sum((-1, -2)) / own.shape[-1] ** 2


def centred(rows: Tensor, chosen: Tensor) -> Tensor:
    """The columns minus their means over the chosen samples."""
    return rows - (rows * chosen).sum(-2, keepdim=True) / chosen.sum(-2, keepdim=True)


def _uniformity(rows: Tensor, chosen: Tensor) -> Tensor:
    distances = 2 - 2 * rows @ rows.transpose(-1, -2)
    both = chosen * chosen.transpose(-1, -2)
    # Pairs of an item with itself do not count; a single item has no pairs, and its uniformity is 0.
    pairs = both.sum((-1, -2)) - chosen.sum((-1, -2))
    total = ((-2 * distances).exp() * both).sum((-1, -2)) - chosen.sum((-1, -2))
    mean = total / pairs.clamp(min=1)
    return torch.where(pairs > 0, mean.clamp(min=_TINY).log(), 0.0)


def _length(rows: Tensor) -> Tensor:
    # The square root has no slope at 0, and a head of rectified units may make a column 0.
    return (rows.square().sum(-2, keepdim=True) + _TINY).sqrt()
