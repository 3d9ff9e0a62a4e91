"""Many steps of Adam without a gradient, as one.

After mini-batch l a row has moments m and v. In mini-batch l + i without a gradient they are 0.9^i m and
0.999^i v, and the row moves by

    rate slope_j 0.9^i m / (0.999^(i/2) sqrt(v) root_j + eps)        j = l + i

with Adam's corrections slope_j = 1 / (1 - 0.9^j) and root_j = 1 / sqrt(1 - 0.999^j). Up to the square of
eps / (sqrt(v) root_j), which is left out only where it is far below rounding, that is

    rate (m / sqrt(v)) (c1_j - eps c2_j / sqrt(v))
    c1_j = slope_j / root_j (0.9 / 0.999^(1/2))^i        c2_j = slope_j / root_j^2 (0.9 / 0.999)^i

so that the sum over all mini-batches between two looks at a row is the same two numbers for every row. With
tail_l = c_(l+1) + c_(l+2) + ..., the sum from l + 1 to t is tail_l - power^(t - l) tail_t.
"""

import torch
from torch import Tensor

FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8
ADAM_TABLES = (
    "tail1", "tail2", "shrunk_tail1", "shrunk_tail2", "past1", "past2", "past_first", "past_second",
    "unfaded", "unroot",
)  # fmt: skip
"""What a kernel is given: tails of both sums, without and with shrinking rates, powers, and
what 0.999^(i/2) and root are divided by."""
_POWERS = (FIRST / SECOND**0.5, FIRST / SECOND)
_FAR_ABOVE = {torch.float32: 1e4, torch.float64: 1e5}


def corrections(longest: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Adam's slope and root for every mini-batch from 0, which has none, up to `longest`."""
    count = torch.arange(longest + 1, dtype=torch.float64, device=device)
    return 1 / (1 - FIRST**count), 1 / (1 - SECOND**count).sqrt()


def adam_tables(slope: Tensor, root: Tensor, shrink: Tensor) -> dict[str, Tensor]:
    """The tables of a fit whose rates are multiplied by `shrink`, mini-batch by mini-batch."""
    longest = len(slope) - 1
    shrunk = slope[: len(shrink)] * shrink
    count = torch.arange(longest + 1, dtype=torch.float64)
    past = {
        "past1": _POWERS[0] ** count,
        "past2": _POWERS[1] ** count,
        "past_first": FIRST**count,
        "past_second": SECOND**count,
        "unfaded": SECOND ** (-count / 2),
        "unroot": 1 / root.cpu(),
    }
    tails = {}
    for prefix, slopes in (("", slope), ("shrunk_", shrunk)):
        for number, power in enumerate(_POWERS, start=1):
            tails[f"{prefix}tail{number}"] = _tails(slopes.cpu(), root[: len(slopes)].cpu() ** number, power)
    return {name: value.to(slope.device) for name, value in (past | tails).items()}


def lowest_root(dtype: torch.dtype) -> float:
    """What sqrt(v) root must be above, so that the square of eps over it is far below rounding."""
    return EPSILON * _FAR_ABOVE[dtype]


def _tails(slope: Tensor, root: Tensor, power: float) -> Tensor:
    """For every mini-batch l, the sum over those behind it, j, of slope_j / root_j power^(j - l)."""
    terms = (slope / root).tolist()
    tails = [0.0] * len(terms)
    for place in range(len(terms) - 2, -1, -1):
        tails[place] = power * (terms[place + 1] + tails[place + 1])
    return torch.tensor(tails, dtype=torch.float64)
