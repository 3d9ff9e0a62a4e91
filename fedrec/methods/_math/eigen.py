"""Eigenpairs of a symmetric matrix: all of them, or a few strong ones and a matrix of what is left."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

_STRONG = 32
"""The most axes that are taken out of a matrix."""

_BLOCK = 64
"""Directions that are followed to find them: axes far above the last are found soon."""

_TURNS = 12
"""How often directions are turned by the matrix."""

_FOUND = {torch.float32: 1e-10, torch.float64: 1e-13}
"""How far the matrix may turn an axis, as a share of its strongest value, by the precision that is wanted.

So axes of values below that share always count as found."""


@dataclass(frozen=True)
class Eigenpairs:
    """A symmetric matrix (items, items) as the sum of value x axis x axis^T, and a remainder."""

    values: Tensor
    """In double precision, strongest first."""
    vectors: Tensor
    """items x values."""
    rest: Tensor | None
    """The matrix without these axes, as a share of `bound`; nothing where all axes are here."""
    bound: float
    """About the strongest value of what is left; were it too small, powers of the rest would grow."""
    rest_square: float
    """The sum of the squares of what is left."""

    @classmethod
    def all_of(cls, matrix: Tensor, dtype: torch.dtype) -> Self:
        """Every axis of a matrix in double precision; O(items^3), and slow."""
        values, axes = torch.linalg.eigh(matrix)
        order = values.abs().argsort(descending=True)
        return cls(values[order], axes[:, order].to(dtype), None, 0.0, 0.0)

    @classmethod
    def strong_of(cls, matrix: Tensor, dtype: torch.dtype) -> Self:
        """The strongest axes of a matrix in double precision, none to a few, in O(items^2).

        By turning a block of directions again and again: axes whose values stand out are found to all digits,
        and are taken; those that others come close to are left in the rest.
        """
        if len(matrix) <= _BLOCK:
            return cls.all_of(matrix, dtype)
        values, axes, turned_by = _followed(matrix)
        found = turned_by <= _FOUND[dtype] * values[0].abs()
        strong = min(_STRONG, int(found.cumprod(0).sum()))
        taken, kept = values[:strong], axes[:, :strong]
        rest = matrix - (kept * taken) @ kept.T
        # Where all else is nothing, the rest is what rounding left: no share of it is to be larger than 1.
        least = torch.finfo(matrix.dtype).eps * float(values[0].abs()) + torch.finfo(dtype).tiny
        bound = max(float(values[strong].abs()), least)
        return cls(taken, kept.to(dtype), (rest / bound).to(dtype), bound, float(rest.square().sum()))


def _followed(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Values and axes within a block of directions, strongest first, and how far the matrix turns each."""
    # The same directions on every device; any will do that no axis is square to.
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
