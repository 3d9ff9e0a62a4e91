"""Tables that gradient steps change by low-rank terms, stored as a few small matrices per client."""

import torch
from torch import Tensor


class LowRankRows:
    """Tables X (items, clients, d) and a weak matrix B (items, items); a step makes each X A + pace B X.

    After any number of steps, a table is X C_0 + B X C_1 + B^2 X C_2 + ... The matrices C_j (d, d) of a
    client fade as j grows, so only the first few count. Steps and the products of columns that they need are
    O(d^3) per client, for any number of items. Whole tables are read only before the first step and after the
    last.

    `matrix` is B divided by `bound`, about its largest eigenvalue. The small matrices are in double
    precision, because products of columns nearly cancel.
    """

    def __init__(self, tables: Tensor, matrix: Tensor, bound: float) -> None:
        self._matrix, self._bound = matrix, bound
        self._turned = [tables]
        """X, B X, B^2 X and so on, with B divided by `bound`."""
        self._columns: list[Tensor] = []
        """X^T B^p X for p = 0, 1, and so on."""

    def start(self, kept: int) -> None:
        """Reset the tables, and let `kept` powers of B count, no fewer than before."""
        items, clients, d = self._turned[0].shape
        while len(self._turned) < kept:
            turned = self._matrix @ self._turned[-1].view(items, -1)
            self._turned.append(turned.view(items, clients, d))
        while len(self._columns) < 2 * kept - 1:
            one, other = (self._turned[power // 2] for power in (len(self._columns) + 1, len(self._columns)))
            self._columns.append((one.permute(1, 2, 0) @ other.transpose(0, 1)).double())
        # The next moment belongs to the square of the last power, and is left out.
        moments = [*self._columns, torch.zeros_like(self._columns[0])]
        lines = [torch.cat(moments[first : first + kept], dim=2) for first in range(kept + 1)]
        self._moments = torch.cat(lines, dim=1)
        """X^T B^(a + b) X, as blocks a = 0 ... kept, b = 0 ... kept - 1."""
        lengths = torch.stack(
            [traces(moment).clamp(min=0).sqrt() for moment in moments[: 2 * kept : 2]], dim=1
        )
        # One more power than counts, to estimate what is left out; B makes no table longer.
        self._lengths = torch.cat((lengths, lengths[:, -1:]), dim=1)
        self._powers = self._moments.new_zeros(clients, kept + 1, d, d)
        self._powers[:, 0] = torch.eye(d, dtype=self._powers.dtype, device=self._powers.device)
        self._left_out = self._powers.new_zeros(())

    @property
    def are_weak(self) -> bool:
        """Whether the terms left out were below the rounding of tables at each call of `compare`."""
        return float(self._left_out) <= torch.finfo(self._turned[0].dtype).eps

    def products(self) -> tuple[Tensor, Tensor]:
        """For each client X^T X (clients, d, d), and the trace of X^T B X (clients)."""
        counting = self._powers[:, :-1].flatten(1, 2)
        d = counting.shape[2]
        met = self._moments @ counting
        # Moments one power higher have one more factor B.
        meeting = self._bound * (counting * met[:, d:]).sum((1, 2))
        return counting.transpose(1, 2) @ met[:, :-d], meeting

    def step(self, matrix: Tensor, pace: Tensor) -> None:
        """Set each table to X A + pace B X, for a matrix A (clients, d, d) and a pace per client."""
        before = self._powers
        self._powers = (before.flatten(1, 2) @ matrix).unflatten(1, before.shape[1:3])
        self._powers[:, 1:].addcmul_(before[:, :-1], (pace * self._bound).unsqueeze(1))

    def tables(self) -> Tensor:
        """The current tables: (clients, items, d)."""
        first, *others = self._turned
        powers = self._powers.to(first.dtype)
        now = first.transpose(0, 1) @ powers[:, 0]
        for power, turned in enumerate(others, 1):
            now.baddbmm_(turned.transpose(0, 1), powers[:, power])
        return now

    def compare(self, square: Tensor) -> None:
        """Record the size of the terms left out, relative to whole tables with these sums of squares."""
        sizes = self._powers.flatten(2).norm(dim=2) * self._lengths
        shares = sizes / square.double().clamp(min=torch.finfo(torch.float64).tiny).sqrt().unsqueeze(1)
        # The first power left out; and in products with B, the square of the last one.
        left_out = torch.maximum(shares[:, -1], shares[:, -2].square())
        self._left_out = torch.maximum(self._left_out, left_out.max())


def traces(matrices: Tensor) -> Tensor:
    """The trace of each matrix."""
    return matrices.diagonal(dim1=1, dim2=2).sum(1)
