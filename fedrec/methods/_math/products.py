"""Products of every two item rows: what FedCIA's clients upload, and how they approach the server's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import Through, WholeTable
from fedrec.methods._math.symmetric import products_of_rows


class Products(Through):
    """Q Q^T, the products of every two rows of a table."""

    label = "products of rows"

    @override
    def of_one(self, table: Tensor) -> Tensor:
        return table @ table.T

    @override
    def weighted_sum(self, tables: Tensor, weights: Tensor) -> Tensor:
        # All tables side by side: one product instead of one matrix of items x items per client.
        side = (tables * weights.sqrt()[:, None, None]).transpose(0, 1).flatten(1)
        return products_of_rows(side)


class Approach(WholeTable):
    """A table after `steps` of SGD on the (not squared) norm |Q Q^T - goal|, with weight decay.

    `goal` names the server's parameter that holds the wanted products.
    """

    def __init__(self, goal: str, steps: int, rate: float, decay: float) -> None:
        self.goal, self.steps, self.rate, self.decay = goal, steps, rate, decay
        self._goal: Goal | None = None

    @override
    def of_one(self, table: Tensor, server: Mapping[str, Tensor]) -> Tensor:
        table = table.clone().requires_grad_()
        optimiser = torch.optim.SGD([table], lr=self.rate, weight_decay=self.decay)
        for _ in range(self.steps):
            optimiser.zero_grad()
            (table @ table.T - server[self.goal]).norm().backward()
            optimiser.step()
        return table.detach()

    @override
    def of_many(self, tables: Tensor, server: Mapping[str, Tensor]) -> Tensor:
        # Blocks of clients come one after another; the goal is the same for all.
        if self._goal is None:
            self._goal = Goal.of(server[self.goal])
        return approach_products(tables, self._goal, self.steps, self.rate, self.decay)


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
    product = matrix @ tables.transpose(0, 1).reshape(items, -1)
    return product.reshape(items, clients, d).transpose(0, 1).contiguous()
