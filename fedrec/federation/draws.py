"""The draws of a round, on any device: who takes part, which negatives, in which order.

The same Philox counters as `fedrec.random.with_numpy`, in torch. Every function gives the same
numbers for a client whether it is asked for alone or with all others.
"""

import torch
from torch import Tensor

from fedrec.random.with_numpy import Purpose

_MASK = 0xFFFFFFFF
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LANES = 4
_PLACES = 1 << 20
"""Blocks a user has per attempt or epoch: the counter's low 20 bits number samples."""


def philox(c0: Tensor, c1: Tensor, c2: int, c3: int, seed: int) -> Tensor:
    """The four 32-bit words for each counter, as int64 on a new last axis."""
    c0, c1 = torch.broadcast_tensors(c0, c1)
    k0, k1 = seed & _MASK, (seed >> 32) & _MASK
    x0, x1, x2, x3 = c0, c1, torch.full_like(c0, c2), torch.full_like(c0, c3)
    for _ in range(10):
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


def participants(users: Tensor, fraction: float, seed: int, round_: int, purpose: Purpose) -> Tensor:
    """A random `fraction` of `users`, at least one, in the order of `users`."""
    if fraction >= 1:
        return users
    count = max(1, int(len(users) * fraction))
    words = philox(torch.zeros_like(users), users, round_, int(purpose), seed)[:, 0]
    # The user's number settles equal words.
    chosen = torch.argsort((words << 31) | users)[:count]
    return users[chosen.sort().values]


def negatives(
    owner: Tensor,
    place: Tensor,
    allowed: Tensor,
    count: int,
    seed: int,
    round_: int,
    purpose: Purpose = Purpose.NEGATIVES,
) -> Tensor:
    """`count` distinct items per training row, drawn from the row's owner's `allowed` items.

    `owner` holds each row's user and `place` the row's number among its user's; `allowed`
    (users x items) tells what each user may draw. A row's negatives are the first distinct
    allowed items of its own endless sequence of draws.
    """
    items = allowed.shape[1]
    taken = torch.full((len(owner), count), -1, dtype=torch.int64, device=owner.device)
    filled = torch.zeros(len(owner), dtype=torch.int64, device=owner.device)
    short = torch.arange(len(owner), device=owner.device)
    attempt = 0
    while len(short):
        words = philox(attempt * _PLACES + place[short], owner[short], round_, int(purpose), seed)
        for item in (words * items >> 32).unbind(1):
            known = (taken[short] == item.unsqueeze(1)).any(1)
            new = allowed[owner[short], item] & ~known & (filled[short] < count)
            who = short[new]
            taken[who, filled[who]] = item[new]
            filled[who] += 1
        short = short[filled[short] < count]
        attempt += 1
    return taken


def shuffled(
    who: Tensor, size: Tensor, seed: int, round_: int, epoch: int, purpose: Purpose = Purpose.SHUFFLE
) -> Tensor:
    """An order of the samples of the clients `who` that shuffles each client's own.

    Samples stand client by client, `size` of each, and still do so afterwards.
    """
    blocks = -(-size // _LANES)
    owner = torch.repeat_interleave(who, blocks)
    words = philox(epoch * _PLACES + counted(blocks), owner, round_, int(purpose), seed)
    rank = torch.repeat_interleave(torch.arange(len(who), device=who.device), size)
    first = _LANES * (blocks.cumsum(0) - blocks)
    word = words.reshape(-1)[first[rank] + counted(size)]
    return torch.argsort((rank << 32) | word, stable=True)


def halves(who: Tensor, rows: Tensor, seed: int, round_: int) -> Tensor:
    """For each training row of the clients `who`, whether it is in the first and in the second half.

    Each client's rows are shuffled and dealt out in turn; a single row is in both halves.
    """
    order = shuffled(who, rows, seed, round_, 0, Purpose.HALVES)
    second = torch.empty(len(order), dtype=torch.bool, device=order.device)
    second[order] = counted(rows) % 2 == 1
    single = torch.repeat_interleave(rows == 1, rows)
    return torch.stack((~second, second | single))


def counted(sizes: Tensor) -> Tensor:
    """0, 1, ... for each size, one after the other."""
    ends = sizes.cumsum(0)
    total = int(ends[-1]) if len(ends) else 0
    return torch.arange(total, device=sizes.device) - torch.repeat_interleave(ends - sizes, sizes)
