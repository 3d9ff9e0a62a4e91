"""How a server weighs uploads against each other, for all clients at once."""

import torch
from torch import Tensor


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
