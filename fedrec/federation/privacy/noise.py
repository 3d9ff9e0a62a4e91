"""The noise that clients add, on any device: a pure function of seed, client, round and draw number.

It uses the same Philox counters as `fedrec.random.with_numpy`. Each draw applies the inverse distribution
function to its own word, so it does not depend on other draws. It is computed in double precision and then
rounded; on another device, a few logarithms may round differently.

A word has 32 bits, so Laplace noise ends at 22.2 scales and Gaussian noise at 6.3 standard deviations. A
share of 2**-32 of either distribution lies beyond. This noise is for experiments: the seed reveals it.
"""

import torch
from torch import Tensor

from fedrec.native.kernel import kernel_or_none
from fedrec.native.shuffle import PHILOX
from fedrec.native.source import KernelSource
from fedrec.random.purpose import LANES, Purpose
from fedrec.random.with_torch import philox

_WORDS = 1 << 32
_DRAWS = LANES * _WORDS
"""Draws of a client per round and purpose; the first part of the counter indexes 2**32 blocks."""
_UNIFORM = KernelSource(
    "uniform",
    (
        ("const integer*", "who"), ("integer", "count"), ("integer", "first"), ("word64", "seed"),
        ("integer", "round"), ("integer", "purpose"), ("double*", "drawn"),
    ),
    """
  double* const own = drawn + item * count - first;
  for (integer block = first / 4 + LANE; 4 * block < first + count; block += LANES) {
    word32 words[4];
    philox(words, (word64)block, (word32)who[item], (word32)round, (word32)purpose, seed);
    for (int lane = 0; lane < 4; lane++) {
      const integer place = 4 * block + lane;
      if (place >= first && place < first + count)
        own[place] = (2 * (double)words[lane] + (1 - 4294967296.0)) / 4294967296.0;
    }
  }
""",
    PHILOX,
)  # fmt: skip
"""A piece of work is one client's draws."""


def laplace(who: Tensor, count: int, scale: float, seed: int, round_: int, first: int = 0) -> Tensor:
    """Laplace(0, `scale`) draws `first` to `first + count - 1` of each client: (clients, count), finite.

    Numbers that must not share noise need different draws. Raise `ValueError` for draws from 2**34 on.
    """
    uniform = _uniform(who, count, Purpose.UPLOAD_NOISE, seed, round_, first)
    size = uniform.abs().neg_().log1p_().mul_(-scale)
    return size.copysign_(uniform).to(torch.get_default_dtype())


def gaussian(who: Tensor, count: int, deviation: float, seed: int, round_: int, first: int = 0) -> Tensor:
    """Normal(0, `deviation`**2) draws `first` to `first + count - 1` of each client: (clients, count).

    Numbers that must not share noise need different draws. Raise `ValueError` for draws from 2**34 on.
    """
    uniform = _uniform(who, count, Purpose.GRADIENT_NOISE, seed, round_, first)
    normal: Tensor = torch.special.ndtri(uniform.add_(1).div_(2))
    return normal.mul_(deviation).to(torch.get_default_dtype())


def _uniform(who: Tensor, count: int, purpose: Purpose, seed: int, round_: int, first: int) -> Tensor:
    """Each client's draws, uniform in (-1, 1) in double precision."""
    end = first + count
    if first < 0 or count < 0 or end > _DRAWS:
        raise ValueError(f"a client has draws 0 to {_DRAWS - 1} in a round, not {first} to {end - 1}")
    kernel = kernel_or_none(_UNIFORM, who.device)
    if kernel is not None:
        drawn = torch.empty((len(who), count), dtype=torch.float64, device=who.device)
        kernel(
            len(who), who=who.contiguous(), count=count, first=first, seed=seed, round=round_,
            purpose=int(purpose), drawn=drawn,
        )  # fmt: skip
        return drawn
    blocks = torch.arange(first // LANES, -(-end // LANES), device=who.device)
    words = philox(blocks, who.unsqueeze(1), round_, int(purpose), seed).flatten(1)
    skipped = first % LANES
    # Exact odd multiples of 2**-32, never 0 or 1, symmetric around 0.
    return words[:, skipped : skipped + count].double().mul_(2).add_(1 - _WORDS).div_(_WORDS)
