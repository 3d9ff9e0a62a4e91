"""The processes that train one federation together, seen from one of them.

Each holds some of the clients, neighbours, those of the first process first. Whatever is asked of peers is
asked by all of them, in the same order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, distributed
from typing_extensions import override

from fedrec.errors import PeerError

_MOST_CHARACTERS = 120
"""Of what torch says of a broken connection."""
Value = TypeVar("Value")
Tensors: TypeAlias = Mapping[str, Tensor]


class Peers:
    """A single process that trains all clients: collectives wait for nobody and copy nothing."""

    rank: int = 0
    """The number of this process, from 0."""
    size: int = 1
    """How many processes there are."""

    @property
    def leads(self) -> bool:
        """Whether this is the process that decides what all do, and writes files."""
        return self.rank == 0

    def span(self, count: int) -> slice:
        """Slice of `count` consecutive elements that belongs to this process."""
        return self.spans(count)[self.rank]

    def spans(self, count: int) -> list[slice]:
        """Slices of `count` consecutive elements, one per process, equal in size up to one."""
        ends = [count * rank // self.size for rank in range(self.size + 1)]
        return [slice(*ends[rank : rank + 2]) for rank in range(self.size)]

    def total(self, own: Tensor) -> Tensor:
        """The sum of what all processes have, the same bytes for each."""
        return own

    def together(self, own: Tensor) -> Tensor:
        """The rows that all processes have, one process after the other."""
        return own

    def lengths(self, own: Tensor) -> list[int]:
        """Number of rows of every process."""
        return [len(own)]

    def each(self, own: Value) -> list[Value]:
        """All-gather of a small object."""
        return [own]

    def led(self, own: Value) -> Value:
        """Broadcast of a small object from the first process."""
        return own

    def exchanged(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """All-to-all: send `parts`, one per process, and receive tensors of these `shapes`."""
        del shapes
        return [*parts]

    def collected(self, own: Tensors) -> list[dict[str, Tensor]]:
        """The tensors of every process, in the first one's memory; in all others none."""
        return [{**own}]

    def dealt(self, parts: Callable[[], Sequence[Tensors]]) -> Tensors:
        """The part for this process of what the first one makes for each."""
        return parts()[0]


ALONE = Peers()


class Company(Peers):
    """Processes that torch connects.

    `wire` is the device that messages are sent from: what lies elsewhere is copied there and back. Where the
    connection breaks another process has ended, which is a `PeerError`.
    """

    def __init__(self, wire: torch.device, group: Any = None) -> None:  # noqa: ANN401 - what torch calls a group
        self.wire = wire
        self.group = group
        self.rank = distributed.get_rank(group)
        self.size = distributed.get_world_size(group)

    @override
    def total(self, own: Tensor) -> Tensor:
        sent = own.to(self.wire, copy=True).contiguous()
        with connected():
            distributed.all_reduce(sent, group=self.group)
        return sent.to(own.device)

    @override
    def together(self, own: Tensor) -> Tensor:
        lengths = self.lengths(own)
        whole = torch.empty((sum(lengths), *own.shape[1:]), dtype=own.dtype, device=self.wire)
        for rank, part in enumerate(whole.split(lengths)):
            if rank == self.rank:
                part.copy_(own)
            if part.numel():
                with connected():
                    distributed.broadcast(part, group=self.group, group_src=rank)
        return whole.to(own.device)

    @override
    def lengths(self, own: Tensor) -> list[int]:
        every = [torch.empty(1, dtype=torch.int64) for _ in range(self.size)]
        with connected():
            distributed.all_gather(every, torch.tensor([len(own)]), group=self.group)
        return [int(length) for length in every]

    @override
    def each(self, own: Value) -> list[Value]:
        every: list[Any] = [None] * self.size
        with connected():
            distributed.all_gather_object(every, own, group=self.group)
        return cast("list[Value]", every)

    @override
    def led(self, own: Value) -> Value:
        told: list[Any] = [own if self.leads else None]
        with connected():
            distributed.broadcast_object_list(told, group=self.group, group_src=0)
        return cast("Value", told[0])

    @override
    def exchanged(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        sent = torch.cat([part.reshape(-1).to(self.wire) for part in parts])
        counts = [torch.Size(shape).numel() for shape in shapes]
        received = sent.new_empty(sum(counts))
        with connected():
            distributed.all_to_all_single(
                received, sent, counts, [part.numel() for part in parts], group=self.group
            )
        blocks = received.to(parts[0].device).split(counts)
        return [block.view(*shape) for block, shape in zip(blocks, shapes, strict=True)]

    @override
    def collected(self, own: Tensors) -> list[dict[str, Tensor]]:
        kinds = self.each(_kinds(own))
        if not self.leads:
            for name in kinds[self.rank]:
                self._send(own[name], 0)
            return []
        others = ({name: self._received(kind, rank) for name, kind in kinds[rank].items()}
                  for rank in range(1, self.size))  # fmt: skip
        return [{name: value.cpu() for name, value in own.items()}, *others]

    @override
    def dealt(self, parts: Callable[[], Sequence[Tensors]]) -> Tensors:
        made = parts() if self.leads else []
        kinds = self.led([_kinds(part) for part in made])
        if not self.leads:
            return {name: self._received(kind, 0) for name, kind in kinds[self.rank].items()}
        for rank in range(1, self.size):
            for name in kinds[rank]:
                self._send(made[rank][name], rank)
        # Parts may lie in what was dealt out, which is not to be held on to.
        return {name: value.clone() for name, value in made[0].items()}

    def _send(self, value: Tensor, rank: int) -> None:
        """Send a tensor from this process's memory to another's."""
        if value.numel():
            with connected():
                distributed.send(value.detach().cpu().contiguous(), group=self.group, group_dst=rank)

    def _received(self, kind: "_Kind", rank: int) -> Tensor:
        value = torch.empty(kind[0], dtype=kind[1])
        if value.numel():
            with connected():
                distributed.recv(value, group=self.group, group_src=rank)
        return value


_Kind: TypeAlias = tuple[tuple[int, ...], torch.dtype]
"""The shape of a tensor, and of what its numbers are."""


def _kinds(tensors: Tensors) -> dict[str, _Kind]:
    return {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}


@contextmanager
def connected() -> Iterator[None]:
    """Let what torch says of a broken connection be a `PeerError`."""
    try:
        yield
    except RuntimeError as error:
        said = str(error).splitlines()[0][:_MOST_CHARACTERS]
        raise PeerError(f"another process of this run has ended, or cannot be reached ({said})") from error
