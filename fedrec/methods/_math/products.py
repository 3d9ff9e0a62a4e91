"""Products of every two item rows: FedCIA's uploads, and clients' steps towards the server's mean."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import TableRewrite, UploadTransform
from fedrec.methods._math.eigen import Eigenpairs
from fedrec.methods._math.low_rank_rows import LowRankRows, traces
from fedrec.methods._math.symmetric import products_of_rows

_KEPT = {torch.float32: (2, 3, 5, 9), torch.float64: (5, 9)}
"""Powers of the weak rest that count, by precision, in the order of trial; see `LowRankRows`."""

_COMPARED = 64
"""Number of strong axes along which products are compared with a goal one by one."""

_REACHED = 8
"""Distance to the goal, in units of rounding, at which a table has reached it."""


class Products(UploadTransform):
    """Transform of a table Q into Q Q^T, the products of every two rows."""

    label = "products of rows"

    @override
    def of_one(self, table: Tensor) -> Tensor:
        return table @ table.T

    @override
    def weighted_sum(self, tables: Tensor, weights: Tensor) -> Tensor:
        # All tables side by side: one product instead of one matrix of items x items per client.
        side = (tables * weights.sqrt()[:, None, None]).transpose(0, 1).flatten(1)
        return products_of_rows(side)


class Approach(TableRewrite):
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
        # All blocks of clients share the goal.
        if self._goal is None:
            self._goal = Goal(server[self.goal])
        return approach_products(tables, self._goal, self.steps, self.rate, self.decay)


class Goal:
    """Wanted products of rows (items, items), decomposed once for all clients."""

    def __init__(self, products: Tensor) -> None:
        wide = products.double()
        self._half, self.dtype = (wide + wide.T) / 2, products.dtype
        self.length = float(wide.norm())
        """The Frobenius norm of the products."""
        self.skew = float((wide - self._half).square().sum())
        """The squared Frobenius norm of the antisymmetric half, which no Q Q^T can match."""

    @cached_property
    def strong(self) -> Eigenpairs:
        """The symmetric half as a few strong axes and a weak rest."""
        return Eigenpairs.strong_of(self._half, self.dtype)

    @cached_property
    def whole(self) -> Eigenpairs:
        """The symmetric half as all of its axes."""
        return Eigenpairs.all_of(self._half, self.dtype)


def approach_products(tables: Tensor, goal: Goal, steps: int, rate: float, decay: float) -> Tensor:
    """Each table Q (clients, items, d) after `steps` of SGD on the norm |Q Q^T - goal|, with weight decay.

    The gradient 2 (Q Q^T - goal) Q / |Q Q^T - goal| needs no matrix (items, items) per client. With G = Q^T Q
    it is 2 (Q G - goal Q) / |Q Q^T - goal|. The square of the norm is |G|^2 - 2 <Q, goal Q> + |goal|^2. The
    gradient uses the symmetric half of the goal, the norm both halves.

    Along each strong axis of the goal, the product goal Q scales a row by one number. The rest changes by
    low-rank terms (`LowRankRows`). Steps are O(clients x d^3), preparation O(clients x items^2 x d). If the
    rest is not weak, more of its powers count; if that does not suffice, all axes are used.
    """
    if not math.isfinite(goal.length):
        return torch.full_like(tables, math.nan)
    sgd = _Sgd(steps, rate, decay)
    moved = _moved_with_rest(tables, goal, sgd)
    if moved is not None:
        return moved
    axes = goal.whole.vectors
    return _back(axes, _stepped(_along(axes, _side_by_side(tables)), goal.whole, None, goal, sgd))


@dataclass(frozen=True)
class _Sgd:
    """SGD schedule: number of steps, rate, and weight decay."""

    steps: int
    rate: float
    decay: float


def _moved_with_rest(tables: Tensor, goal: Goal, sgd: _Sgd) -> Tensor | None:
    """The tables after all steps, by strong axes of the goal and a weak rest; None if no rest is weak."""
    parts = goal.strong
    if parts.rest is None:
        return None
    beside = _side_by_side(tables)
    rows = _along(parts.vectors, beside)
    beside -= _back(parts.vectors, rows).transpose(0, 1)
    weak = LowRankRows(beside, parts.rest, parts.bound)
    for kept in _KEPT[tables.dtype]:
        weak.start(kept)
        moved = _stepped(rows.double(), parts, weak, goal, sgd)
        if weak.are_weak:
            return weak.tables().add_(_back(parts.vectors, moved.to(tables.dtype)))
    return None


def _stepped(rows: Tensor, axes: Eigenpairs, weak: LowRankRows | None, goal: Goal, sgd: _Sgd) -> Tensor:
    """The rows of tables along axes (clients, axes, d) after all steps; `weak` steps with them."""
    decayed = (1 - sgd.rate * sgd.decay) * torch.eye(rows.shape[2], dtype=rows.dtype, device=rows.device)
    values = axes.values.to(rows.dtype).unsqueeze(1)
    # A shorter norm is only rounding, so a table that has reached the goal stays there.
    least = _REACHED * torch.finfo(goal.dtype).eps * goal.length
    beyond = goal.skew + axes.rest_square + float(axes.values[_COMPARED:].square().sum())
    for _ in range(sgd.steps):
        strong, others = rows[:, :_COMPARED], rows[:, _COMPARED:]
        gram = others.transpose(1, 2) @ others
        meeting = others.square().sum(2).double() @ axes.values[_COMPARED:]
        if weak is not None:
            weak_gram, weak_meeting = weak.products()
            gram, meeting = gram + weak_gram.to(rows.dtype), meeting + weak_meeting
        from_others = (gram.double().square().sum((1, 2)) - 2 * meeting + beyond).clamp(min=0)
        own = strong.transpose(1, 2) @ strong
        if weak is not None:
            weak.compare(traces(own + gram))
        # Near the goal, sums of squares nearly cancel, so products along strong axes are compared one by one.
        apart = strong @ strong.transpose(1, 2) - torch.diag(values[:_COMPARED, 0])
        of_both = 2 * (own * gram).sum((1, 2)).double()
        size = (apart.square().sum((1, 2)).double() + of_both + from_others).clamp(min=0).sqrt()
        pace = torch.where(size > least, 2 * sgd.rate / size, 0.0).to(rows.dtype)[:, None, None]
        turn = decayed - pace * (own + gram)
        rows = torch.bmm(rows, turn).addcmul_(rows, pace * values)
        if weak is not None:
            weak.step(turn.double(), pace.double())
    if weak is not None:
        weak.compare(rows.square().sum((1, 2)) + traces(weak.products()[0]))
    return rows


def _side_by_side(tables: Tensor) -> Tensor:
    """Copy tables (clients, items, d) to (items, clients, d): one matrix for all of them."""
    return tables.transpose(0, 1).clone(memory_format=torch.contiguous_format)


def _along(axes: Tensor, tables: Tensor) -> Tensor:
    """Project tables (items, clients, d) on axes (items, axes): (clients, axes, d)."""
    rows = axes.T @ tables.flatten(1)
    return rows.view(-1, *tables.shape[1:]).transpose(0, 1).contiguous()


def _back(axes: Tensor, rows: Tensor) -> Tensor:
    """Compute the tables (clients, items, d) from their projections (clients, axes, d)."""
    clients, _, d = rows.shape
    tables = axes @ rows.transpose(0, 1).reshape(-1, clients * d)
    return tables.view(-1, clients, d).transpose(0, 1)
