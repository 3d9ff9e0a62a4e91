"""Similarity of clients' uploads, for all pairs of clients at once."""

import torch
from torch import Tensor

from fedrec.errors import DivergenceError
from fedrec.federation.model import Uploads
from fedrec.methods._math.symmetric import products_of_rows

_SAME = 0.9
"""Cosine above which two directions count as equal."""
_TINY = 1e-12


def squared_distances(vectors: Uploads) -> Tensor:
    """The squared distance of every pair of vectors, by matrix products.

    Vectors are centred first, because a large common part would cause rounding errors in their differences.
    """
    return _distances(vectors.sum_over_columns(lambda part, _: products_of_rows(_centred(part))))


def cosine_distances(vectors: Uploads) -> Tensor:
    """1 minus the cosine of every pair of vectors: half the squared distance of their directions."""
    length = lengths(vectors)
    return _distances(vectors.sum_over_columns(lambda part, _: products_of_rows(_centred(part / length)))) / 2


def cosines(vectors: Uploads) -> Tensor:
    """The cosine of every pair of vectors."""
    length = lengths(vectors)

    def products(part: Tensor, _: slice) -> Tensor:
        unit = part / length
        return unit @ unit.T

    return vectors.sum_over_columns(products)


def lengths(vectors: Uploads) -> Tensor:
    """The length of each vector, at least a tiny positive number: (clients, 1)."""
    return vectors.map(lambda some: some.norm(dim=1, keepdim=True).clamp(min=_TINY))


def first_components(tables: Tensor) -> Tensor:
    """Each table (tables, items, d), centred and projected on its first principal axis: (tables, items).

    The sign of an axis is arbitrary; here its largest coordinate is positive. Raise `DivergenceError` if a
    table or its squares are not finite.
    """
    centred = tables - tables.mean(1, keepdim=True)
    try:
        _, axes = torch.linalg.eigh(centred.transpose(1, 2) @ centred)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]  # documented, and not listed there
        raise DivergenceError(
            "training diverged; the numbers of an item table are too large to compute its principal axis. "
            "Lower the learning rate."
        ) from error
    first = axes[:, :, -1]
    largest = first.gather(1, first.abs().argmax(1, keepdim=True))
    return torch.einsum("tid,td->ti", centred, first * largest.sign())


def same_direction(vectors: Uploads, start: Tensor) -> Tensor:
    """The cosine of every pair of changes from `start` to a vector; above 0.9 it is 1."""
    product = vectors.sum_over_columns(lambda part, place: products_of_rows(part - start[place]))
    length = product.diagonal().sqrt().clamp(min=_TINY)
    cosine = product / length / length.unsqueeze(1)
    cosine.fill_diagonal_(1.0)
    return torch.where(cosine > _SAME, 1.0, cosine)


def neighbours(similarity: Tensor, threshold: float, count: int | None) -> Tensor:
    """Equal weights for each client's neighbours (clients, clients); without neighbours, 1 for the client.

    Neighbours are the clients whose similarity is above `threshold` times the mean over all pairs. With
    `count`, they are the `count` most similar ones.
    """
    if count is None:
        chosen = similarity > threshold * similarity.mean()
    else:
        nearest = similarity.topk(min(count, len(similarity)), dim=1).indices
        chosen = torch.zeros_like(similarity, dtype=torch.bool).scatter_(1, nearest, value=True)
    alone = ~chosen.any(1)
    chosen = chosen | torch.diag(alone)
    return chosen.to(similarity.dtype) / chosen.sum(1, keepdim=True)


def _distances(product: Tensor) -> Tensor:
    """The squared distances, given the inner product of every two vectors."""
    square = product.diagonal()
    distances = (square.unsqueeze(1) + square - 2 * product).clamp(min=0)
    return distances.fill_diagonal_(0)


def _centred(vectors: Tensor) -> Tensor:
    return vectors - vectors.mean(0)
