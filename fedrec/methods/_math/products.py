"""Products of every two item rows: what FedCIA's clients upload, and how they approach the server's."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import Through, WholeTable
from fedrec.methods._math.axes import Axes
from fedrec.methods._math.symmetric import products_of_rows
from fedrec.methods._math.weak_rows import WeakRows

_KEPT = {torch.float32: (2, 3, 5, 9), torch.float64: (5, 9)}
"""Powers of what lies beside strong axes that count, by precision: as few as leave nothing above rounding."""


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
            self._goal = Goal(server[self.goal])
        return approach_products(tables, self._goal, self.steps, self.rate, self.decay)


class Goal:
    """Wanted products of rows (items x items), taken apart once for all clients."""

    def __init__(self, products: Tensor) -> None:
        wide = products.double()
        self.square = wide.square().sum()
        """The sum of the squares of all products."""
        self._half, self._dtype = (wide + wide.T) / 2, products.dtype

    @cached_property
    def strong(self) -> Axes:
        """The symmetric half as a few strong axes and a weak rest."""
        return Axes.strong_of(self._half, self._dtype)

    @cached_property
    def whole(self) -> Axes:
        """The symmetric half as all of its axes."""
        return Axes.all_of(self._half, self._dtype)


def approach_products(tables: Tensor, goal: Goal, steps: int, rate: float, decay: float) -> Tensor:
    """Each table Q (clients x items x d) after `steps` of SGD on the norm |Q Q^T - goal|, with weight decay.

    The gradient 2 (Q Q^T - goal) Q / |Q Q^T - goal| needs no matrix of items x items per client: with
    G = Q^T Q it is 2 (Q G - goal Q) / |Q Q^T - goal|, and the square of the norm is
    |G|^2 - 2 <Q, goal Q> + |goal|^2. A goal that is not symmetric counts by its symmetric half, except in
    the norm. Along its strong axes that product is one number per row; all that lies beside them moves
    little, and together (`WeakRows`): steps are O(clients x d^3), what is done once O(clients x items^2 x d).
    Where the rest is not weak, more of it counts, and at last all axes are taken, each for itself.
    """
    sgd = _Sgd(steps, rate, decay)
    side_by_side = tables.transpose(0, 1).contiguous()
    moved = _moved_with_rest(side_by_side, goal.strong, goal.square, sgd)
    if moved is not None:
        return moved
    axes, values = goal.whole.axes, goal.whole.values
    return _back(axes, _stepped(_along(axes, side_by_side), values, None, goal.square, sgd))


@dataclass(frozen=True)
class _Sgd:
    """How often SGD steps, how far, and by what share weights decay in addition."""

    steps: int
    rate: float
    decay: float


def _moved_with_rest(tables: Tensor, goal: Axes, square: Tensor, sgd: _Sgd) -> Tensor | None:
    """Tables (items x clients x d) after all steps, by strong axes and a rest; None where it is not weak."""
    if goal.rest is None:
        return None
    rows = _along(goal.axes, tables)
    weak = WeakRows(tables - _back(goal.axes, rows).transpose(0, 1), goal.rest, goal.bound)
    for kept in _KEPT[tables.dtype]:
        weak.start(kept)
        moved = _stepped(rows, goal.values, weak, square, sgd)
        if weak.are_weak:
            return weak.tables().add_(_back(goal.axes, moved))
    return None


def _stepped(rows: Tensor, values: Tensor, weak: WeakRows | None, square: Tensor, sgd: _Sgd) -> Tensor:
    """Rows of tables along axes (clients x axes x d) after all steps; what lies beside them goes along."""
    rest = (1 - sgd.rate * sgd.decay) * torch.eye(rows.shape[2], dtype=rows.dtype, device=rows.device)
    # A shorter norm is rounding alone: a table that has reached the goal stays there.
    least = torch.finfo(rows.dtype).eps * float(square) + torch.finfo(rows.dtype).tiny
    rows, moved = rows.clone(), torch.empty_like(rows)
    for _ in range(sgd.steps):
        gram = rows.transpose(1, 2) @ rows
        # Near the goal these sums all but cancel: in double precision they leave something over.
        meeting = torch.mul(rows, rows, out=moved).sum(2).double() @ values
        if weak is not None:
            weak_gram, weak_meeting = weak.products()
            gram, meeting = gram + weak_gram, meeting + weak_meeting
        from_goal = gram.double().square().sum((1, 2)) - 2 * meeting + square
        size = from_goal.clamp(min=least).sqrt()
        pace = (2 * sgd.rate / size).to(rows.dtype)[:, None, None]
        turn = rest - pace * gram
        torch.bmm(rows, turn, out=moved)
        moved.addcmul_(rows, pace * values.to(rows.dtype).unsqueeze(1))
        rows, moved = moved, rows
        if weak is not None:
            weak.step(turn, pace)
    return rows


def _along(axes: Tensor, tables: Tensor) -> Tensor:
    """Tables (items x clients x d) along axes (items x axes): clients x axes x d."""
    rows = axes.T @ tables.flatten(1)
    return rows.view(-1, *tables.shape[1:]).transpose(0, 1).contiguous()


def _back(axes: Tensor, rows: Tensor) -> Tensor:
    """What `_along` was given, as clients x items x d."""
    clients, _, d = rows.shape
    tables = axes @ rows.transpose(0, 1).reshape(-1, clients * d)
    return tables.view(-1, clients, d).transpose(0, 1)
