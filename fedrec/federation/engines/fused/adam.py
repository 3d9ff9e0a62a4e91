"""Many steps of Adam without a gradient, as one step.

The module reads the number of mini-batches of a fit. It gives the tables by which a kernel applies all steps
that a row without samples has missed.

After mini-batch l a row has moments m and v. Without a gradient, mini-batch l + i shrinks them to 0.9^i m and
0.999^i v, and changes the row by

    rate bias1_j 0.9^i m / (0.999^(i/2) sqrt(v) bias2_j + eps)        j = l + i

with Adam's corrections bias1_j = 1 / (1 - 0.9^j) and bias2_j = 1 / sqrt(1 - 0.999^j). With small =
eps / sqrt(v) that is a series,

    rate (m / sqrt(v)) (c1_j - small c2_j + small^2 c3_j - small^3 c4_j + ...)
    cn_j = bias1_j / bias2_j^n (0.9 / 0.999^(n/2))^i

The kernel uses the first four terms, and only if the next one is far below rounding. So the sum over all
mini-batches that a row has missed is the same four numbers for every row. With idle_sum_l = c_(l+1)
+ c_(l+2) + ..., the sum from l + 1 to t is idle_sum_l - power^(t - l) idle_sum_t.
"""

import torch
from torch import Tensor

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8
"""Adam's factors of both moments in every mini-batch, and the number that it adds to the divisor."""
TERMS = 4
"""Terms of the series."""
ADAM_TABLES = ("tails", "shrunk_tails", "past", "unroot")
"""The tables of a kernel.

- `tails`: idle_sum of every mini-batch and term, shape `(mini-batches, TERMS)`.
- `shrunk_tails`: the same with shrinking rates.
- `past`: for every number of missed mini-batches, the numbers of `PAST`, shape `(mini-batches, PAST)`.
- `unroot`: 1 / bias2 of every mini-batch, shape `(mini-batches,)`.
"""
PAST = 8
"""The numbers for i missed mini-batches: powers of the TERMS terms, 0.9^i, 0.999^i, 0.999^(-i/2), and 0."""
_POWERS = tuple(FIRST / SECOND ** (number / 2) for number in range(1, TERMS + 1))
"""The powers of the terms of the series: 0.9 / 0.999^(n/2) of term n."""
_FAR_ABOVE = {torch.float32: 64.0, torch.float64: 4e3}
"""The smallest sqrt(v) bias2 for the series, as a multiple of eps, by precision.

The terms that the series omits are about the fourth power of its inverse.
"""


SETTLED = 1 << 16
"""The mini-batches after which Adam's corrections change nothing: both factors are 1 to the last bit."""


def corrections(longest: int) -> tuple[Tensor, Tensor]:
    """Adam's bias1 and bias2 of the mini-batches 0 to `longest`, each `(longest + 1,)`, on the CPU.

    Mini-batch 0 does not exist; its entries are infinite.
    """
    count = torch.arange(longest + 1, dtype=torch.float64)
    return 1 / (1 - FIRST**count), 1 / (1 - SECOND**count).sqrt()


def adam_tables(bias1: Tensor, bias2: Tensor, lr_scale: Tensor) -> dict[str, Tensor]:
    """`ADAM_TABLES` of a fit, on the CPU; `lr_scale` has the factor of its rates in every mini-batch."""
    count = torch.arange(len(bias1), dtype=torch.float64)
    powers = [power**count for power in (*_POWERS, FIRST, SECOND, SECOND**-0.5)]
    scaled = bias1[: len(lr_scale)] * lr_scale
    return {
        "tails": _idle_sums(bias1, bias2),
        "shrunk_tails": _idle_sums(scaled, bias2[: len(scaled)]),
        "past": torch.stack([*powers, torch.zeros_like(count)], 1).contiguous(),
        "unroot": 1 / bias2,
    }


def lowest_root(dtype: torch.dtype) -> float:
    """The value that sqrt(v) bias2 must exceed, so that the omitted terms are far below rounding."""
    return EPSILON * _FAR_ABOVE[dtype]


def _idle_sums(bias1: Tensor, bias2: Tensor) -> Tensor:
    """For every mini-batch l and term n, the sum of bias1_j / bias2_j^n power^(j - l) over j > l.

    Shape `(mini-batches, TERMS)`.
    """
    columns = []
    for number, power in enumerate(_POWERS, start=1):
        total, sums = 0.0, [0.0]
        # Plain numbers, not tensors: each of some ten thousand entries follows from the one after it.
        for term in reversed((bias1 / bias2**number).tolist()[1:]):
            total = power * (term + total)
            sums.append(total)
        columns.append(torch.tensor(sums[::-1], dtype=torch.float64))
    return torch.stack(columns, 1).contiguous()
