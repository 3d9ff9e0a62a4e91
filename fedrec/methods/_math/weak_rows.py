"""Rows that steps move by little more than one matrix for all: a few small matrices instead of all rows."""

import torch
from torch import Tensor

_DEGREE = {torch.float32: 4, torch.float64: 8}
"""Powers that are kept, by precision: where rows are weak enough, the last is below rounding."""


class WeakRows:
    """Rows x_i (clients x rows x d) with small values v_i; a step makes each of them x_i A + pace v_i x_i.

    After any number of steps row i is x_i (C_0 + w_i C_1 + w_i^2 C_2 + ...) with w_i its value as a share of
    the largest: the d x d matrices C_j of a client are the same for all its rows, and fade as j grows. So
    steps, and the products of columns they need, are O(d^3) a client, whatever the number of rows; rows are
    gone through before the first and after the last.
    """

    def __init__(self, rows: Tensor, values: Tensor) -> None:
        clients, _, d = rows.shape
        degree = _DEGREE[rows.dtype]
        self._start = rows
        self._largest = float(values.abs().max().clamp(min=torch.finfo(values.dtype).tiny))
        self._shares = (values / self._largest).to(rows.dtype).unsqueeze(1)
        self._moments = self._block_moments(degree)
        self._powers = rows.new_zeros(clients, degree + 1, d, d)
        self._powers[:, 0] = torch.eye(d, dtype=rows.dtype, device=rows.device)
        self._last = rows.new_zeros(())

    @property
    def are_weak(self) -> bool:
        """Whether the powers that are left out are below rounding, in every step so far."""
        return float(self._last) <= torch.finfo(self._start.dtype).eps

    def products(self) -> tuple[Tensor, Tensor]:
        """For each client the sum over rows of x_i^T x_i (d x d), and of v_i |x_i|^2."""
        stacked = self._powers.flatten(1, 2)
        d = stacked.shape[2]
        met = self._moments @ stacked
        products = stacked.transpose(1, 2) @ met[:, :-d]
        # One power higher, everything meets its own value once more.
        return products, self._largest * (stacked * met[:, d:]).sum((1, 2)).double()

    def step(self, matrix: Tensor, pace: Tensor) -> None:
        """Let each row be x A + pace v x, for a matrix A (d x d) and a number per client."""
        before = self._powers
        self._powers = (before.flatten(1, 2) @ matrix).unflatten(1, before.shape[1:3])
        self._powers[:, 1:].addcmul_(before[:, :-1], (pace * self._largest).unsqueeze(1))
        size = self._powers.abs().amax((2, 3))
        # Beside rows as they started, or have grown: where they shrink to nothing, so does what is left out.
        self._last = torch.maximum(self._last, (size[:, -1] / size.amax(1).clamp(min=1)).max())

    def rows(self) -> Tensor:
        """The rows as they are now."""
        *lower, last = self._powers.unbind(1)
        rows = self._start @ last
        for power in reversed(lower):
            rows = torch.baddbmm(rows.mul_(self._shares), self._start, power)
        return rows

    def _block_moments(self, degree: int) -> Tensor:
        """The sums over rows of w_i^(a + b) x_i^T x_i, as blocks a = 0 ... degree + 1, b = 0 ... degree."""
        moments, weighted = [], self._start
        for _ in range(2 * degree + 2):
            moments.append(self._start.transpose(1, 2) @ weighted)
            weighted = weighted * self._shares
        lines = [torch.cat(moments[first : first + degree + 1], dim=2) for first in range(degree + 2)]
        return torch.cat(lines, dim=1)
