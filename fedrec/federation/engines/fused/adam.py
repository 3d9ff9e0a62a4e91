"""Many steps of Adam without a gradient, as one.

After mini-batch l a row has moments m and v. In mini-batch l + i without a gradient they are 0.9^i m and
0.999^i v, and the row moves by

    rate bias1_j 0.9^i m / (0.999^(i/2) sqrt(v) bias2_j + eps)        j = l + i

with Adam's corrections bias1_j = 1 / (1 - 0.9^j) and bias2_j = 1 / sqrt(1 - 0.999^j). With small =
eps / sqrt(v) that is a series,

    rate (m / sqrt(v)) (c1_j - small c2_j + small^2 c3_j - small^3 c4_j + ...)
    cn_j = bias1_j / bias2_j^n (0.9 / 0.999^(n/2))^i

of which the first four terms are taken where the next one is far below rounding. So the sum over all
mini-batches between two looks at a row is the same four numbers for every row. With idle_sum_l = c_(l+1)
+ c_(l+2) + ..., the sum from l + 1 to t is idle_sum_l - power^(t - l) idle_sum_t.
"""

import torch
from torch import Tensor

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8
TERMS = 4
ADAM_TABLES = ("tails", "shrunk_tails", "past", "unroot")
"""What a kernel is given: of every mini-batch the sums of all terms, without and with shrinking rates; for
every number of mini-batches gone by PAST numbers; and what bias2 is divided by."""
PAST = 8
"""The powers of all terms, those of both moments, and what 0.999^(i/2) is divided by; one is not used."""
_POWERS = tuple(FIRST / SECOND ** (number / 2) for number in range(1, TERMS + 1))
_FAR_ABOVE = {torch.float32: 64.0, torch.float64: 4e3}
"""So many times eps must sqrt(v) bias2 be: the fourth power of it is what is left out."""


SETTLED = 1 << 16
"""Mini-batches after which Adam corrects its moments no more: both factors are 1 to the last bit."""


def corrections(longest: int) -> tuple[Tensor, Tensor]:
    """Adam's bias1 and bias2 for every mini-batch from 0, which has none, up to `longest`; on the CPU."""
    count = torch.arange(longest + 1, dtype=torch.float64)
    return 1 / (1 - FIRST**count), 1 / (1 - SECOND**count).sqrt()


def adam_tables(bias1: Tensor, bias2: Tensor, lr_scale: Tensor) -> dict[str, Tensor]:
    """The tables of a fit whose rates are multiplied by `lr_scale`, mini-batch by mini-batch; on the CPU."""
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
    """What sqrt(v) bias2 must be above, so that what the series leaves out is far below rounding."""
    return EPSILON * _FAR_ABOVE[dtype]


def _idle_sums(bias1: Tensor, bias2: Tensor) -> Tensor:
    """For every mini-batch l and term n, the sum of bias1_j / bias2_j^n power^(j - l) over j > l."""
    columns = []
    for number, power in enumerate(_POWERS, start=1):
        total, sums = 0.0, [0.0]
        # Plain numbers: a table has some ten thousand of them, and one follows from the next.
        for term in reversed((bias1 / bias2**number).tolist()[1:]):
            total = power * (term + total)
            sums.append(total)
        columns.append(torch.tensor(sums[::-1], dtype=torch.float64))
    return torch.stack(columns, 1).contiguous()
