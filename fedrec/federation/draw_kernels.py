"""The random draws of a round as kernels, with the same numbers as `draws` computes in torch."""

from typing import NamedTuple

import torch
from torch import Tensor

from fedrec.federation.pairs import PairSet
from fedrec.native.kernel import AnyKernel
from fedrec.native.shuffle import PHILOX, SHUFFLE
from fedrec.native.source import KernelSource
from fedrec.random.purpose import Purpose

SHUFFLE_KERNEL = KernelSource(
    "orders",
    (
        ("const integer*", "who"), ("const integer*", "size"), ("const integer*", "start"),
        ("integer", "clients"), ("integer", "samples"), ("integer", "widest"), ("word64*", "space"),
        ("word64", "seed"), ("integer", "round"), ("integer", "purpose"), ("integer", "first_epoch"),
        ("int*", "order"),
    ),
    """
  integer client = item % clients, epoch = item / clients;
  shuffle(order + epoch * samples + start[client], space + worker * 2 * widest, (int)size[client],
          (word32)who[client], (word32)round, (word32)purpose, seed, (word32)(first_epoch + epoch));
""",
    PHILOX + SHUFFLE,
)  # fmt: skip
"""A piece of work is one client's order in one epoch."""

SAMPLE_KERNEL = KernelSource(
    "samples",
    (
        ("const integer*", "who"), ("const integer*", "row"),
        ("const integer*", "start"), ("const integer*", "train_item"),
        ("const integer*", "forbidden"), ("const integer*", "forbidden_start"), ("integer", "items"),
        ("integer", "count"), ("integer", "before"), ("word64", "seed"), ("integer", "round"),
        ("integer", "purpose"), ("integer*", "sample"),
    ),
    """
  integer user = who[item], first = start[user], size = start[user + 1] - first;
  const integer* refused = forbidden + forbidden_start[user];
  integer refusals = forbidden_start[user + 1] - forbidden_start[user];
  for (integer place = LANE; place < size; place += LANES) {
    integer* taken = sample + (row[item] + place) * (1 + count);
    *taken++ = train_item[first + place];
    integer filled = 0;
    for (word64 attempt = 0; filled < count; attempt++) {
      word32 words[4];
      philox(words, (attempt << 20) + place, (word32)(before + user), (word32)round, (word32)purpose, seed);
      for (int lane = 0; lane < 4 && filled < count; lane++) {
        integer drawn = (integer)(words[lane] * (word64)items >> 32);
        int is_new = !holds(refused, refusals, user * items + drawn);
        for (integer other = 0; other < filled; other++) is_new &= taken[other] != drawn;
        if (is_new) taken[filled++] = drawn;
      }
    }
  }
""",
    PHILOX
    + """
/* Whether one of sorted numbers is `wanted`. */
INLINE int holds(const integer* number, integer size, integer wanted) {
  if (size == 0) return 0;
  while (size > 1) {
    integer half = size / 2;
    number += number[half] <= wanted ? half : 0;
    size -= half;
  }
  return *number == wanted;
}
""",
)  # fmt: skip
"""A piece of work is one client's training interactions, each with its negatives."""


_AT_ONCE = 1024
FIRST_WORDS_KERNEL = KernelSource(
    "first_words",
    (
        ("const integer*", "place"), ("const integer*", "user"), ("integer", "count"),
        ("word64", "seed"), ("integer", "round"), ("integer", "purpose"), ("integer*", "word"),
    ),
    f"""
  integer end = (item + 1) * {_AT_ONCE} < count ? (item + 1) * {_AT_ONCE} : count;
  for (integer each = item * {_AT_ONCE} + LANE; each < end; each += LANES) {{
    word32 words[4];
    philox(words, (word64)place[each], (word32)user[each], (word32)round, (word32)purpose, seed);
    word[each] = words[0];
  }}
""",
    PHILOX,
)  # fmt: skip
"""A piece of work is a block of consecutive counters."""


class Sizes(NamedTuple):
    """Sizes of some clients: each one's first sample, the number of all samples, the most of one client."""

    start: Tensor
    samples: int
    most: int


def sizes_of(size: Tensor) -> Sizes:
    """The sizes of clients with `size` (clients) samples; the CPU waits for a GPU."""
    end = size.cumsum(0)
    samples, most = torch.stack((end[-1], size.max())).tolist()
    return Sizes(end - size, samples, most)


def first_words_by_kernel(
    kernel: AnyKernel, place: Tensor, user: Tensor, seed: int, round_: int, purpose: Purpose
) -> Tensor:
    """See `draws.first_words`."""
    word = torch.empty_like(user)
    kernel(
        -(-len(user) // _AT_ONCE),
        place=place.contiguous(), user=user.contiguous(), count=len(user),
        seed=seed, round=round_, purpose=int(purpose),
        word=word,
    )  # fmt: skip
    return word


def orders_by_kernel(
    kernel: AnyKernel,
    who: Tensor,
    size: Tensor,
    seed: int,
    round_: int,
    first_epoch: int,
    epochs: int,
    purpose: Purpose,
    known: Sizes | None = None,
) -> Tensor:
    """See `draws.orders`."""
    if not len(who):
        return torch.empty((epochs, 0), dtype=torch.int32, device=who.device)
    start, samples, widest = known or sizes_of(size)
    order = torch.empty((epochs, samples), dtype=torch.int32, device=who.device)
    items = epochs * len(who)
    kernel(
        items,
        who=who.contiguous(), size=size.contiguous(), start=start,
        clients=len(who), samples=samples, widest=widest,
        space=torch.empty(kernel.workers(items) * 2 * widest, dtype=torch.int64, device=who.device),
        seed=seed, round=round_, purpose=int(purpose), first_epoch=first_epoch,
        order=order,
    )  # fmt: skip
    return order


def samples(
    kernel: AnyKernel,
    who: Tensor,
    start: Tensor,
    train_item: Tensor,
    forbidden: PairSet,
    count: int,
    seed: int,
    round_: int,
    purpose: Purpose,
    before: int = 0,
    rows: tuple[Tensor, int] | None = None,
) -> Tensor:
    """The training items of the clients `who`, each followed by its `count` negatives: (n, 1 + count).

    `who` has no duplicates. `start` and `train_item` hold the training items of all clients. The negatives
    are those of `draws.negatives`. With `rows`, each client's first row in the result and the number of all
    rows, the CPU does not wait for a GPU.
    """
    if rows is None:
        size = start[who + 1] - start[who]
        end = size.cumsum(0)
        rows = end - size, int(end[-1]) if len(who) else 0
    row, total = rows
    sample = torch.empty((total, 1 + count), dtype=torch.int64, device=who.device)
    kernel(
        len(who),
        who=who.contiguous(), row=row,
        start=start, train_item=train_item,
        forbidden=forbidden.key, forbidden_start=forbidden.start, items=forbidden.items,
        count=count, before=before, seed=seed, round=round_, purpose=int(purpose),
        sample=sample,
    )  # fmt: skip
    return sample
