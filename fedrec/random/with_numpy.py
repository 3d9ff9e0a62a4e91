"""The words of `fedrec.random`, in numpy, and numbers made of them."""

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedrec.random.purpose import LANES, Purpose

Words: TypeAlias = NDArray[np.uint64]
"""Unsigned 32-bit words, held in 64 bits so that products do not overflow."""

_MASK = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10


def philox(counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], seed: int) -> Words:
    """The four output words for each counter, on a new last axis.

    The counter's parts broadcast against each other; `seed` is the 64-bit key.
    """
    c0, c1, c2, c3 = np.broadcast_arrays(*(np.asarray(part, dtype=np.uint64) for part in counter))
    key0, key1 = seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF
    for _ in range(_ROUNDS):
        product0, product1 = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            (product1 >> _SHIFT) ^ c1 ^ np.uint64(key0),
            product1 & _MASK,
            (product0 >> _SHIFT) ^ c3 ^ np.uint64(key1),
            product0 & _MASK,
        )
        key0, key1 = (key0 + _KEY_STEPS[0]) & 0xFFFFFFFF, (key1 + _KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack((c0, c1, c2, c3), axis=-1)


def draws(seed: int, purpose: Purpose, *, user: ArrayLike, first: int, count: int, round_: int = 0) -> Words:
    """Draws `first` to `first + count - 1` of each user: shape `user.shape + (count,)`.

    `first` and `count` must be multiples of four (whole Philox blocks).
    """
    if first % LANES or count % LANES:
        raise ValueError(f"draws come in blocks of {LANES}: got first={first}, count={count}")
    users = np.asarray(user, dtype=np.uint64)[..., np.newaxis]
    blocks = np.arange(first // LANES, (first + count) // LANES, dtype=np.uint64)
    words = philox((blocks, users, round_, int(purpose)), seed)
    return words.reshape(*words.shape[:-2], count)


def draw_at(seed: int, purpose: Purpose, *, user: ArrayLike, index: ArrayLike, round_: int = 0) -> Words:
    """Draw `index` of `user`, elementwise."""
    index = np.asarray(index, dtype=np.uint64)
    words = philox((index // np.uint64(LANES), user, round_, int(purpose)), seed)
    lane = (index % np.uint64(LANES)).astype(np.int64)
    return np.take_along_axis(words, lane[..., np.newaxis], axis=-1)[..., 0]


def below(words: Words, bound: int) -> NDArray[np.int64]:
    """Map words to integers in [0, bound) by multiplication, as a GPU kernel does.

    The bias is at most bound / 2**32, far below what any sample here could show.
    """
    if not 0 < bound <= 2**32:
        raise ValueError(f"bound must be between 1 and 2**32, got {bound}")
    return ((words * np.uint64(bound)) >> _SHIFT).astype(np.int64)


def normal(seed: int, purpose: Purpose, *, stream: int, count: int) -> NDArray[np.float32]:
    """`count` standard normal numbers (Box-Muller in double precision, on every device the same)."""
    blocks = -(-count // LANES)
    words = draws(seed, purpose, user=stream, first=0, count=LANES * blocks).astype(np.float64)
    # Both in (0, 1): neither the logarithm nor the angle meets an end of the range.
    first, second = ((words.reshape(-1, 2)[:, side] + 0.5) / 2.0**32 for side in (0, 1))
    radius, angle = np.sqrt(-2 * np.log(first)), 2 * np.pi * second
    pairs = np.stack((radius * np.cos(angle), radius * np.sin(angle)), axis=-1)
    return pairs.ravel()[:count].astype(np.float32)


def uniform(seed: int, purpose: Purpose, *, stream: int, count: int) -> NDArray[np.float32]:
    """`count` numbers uniform in (-1, 1)."""
    blocks = -(-count // LANES)
    words = draws(seed, purpose, user=stream, first=0, count=LANES * blocks).astype(np.float64)
    return ((words + 0.5) / 2.0**31 - 1)[:count].astype(np.float32)
