"""Spectrum of a table of embeddings: singular values and information abundance."""

from torch import Tensor
from torch.linalg import eigvalsh


def singular_values(tables: Tensor) -> Tensor:
    """The singular values of each table (... x items x d), smallest first."""
    double = tables.double()
    # d x d is small: the squares of the singular values.
    values: Tensor = eigvalsh(double.transpose(-1, -2) @ double).clamp(min=0).sqrt()
    return values


def information_abundance(tables: Tensor) -> Tensor:
    """The sum of the singular values over the largest of each table (... x items x d): from 1 to d.

    1 means that all rows lie on one line; d that every dimension carries the same.
    """
    values = singular_values(tables)
    return values.sum(-1) / values[..., -1].clamp(min=1e-300)
