"""Collective communication between the processes that train one federation.

Each process trains consecutive clients, in the order of ranks. All processes call the same collectives in the
same order.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor, distributed
from typing_extensions import override

from fedrec.errors import PeerError

_MOST_CHARACTERS = 120
"""Longest part of torch's message that an error repeats."""
Value = TypeVar("Value")
Tensors: TypeAlias = Mapping[str, Tensor]


class Communicator:
    """A single process that trains all clients: its collectives return their input, without a copy."""

    rank: int = 0
    """Rank of this process, from 0."""
    size: int = 1
    """Number of processes."""

    @property
    def is_root(self) -> bool:
        """Whether this is rank 0, which decides for all processes and writes files."""
        return self.rank == 0

    def span(self, count: int) -> slice:
        """Slice of `count` consecutive elements that belongs to this process."""
        return self.spans(count)[self.rank]

    def spans(self, count: int) -> list[slice]:
        """Slices of `count` consecutive elements, one per process, equal in size up to one."""
        ends = [count * rank // self.size for rank in range(self.size + 1)]
        return [slice(*ends[rank : rank + 2]) for rank in range(self.size)]

    def all_reduce(self, own: Tensor) -> Tensor:
        """The sum of a tensor over all processes; each gets the same bytes."""
        return own

    def all_gather(self, own: Tensor) -> Tensor:
        """The rows of all processes, in the order of ranks."""
        return own

    def all_gather_lengths(self, own: Tensor) -> list[int]:
        """The number of rows of each process."""
        return [len(own)]

    def all_gather_object(self, own: Value) -> list[Value]:
        """The small objects of all processes, in the order of ranks."""
        return [own]

    def broadcast(self, own: Value) -> Value:
        """The small object of rank 0."""
        return own

    def all_to_all(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        """Send `parts`, one per process; receive one tensor per process, of these `shapes`."""
        del shapes
        return [*parts]

    def gather(self, own: Tensors) -> list[dict[str, Tensor]]:
        """The tensors of every process, in the memory of rank 0; an empty list on other ranks."""
        return [{**own}]

    def scatter(self, parts: Callable[[], Sequence[Tensors]]) -> Tensors:
        """Let rank 0 make `parts`, one per process; return the part of this process."""
        return parts()[0]


SINGLE = Communicator()


class DistributedCommunicator(Communicator):
    """Processes that torch.distributed connects.

    `device` sends the tensors of `all_reduce`, `all_gather` and `all_to_all`; tensors on other devices are
    copied there and back. The other collectives send from the CPU, so `group` also needs a backend for it. If
    the connection breaks, another process has ended, and the collective raises `PeerError`.
    """

    def __init__(self, device: torch.device, group: Any = None) -> None:  # noqa: ANN401 - a process group of torch
        self.device = device
        self.group = group
        self.rank = distributed.get_rank(group)
        self.size = distributed.get_world_size(group)

    @override
    def all_reduce(self, own: Tensor) -> Tensor:
        sent = own.to(self.device, copy=True).contiguous()
        with peer_errors():
            distributed.all_reduce(sent, group=self.group)
        return sent.to(own.device)

    @override
    def all_gather(self, own: Tensor) -> Tensor:
        lengths = self.all_gather_lengths(own)
        whole = torch.empty((sum(lengths), *own.shape[1:]), dtype=own.dtype, device=self.device)
        for rank, part in enumerate(whole.split(lengths)):
            if rank == self.rank:
                part.copy_(own)
            if part.numel():
                with peer_errors():
                    distributed.broadcast(part, group=self.group, group_src=rank)
        return whole.to(own.device)

    @override
    def all_gather_lengths(self, own: Tensor) -> list[int]:
        every = [torch.empty(1, dtype=torch.int64) for _ in range(self.size)]
        with peer_errors():
            distributed.all_gather(every, torch.tensor([len(own)]), group=self.group)
        return [int(length) for length in every]

    @override
    def all_gather_object(self, own: Value) -> list[Value]:
        every: list[Any] = [None] * self.size
        with peer_errors():
            distributed.all_gather_object(every, own, group=self.group)
        return cast("list[Value]", every)

    @override
    def broadcast(self, own: Value) -> Value:
        objects: list[Any] = [own if self.is_root else None]
        with peer_errors():
            distributed.broadcast_object_list(objects, group=self.group, group_src=0)
        return cast("Value", objects[0])

    @override
    def all_to_all(self, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]) -> list[Tensor]:
        sent = torch.cat([part.reshape(-1).to(self.device) for part in parts])
        counts = [torch.Size(shape).numel() for shape in shapes]
        received = sent.new_empty(sum(counts))
        with peer_errors():
            distributed.all_to_all_single(
                received, sent, counts, [part.numel() for part in parts], group=self.group
            )
        blocks = received.to(parts[0].device).split(counts)
        return [block.view(*shape) for block, shape in zip(blocks, shapes, strict=True)]

    @override
    def gather(self, own: Tensors) -> list[dict[str, Tensor]]:
        kinds = self.all_gather_object(_kinds(own))
        if not self.is_root:
            for name in kinds[self.rank]:
                self._send(own[name], 0)
            return []
        others = ({name: self._received(kind, rank) for name, kind in kinds[rank].items()}
                  for rank in range(1, self.size))  # fmt: skip
        return [{name: value.cpu() for name, value in own.items()}, *others]

    @override
    def scatter(self, parts: Callable[[], Sequence[Tensors]]) -> Tensors:
        made = parts() if self.is_root else []
        kinds = self.broadcast([_kinds(part) for part in made])
        if not self.is_root:
            return {name: self._received(kind, 0) for name, kind in kinds[self.rank].items()}
        for rank in range(1, self.size):
            for name in kinds[rank]:
                self._send(made[rank][name], rank)
        # A part may be a view of the whole. Copies let the memory of the whole be freed.
        return {name: value.clone() for name, value in made[0].items()}

    def _send(self, value: Tensor, rank: int) -> None:
        """Send a tensor to the memory of another process."""
        if value.numel():
            with peer_errors():
                distributed.send(value.detach().cpu().contiguous(), group=self.group, group_dst=rank)

    def _received(self, kind: "_Kind", rank: int) -> Tensor:
        value = torch.empty(kind[0], dtype=kind[1])
        if value.numel():
            with peer_errors():
                distributed.recv(value, group=self.group, group_src=rank)
        return value


_Kind: TypeAlias = tuple[tuple[int, ...], torch.dtype]
"""Shape and dtype of a tensor."""


def _kinds(tensors: Tensors) -> dict[str, _Kind]:
    return {name: (tuple(value.shape), value.dtype) for name, value in tensors.items()}


@contextmanager
def peer_errors() -> Iterator[None]:
    """Turn errors of a broken connection into `PeerError`."""
    try:
        yield
    except RuntimeError as error:
        message = str(error).splitlines()[0][:_MOST_CHARACTERS]
        raise PeerError(
            f"another process of this run has ended or is unreachable ({message}). Read its output for the "
            "cause, then start the run again."
        ) from error
