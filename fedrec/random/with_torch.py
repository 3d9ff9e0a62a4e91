"""The words of `fedrec.random`, in torch, on any device."""

import torch
from torch import Tensor

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(c0: Tensor, c1: Tensor, c2: int, c3: int, seed: int) -> Tensor:
    """The four 32-bit words for each counter, as int64 on a new last axis."""
    c0, c1 = torch.broadcast_tensors(c0, c1)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    x0, x1, x2, x3 = c0, c1, torch.full_like(c0, c2), torch.full_like(c0, c3)
    for _ in range(_ROUNDS):
        # Products wrap around modulo 2**64; shifting and masking gives the unsigned halves.
        product0, product1 = x0 * _MULTIPLIERS[0], x2 * _MULTIPLIERS[1]
        x0, x1, x2, x3 = (
            (product1 >> 32 & _MASK) ^ x1 ^ k0,
            product1 & _MASK,
            (product0 >> 32 & _MASK) ^ x3 ^ k1,
            product0 & _MASK,
        )
        k0, k1 = (k0 + _KEY_STEPS[0]) & _MASK, (k1 + _KEY_STEPS[1]) & _MASK
    return torch.stack((x0, x1, x2, x3), dim=-1)
