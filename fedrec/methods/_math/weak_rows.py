"""Tables that steps move by little more than one matrix for all rows: a few small matrices instead."""

import torch
from torch import Tensor


class WeakRows:
    """Tables X (items x clients x d) that meet a weak matrix B; a step makes each of them X A + pace B X.

    After any number of steps a table is X C_0 + B X C_1 + B^2 X C_2 + ...: the d x d matrices C_j of a client
    fade as j grows, and only the first few count. So steps, and the products of columns they need, are
    O(d^3) a client, whatever the number of items; whole tables are read before the first step and after the
    last.

    `matrix` is B as a share of `bound`, which is about its strongest value.
    """

    def __init__(self, tables: Tensor, matrix: Tensor, bound: float) -> None:
        self._matrix, self._bound = matrix, bound
        self._turned = [tables]
        """X, B X, B^2 X and so on, B as a share of its strongest value."""
        self.start(1)

    def start(self, kept: int) -> None:
        """Let tables be what they were at first, and `kept` powers of B count from here on."""
        items, clients, d = self._turned[0].shape
        while len(self._turned) < kept:
            turned = self._matrix @ self._turned[-1].view(items, -1)
            self._turned.append(turned.view(items, clients, d))
        self._moments = self._block_moments()
        # One more than counts, to see that it does not.
        self._powers = self._turned[0].new_zeros(clients, kept + 1, d, d)
        self._powers[:, 0] = torch.eye(d, dtype=self._powers.dtype, device=self._powers.device)
        self._left_out = self._powers.new_zeros(())

    @property
    def are_weak(self) -> bool:
        """Whether all that is left out is below rounding, in every step so far."""
        return float(self._left_out) <= torch.finfo(self._powers.dtype).eps

    def products(self) -> tuple[Tensor, Tensor]:
        """For each client X^T X (d x d), and the sum of the diagonal of X^T B X."""
        counting = self._powers[:, :-1].flatten(1, 2)
        d = counting.shape[2]
        met = self._moments @ counting
        # One power higher, everything meets B once more.
        return counting.transpose(1, 2) @ met[:, :-d], self._bound * (counting * met[:, d:]).sum(
            (1, 2)
        ).double()

    def step(self, matrix: Tensor, pace: Tensor) -> None:
        """Let each table be X A + pace B X, for a matrix A (d x d) and a number per client."""
        before = self._powers
        self._powers = (before.flatten(1, 2) @ matrix).unflatten(1, before.shape[1:3])
        self._powers[:, 1:].addcmul_(before[:, :-1], (pace * self._bound).unsqueeze(1))
        size = self._powers.abs().amax((2, 3))
        # Beside tables as they started, or have grown: where they shrink to nothing, so does what is left.
        size = size / size.amax(1, keepdim=True).clamp(min=1)
        # Left out are the power after the last, and where products meet B, the last by itself.
        left_out = torch.maximum(size[:, -1], size[:, -2].square())
        self._left_out = torch.maximum(self._left_out, left_out.max())

    def tables(self) -> Tensor:
        """The tables as they are now: clients x items x d."""
        now = self._turned[0].transpose(0, 1) @ self._powers[:, 0]
        for power, turned in enumerate(self._turned[1:], 1):
            now.baddbmm_(turned.transpose(0, 1), self._powers[:, power])
        return now

    def _block_moments(self) -> Tensor:
        """X^T B^(a + b) X, as blocks a = 0 ... kept, b = 0 ... kept - 1."""
        kept = len(self._turned)
        moments = []
        for power in range(2 * kept - 1):
            one, other = self._turned[(power + 1) // 2], self._turned[power // 2]
            moments.append(one.permute(1, 2, 0) @ other.transpose(0, 1))
        # The very last goes with the square of the last power, and is left out.
        moments.append(torch.zeros_like(moments[0]))
        lines = [torch.cat(moments[first : first + kept], dim=2) for first in range(kept + 1)]
        return torch.cat(lines, dim=1)
