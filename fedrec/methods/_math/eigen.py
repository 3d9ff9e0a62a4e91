"""Eigenpairs of a symmetric matrix: all of them, or a few strong ones and the remaining matrix."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_STRONG = 32
"""Most eigenvectors (axes) that are separated from a matrix."""

_BLOCK = 64
"""Number of directions in the subspace iteration; axes far above the last converge soon."""

_TURNS = 12
"""Number of subspace iterations."""

_FOUND = {torch.float32: 1e-10, torch.float64: 1e-13}
"""Largest residual of a converged axis, relative to the largest eigenvalue, by the wanted precision.

So axes with smaller eigenvalues always count as converged."""


@dataclass(frozen=True)
class Eigenpairs:
    """A symmetric matrix (items, items) as the sum of value x axis x axis^T, and a remainder."""

    values: Tensor
    """Eigenvalues in double precision, the largest absolute value first."""
    vectors: Tensor
    """Eigenvectors: (items, values)."""
    rest: Tensor | None
    """The matrix without these axes, divided by `bound`; None if all axes are here."""
    bound: float
    """About the largest eigenvalue of the rest; if it were too small, powers of the rest would grow."""
    rest_square: float
    """The squared Frobenius norm of the rest."""

    @classmethod
    def all_of(cls, matrix: Tensor, dtype: torch.dtype) -> Self:
        """Compute all axes of a matrix in double precision; O(items^3), and slow."""
        values, axes = torch.linalg.eigh(matrix)
        order = values.abs().argsort(descending=True)
        return cls(values[order], axes[:, order].to(dtype), None, 0.0, 0.0)

    @classmethod
    def strong_of(cls, matrix: Tensor, dtype: torch.dtype) -> Self:
        """Compute up to a few of the strongest axes of a matrix in double precision, in O(items^2).

        Subspace iteration finds axes with well separated eigenvalues to all digits. Axes with close
        eigenvalues stay in the rest.
        """
        if len(matrix) <= _BLOCK:
            return cls.all_of(matrix, dtype)
        values, axes, turned_by = _followed(matrix)
        found = turned_by <= _FOUND[dtype] * values[0].abs()
        strong = min(_STRONG, int(found.cumprod(0).sum()))
        taken, kept = values[:strong], axes[:, :strong]
        rest = matrix - (kept * taken) @ kept.T
        # If only rounding remains, the bound keeps every number of the divided rest at or below 1.
        least = torch.finfo(matrix.dtype).eps * float(values[0].abs()) + torch.finfo(dtype).tiny
        bound = max(float(values[strong].abs()), least)
        return cls(taken, kept.to(dtype), (rest / bound).to(dtype), bound, float(rest.square().sum()))


def _followed(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The eigenvalues and axes in a block of directions, strongest first, and the residual of each."""
    # The same directions on every device. No axis may be orthogonal to all of them.
    start = torch.randn(len(matrix), _BLOCK, generator=torch.Generator().manual_seed(0), dtype=matrix.dtype)
    block = start.to(matrix.device)
    for _ in range(_TURNS):
        block = torch.linalg.qr(matrix @ block).Q
    turned = matrix @ block
    values, mixed = torch.linalg.eigh(block.T @ turned)
    order = values.abs().argsort(descending=True)
    values, mixed = values[order], mixed[:, order]
    axes = block @ mixed
    return values, axes, (turned @ mixed - axes * values).norm(dim=0)
