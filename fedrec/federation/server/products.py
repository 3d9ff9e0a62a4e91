"""Item tables brought to given products of their rows, for all clients at once."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor


@dataclass(frozen=True)
class Goal:
    """Wanted products of rows (items x items), seen along the axes of their symmetric half."""

    values: Tensor
    axes: Tensor
    """items x axes."""
    square: Tensor
    """The sum of the squares of all products."""

    @classmethod
    def of(cls, products: Tensor) -> Self:
        """Take products apart, in double precision; O(items^3)."""
        wide = products.double()
        values, axes = torch.linalg.eigh((wide + wide.T) / 2)
        return cls(values, axes.to(products.dtype), wide.square().sum())


def approach_products(tables: Tensor, goal: Goal, steps: int, rate: float, decay: float) -> Tensor:
    """Each table Q (clients x items x d) after `steps` of SGD on the norm |Q Q^T - goal|, with weight decay.

    The gradient 2 (Q Q^T - goal) Q / |Q Q^T - goal| needs no matrix of items x items per client: with
    G = Q^T Q it is 2 (Q G - goal Q) / |Q Q^T - goal|, and the square of the norm is
    |G|^2 - 2 <Q, goal Q> + |goal|^2. A goal that is not symmetric counts by its symmetric half, except in
    the norm. Turned to the axes of the goal, that product is one number per row, and all else stays as it is:
    O(clients x items^2 x d) to turn tables there and back, O(clients x items x d^2) for a step.
    """
    turned = _product(goal.axes.T, tables)
    values = goal.values.to(turned.dtype).unsqueeze(1)
    rest = (1 - rate * decay) * torch.eye(tables.shape[2], dtype=turned.dtype, device=turned.device)
    # A shorter norm is rounding alone: a table that has reached the goal stays there.
    least = torch.finfo(turned.dtype).eps * float(goal.square) + torch.finfo(turned.dtype).tiny
    moved = torch.empty_like(turned)
    for _ in range(steps):
        gram = turned.transpose(1, 2) @ turned
        # Near the goal these sums all but cancel: in double precision they leave something over.
        meeting = torch.mul(turned, turned, out=moved).sum(2).double() @ goal.values
        square = gram.double().square().sum((1, 2)) - 2 * meeting + goal.square
        size = square.clamp(min=least).sqrt()
        pace = (2 * rate / size).to(turned.dtype)[:, None, None]
        torch.bmm(turned, rest - pace * gram, out=moved)
        moved.addcmul_(turned, pace * values)
        turned, moved = moved, turned
    return _product(goal.axes, turned)


def _product(matrix: Tensor, tables: Tensor) -> Tensor:
    """A matrix times every table, as one product."""
    clients, items, d = tables.shape
    found = matrix @ tables.transpose(0, 1).reshape(items, -1)
    return found.reshape(items, clients, d).transpose(0, 1).contiguous()
