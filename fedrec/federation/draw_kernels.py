"""The draws of a round as kernels: the very numbers that `draws` has in torch."""

import torch
from torch import Tensor

from fedrec.native.kernel import AnyKernel
from fedrec.native.shuffle import PHILOX, SHUFFLE
from fedrec.native.source import Source
from fedrec.random.purpose import Purpose

ORDERS = Source(
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


def orders(
    kernel: AnyKernel,
    who: Tensor,
    size: Tensor,
    seed: int,
    round_: int,
    first_epoch: int,
    epochs: int,
    purpose: Purpose,
) -> Tensor:
    """See `draws.orders`."""
    if not len(who):
        return torch.empty((epochs, 0), dtype=torch.int32, device=who.device)
    end = size.cumsum(0)
    samples, widest = torch.stack((end[-1], size.max())).tolist()
    order = torch.empty((epochs, samples), dtype=torch.int32, device=who.device)
    items = epochs * len(who)
    kernel(
        items,
        who=who.contiguous(), size=size.contiguous(), start=end - size,
        clients=len(who), samples=samples, widest=widest,
        space=torch.empty(kernel.workers(items) * 2 * widest, dtype=torch.int64, device=who.device),
        seed=seed, round=round_, purpose=int(purpose), first_epoch=first_epoch,
        order=order,
    )  # fmt: skip
    return order
