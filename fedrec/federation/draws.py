"""The random draws of a round, on any device: participants, negatives and orders of samples.

A client's draws do not depend on the other clients in the call.
"""

import torch
from torch import Tensor

from fedrec.federation import draw_kernels
from fedrec.federation.pairs import PairSet, aranges
from fedrec.native.kernel import kernel_or_none
from fedrec.random.purpose import LANES, Purpose
from fedrec.random.with_torch import philox

_PLACES = 1 << 20
"""Blocks per user and attempt or epoch: the low 20 bits of the counter are the index of a sample."""


def participants(users: Tensor, fraction: float, seed: int, round_: int, purpose: Purpose) -> Tensor:
    """A random `fraction` of `users`, at least one, in the order of `users`."""
    if fraction >= 1:
        return users
    count = max(1, int(len(users) * fraction))
    words = first_words(torch.zeros_like(users), users, seed, round_, purpose)
    # The user's number breaks ties between equal words.
    chosen = torch.argsort((words << 31) | users)[:count]
    return users[chosen.sort().values]


def first_words(place: Tensor, user: Tensor, seed: int, round_: int, purpose: Purpose) -> Tensor:
    """The first of the four words that `philox` gives for each place and user."""
    kernel = kernel_or_none(draw_kernels.FIRST_WORDS_KERNEL, user.device)
    if kernel is not None:
        return draw_kernels.first_words_by_kernel(kernel, place, user, seed, round_, purpose)
    return philox(place, user, round_, int(purpose), seed)[:, 0]


def negatives(
    owner: Tensor,
    place: Tensor,
    forbidden: PairSet,
    count: int,
    seed: int,
    round_: int,
    purpose: Purpose = Purpose.NEGATIVES,
    before: int = 0,
) -> Tensor:
    """Sample `count` distinct items per training interaction, none `forbidden` to its owner: (n, count).

    `owner` (n) is each interaction's user and `place` (n) its index among the user's interactions. The
    negatives are the first distinct allowed items in the interaction's own sequence of draws. A user's global
    index, which decides its draws, is its number in `owner` plus `before`.
    """
    drawn = torch.empty((len(owner), count), dtype=torch.int64, device=owner.device)
    # The tensors below cover the interactions without enough negatives. A refused item goes into the last
    # column, so every interaction writes in every step and no step needs an index.
    row = torch.arange(len(owner), device=owner.device)
    taken = torch.full((len(owner), count + 1), -1, dtype=torch.int64, device=owner.device)
    filled = torch.zeros_like(owner)
    attempt = 0
    while len(row):
        number = owner + before if before else owner
        words = philox(attempt * _PLACES + place, number, round_, int(purpose), seed)
        items = words.mul_(forbidden.items).bitwise_right_shift_(32)
        allowed = ~forbidden.holds(owner.unsqueeze(1), items)
        for lane, (item, may) in enumerate(zip(items.split(1, dim=1), allowed.unbind(1), strict=True)):
            # An interaction has taken at most as many items as it has drawn.
            most = min(count, LANES * attempt + lane)
            new = may & (taken[:, :most] != item).all(1)
            taken.scatter_(1, torch.where(new, filled, count).unsqueeze(1), item)
            filled = (filled + new).clamp_(max=count)
        full, short = (chosen.nonzero().squeeze(1) for chosen in (filled == count, filled < count))
        drawn[row[full]] = taken[full, :count]
        row, owner, place, taken, filled = (each[short] for each in (row, owner, place, taken, filled))
        attempt += 1
    return drawn


def shuffled(
    who: Tensor, size: Tensor, seed: int, round_: int, epoch: int, purpose: Purpose = Purpose.SHUFFLE
) -> Tensor:
    """A permutation of the samples of the clients `who` that shuffles each client's own: (samples).

    Samples are ordered client by client, `size` of each, before and after.
    """
    own = orders(who, size, seed, round_, epoch, 1, purpose)[0]
    return own + torch.repeat_interleave(size.cumsum(0) - size, size, output_size=len(own))


def orders(
    who: Tensor,
    size: Tensor,
    seed: int,
    round_: int,
    first_epoch: int,
    epochs: int,
    purpose: Purpose = Purpose.SHUFFLE,
    known: draw_kernels.Sizes | None = None,
) -> Tensor:
    """A permutation of each client's own samples, from 0, for several epochs: (epochs, samples), int32.

    Samples are ordered client by client, `size` of each. `shuffled` gives the same permutations as indices
    among all samples. With `known` sizes, the CPU does not wait for a GPU.
    """
    kernel = kernel_or_none(draw_kernels.SHUFFLE_KERNEL, who.device)
    if kernel is not None:
        draw = (seed, round_, first_epoch, epochs, purpose)
        return draw_kernels.orders_by_kernel(kernel, who, size, *draw, known)
    start = torch.repeat_interleave(size.cumsum(0) - size, size)
    later = range(first_epoch, first_epoch + epochs)
    every = [shuffled_in_torch(who, size, seed, round_, epoch, purpose) - start for epoch in later]
    return torch.stack(every).to(torch.int32)


def shuffled_in_torch(
    who: Tensor, size: Tensor, seed: int, round_: int, epoch: int, purpose: Purpose = Purpose.SHUFFLE
) -> Tensor:
    """Compute `shuffled` without kernels."""
    blocks = -(-size // LANES)
    owner = torch.repeat_interleave(who, blocks)
    words = philox(epoch * _PLACES + aranges(blocks), owner, round_, int(purpose), seed)
    rank = torch.repeat_interleave(torch.arange(len(who), device=who.device), size)
    first = LANES * (blocks.cumsum(0) - blocks)
    word = words.reshape(-1)[first[rank] + aranges(size)]
    return torch.argsort((rank << 32) | word, stable=True)


def halves(who: Tensor, sizes: Tensor, seed: int, round_: int) -> Tensor:
    """Whether each training interaction of the clients `who` is in the first and in the second half: (2, n).

    Each client's interactions, `sizes` in number, are shuffled and assigned to the halves in turn. The
    interaction of a client with only one is in both halves.
    """
    order = shuffled(who, sizes, seed, round_, 0, Purpose.HALVES)
    second = torch.empty(len(order), dtype=torch.bool, device=order.device)
    second[order] = aranges(sizes) % 2 == 1
    single = torch.repeat_interleave(sizes == 1, sizes)
    return torch.stack((~second, second | single))
