"""Shards of a federation's stored tensors: merge those of several processes, and split them again.

A file holds the whole federation in the order of clients. So it does not depend on the number of processes
that wrote it, and any number of processes can continue from it.
"""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from fedrec.federation.collectives import Communicator, Tensors
from fedrec.federation.observe.recorder import PREFIX, merge_extras
from fedrec.federation.state.sparse_rows import merge_rows, split_rows

_JOINED, _TOOK_PART = "clients/joined", "clients/took_part"
_AXES = {"kept/": 0, "optimiser/": 0, "clients/": 0, _TOOK_PART: 1, f"{PREFIX}abundance/": 0}
"""Client axis of tensors, by the prefix of their names; the last matching prefix counts."""


def merge_state(parts: Sequence[dict[str, Tensor]]) -> Tensors:
    """Merge the tensors of all processes into those of the federation.

    Merging removes the tensors of clients from `parts`, so that memory holds them once.
    """
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part)
    stores = _stores(names)
    counts = [len(part[_JOINED]) for part in parts]
    whole: dict[str, Tensor] = {}
    for name in names:
        axis = _axis(name)
        if _is_of(name, stores) or name.startswith(PREFIX):
            continue
        if axis is None:
            whole[name] = parts[0][name]
        else:
            whole[name] = torch.cat(_with_zeros(name, parts, counts), dim=axis)
    for store in stores:
        each = merge_rows([_store_tensors(store, part) for part in parts])
        whole |= {f"{store}{suffix}": value for suffix, value in each.items()}
    return whole | merge_extras(parts, counts)


def split_state(whole: Tensors, communicator: Communicator) -> list[Tensors]:
    """Split the tensors of a federation into shards, one per process."""
    if communicator.size == 1:
        return [whole]
    return [_shard(whole, span) for span in communicator.spans(len(whole[_JOINED]))]


def _shard(whole: Tensors, some: slice) -> Tensors:
    stores = _stores(whole)
    part: dict[str, Tensor] = {}
    for name, value in whole.items():
        axis = _axis(name)
        if not _is_of(name, stores):
            part[name] = value if axis is None else value.narrow(axis, some.start, some.stop - some.start)
    for store in stores:
        part |= {
            f"{store}{suffix}": value
            for suffix, value in split_rows(_store_tensors(store, whole), some).items()
        }
    return part


def _axis(name: str) -> int | None:
    """Client axis of a tensor; None if it is shared by all or carries its own index."""
    axis = None
    for start, number in _AXES.items():
        if name.startswith(start):
            axis = number
    return axis


def _with_zeros(name: str, parts: Sequence[dict[str, Tensor]], counts: Sequence[int]) -> list[Tensor]:
    """A tensor of each process, removed from `parts`; zeros for a process that has none."""
    found = [part.pop(name, None) for part in parts]
    like = next(value for value in found if value is not None)
    return [
        like.new_zeros(count, *like.shape[1:]) if value is None else value
        for value, count in zip(found, counts, strict=True)
    ]


def _stores(names: Iterable[str]) -> list[str]:
    """The names of client state that is stored as changed rows."""
    return [name.removesuffix("/version") for name in names if name.endswith("/version")]


def _is_of(name: str, stores: Sequence[str]) -> bool:
    return any(name.startswith(f"{store}/") for store in stores)


def _store_tensors(store: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one store, by their suffix."""
    return {
        name.removeprefix(store): value for name, value in tensors.items() if name.startswith(f"{store}/")
    }
