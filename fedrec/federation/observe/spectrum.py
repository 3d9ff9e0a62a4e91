"""Spectrum of an embedding table: singular values and information abundance."""

from torch import Tensor
from torch.linalg import eigvalsh


def singular_values(tables: Tensor) -> Tensor:
    """The singular values of each table (..., items, d), smallest first."""
    double = tables.double()
    # The eigenvalues of this small matrix, d x d, are the squares of the singular values.
    values: Tensor = eigvalsh(double.transpose(-1, -2) @ double).clamp(min=0).sqrt()
    return values


def information_abundance(tables: Tensor) -> Tensor:
    """The sum of the singular values of each table (..., items, d), divided by the largest.

    It lies between 1 (all rows lie on one line) and d (all singular values are equal).
    """
    values = singular_values(tables)
    return values.sum(-1) / values[..., -1].clamp(min=1e-300)
