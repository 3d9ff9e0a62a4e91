"""Products of every two item rows: what FedCIA's clients upload, and how they approach the server's."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import Through, WholeTable
from fedrec.methods._math.symmetric import products_of_rows
from fedrec.methods._math.weak_rows import WeakRows

_STRONG = 32
"""Axes of a goal whose rows are moved one by one; all others together, where their products are small."""


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
    """Wanted products of rows (items x items), along the axes of their symmetric half, strongest first."""

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
        order = values.abs().argsort(descending=True)
        return cls(values[order], axes[:, order].to(products.dtype), wide.square().sum())


def approach_products(tables: Tensor, goal: Goal, steps: int, rate: float, decay: float) -> Tensor:
    """Each table Q (clients x items x d) after `steps` of SGD on the norm |Q Q^T - goal|, with weight decay.

    The gradient 2 (Q Q^T - goal) Q / |Q Q^T - goal| needs no matrix of items x items per client: with
    G = Q^T Q it is 2 (Q G - goal Q) / |Q Q^T - goal|, and the square of the norm is
    |G|^2 - 2 <Q, goal Q> + |goal|^2. A goal that is not symmetric counts by its symmetric half, except in
    the norm. Turned to the axes of the goal, that product is one number per row, and all else stays as it is:
    O(clients x items^2 x d) to turn tables there and back. Most of these numbers are small, and the rows that
    go with them are moved together (`WeakRows`): a step is O(clients x d^2) times a few axes; or times all
    items, where too many of the numbers are large.
    """
    turned = _product(goal.axes.T, tables)
    items = len(goal.values)
    moved, exact = _stepped(turned, goal, _STRONG if items > 2 * _STRONG else items, steps, rate, decay)
    if not exact:
        moved, _ = _stepped(turned, goal, items, steps, rate, decay)
    return _product(goal.axes, moved)


def _stepped(
    turned: Tensor, goal: Goal, strong: int, steps: int, rate: float, decay: float
) -> tuple[Tensor, bool]:
    """Tables along the axes of a goal after `steps`, of which only `strong` rows are moved one by one.

    And whether the others were weak enough for that.
    """
    rows, values = turned[:, :strong].contiguous(), goal.values[:strong]
    weak = None
    if strong < len(goal.values):
        weak = WeakRows(turned[:, strong:].contiguous(), goal.values[strong:])
    rest = (1 - rate * decay) * torch.eye(turned.shape[2], dtype=turned.dtype, device=turned.device)
    # A shorter norm is rounding alone: a table that has reached the goal stays there.
    least = torch.finfo(turned.dtype).eps * float(goal.square) + torch.finfo(turned.dtype).tiny
    moved = torch.empty_like(rows)
    for _ in range(steps):
        gram = rows.transpose(1, 2) @ rows
        # Near the goal these sums all but cancel: in double precision they leave something over.
        meeting = torch.mul(rows, rows, out=moved).sum(2).double() @ values
        if weak is not None:
            weak_gram, weak_meeting = weak.products()
            gram, meeting = gram + weak_gram, meeting + weak_meeting
        square = gram.double().square().sum((1, 2)) - 2 * meeting + goal.square
        size = square.clamp(min=least).sqrt()
        pace = (2 * rate / size).to(turned.dtype)[:, None, None]
        turn = rest - pace * gram
        torch.bmm(rows, turn, out=moved)
        moved.addcmul_(rows, pace * values.to(turned.dtype).unsqueeze(1))
        rows, moved = moved, rows
        if weak is not None:
            weak.step(turn, pace)
    if weak is None:
        return rows, True
    return torch.cat((rows, weak.rows()), dim=1), weak.are_weak


def _product(matrix: Tensor, tables: Tensor) -> Tensor:
    """A matrix times every table, as one product."""
    clients, items, d = tables.shape
    product = matrix @ tables.transpose(0, 1).reshape(items, -1)
    return product.reshape(items, clients, d).transpose(0, 1).contiguous()
