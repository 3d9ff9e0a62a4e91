"""The engine that trains many clients at once, in plain torch, on CPU or GPU, block by block."""

import logging
from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import OutOfMemoryError
from fedrec.federation.engines.batched.block import Block
from fedrec.federation.engines.engine import Outcome, Task
from fedrec.federation.pairs import counted

logger = logging.getLogger(__name__)

_FLOAT = 4
_COPIES = 6
"""A trained number's copies at the peak: value, gradient, two moments, start, finished clients."""
_OVERHEAD = {"cpu": 10_000, "cuda": 500_000}
"""What a step costs besides its samples, in samples: calls on a CPU, launches on a GPU."""
_ACTIVATIONS = 8
"""Copies of a mini-batch's rows that a forward and backward pass hold."""


class BatchedEngine:
    """Trains the clients of a task in blocks that fit into `memory` bytes."""

    def __init__(self, memory: int) -> None:
        self.memory = memory

    def run(self, task: Task) -> Outcome:
        """See `engine.Engine.run`."""
        # Most samples first; equal ones stay in order.
        order = torch.argsort(task.samples.size, descending=True, stable=True)
        end = task.samples.size.cumsum(0)
        loss = torch.empty(len(task.who), device=task.who.device)
        waiting = list(self._blocks(task, order))
        while waiting:
            chosen = waiting.pop(0)
            size = task.samples.size[chosen]
            try:
                block = Block(task, chosen, _ranges(end[chosen] - size, size))
                task.work(block)
            except torch.OutOfMemoryError as error:
                # Nothing was sent or stored yet: do the same clients again, in two halves.
                if len(chosen) == 1:
                    raise OutOfMemoryError(
                        f"round {task.round_}: client {int(task.clients.user[task.who[chosen[0]]])} alone "
                        f"does not fit into the device's memory. Lower batch_size or d. ({error})"
                    ) from error
                logger.warning("round %s: %s clients do not fit at once; halving", task.round_, len(chosen))
                self.memory //= 2
                waiting[:0] = chosen.split(-(-len(chosen) // 2))
                continue
            block.check()
            block.finish()
            loss[chosen] = block.last_loss
        return Outcome(loss)

    def _blocks(self, task: Task, order: Tensor) -> Iterator[Tensor]:
        """Neighbours of `order` that fit into memory together."""
        need = self._bytes(task)[order]
        largest = int(need.max())
        if largest > self.memory:
            who = int(task.clients.user[task.who[order[need.argmax()]]])
            raise OutOfMemoryError(
                f"round {task.round_}: client {who} alone needs about {largest / 2**20:,.0f} MiB and "
                f"{self.memory / 2**20:,.0f} MiB are allowed. Allow more with --memory, or lower batch_size "
                "or d."
            )
        overhead = _OVERHEAD[task.who.device.type]
        sizes = task.samples.size[order].cpu().numpy()
        for alike in order.split(alike_sizes(sizes, task.batch_size, overhead)):
            yield from alike.split(self._fitting(self._bytes(task)[alike].tolist()))

    def _fitting(self, need: list[int]) -> list[int]:
        """Numbers of neighbours that fit into memory together."""
        counts, filled = [0], 0
        for size in need:
            if filled + size > self.memory:
                counts.append(0)
                filled = 0
            counts[-1] += 1
            filled += size
        return counts

    def _bytes(self, task: Task) -> Tensor:
        """About how much each client of the task needs while it trains."""
        held = [task.state.parameters[name] for name in task.state.visible]
        tables = [one for one in held if one.table]
        others = [one for one in held if not one.table]
        width = sum(one.shape[1] for one in tables)
        # A layer's outputs are held for every sample, as a table's rows are.
        layers = sum(one.shape[1] for one in others if one.shape[0] > 1)
        items = task.clients.items
        rows = (
            torch.full_like(task.samples.size, items)
            if task.method.dense
            else task.samples.size.clamp(max=items)
        )
        batch = task.samples.size.clamp(max=task.batch_size)
        samples = 10 * _FLOAT * task.samples.size
        trained = rows * width + sum(one.count for one in others)
        numbers = _COPIES * trained + _ACTIVATIONS * batch * (width + layers)
        numbers = numbers + task.method.pairs() * batch.square()
        return _FLOAT * numbers + samples


def alike_sizes(sizes: NDArray[np.int64], batch_size: int, overhead: int) -> list[int]:
    """How to cut clients, sorted by their samples, most first, into blocks that take least time together.

    A block works on as many samples as its longest mini-batches have, filled up where a client
    has fewer, and a step costs `overhead` samples besides.
    """
    if len(sizes) < 2:
        return [len(sizes)]
    whole = _work(sizes, batch_size, overhead)
    cuts = np.unique(np.linspace(1, len(sizes) - 1, num=min(32, len(sizes) - 1)).astype(int))
    work = [
        _work(sizes[:cut], batch_size, overhead) + _work(sizes[cut:], batch_size, overhead) for cut in cuts
    ]
    best = int(np.argmin(work))
    if work[best] >= whole:
        return [len(sizes)]
    cut = cuts[best]
    return alike_sizes(sizes[:cut], batch_size, overhead) + alike_sizes(sizes[cut:], batch_size, overhead)


def _work(sizes: NDArray[np.int64], batch_size: int, overhead: int) -> int:
    first = np.arange(0, sizes[0], batch_size)
    # Sorted from most to least: those with more than `first` samples come before.
    active = np.searchsorted(-sizes, -first, side="left")
    width = np.minimum(sizes[0] - first, batch_size)
    return int((active * width).sum()) + overhead * len(first)


def _ranges(start: Tensor, length: Tensor) -> Tensor:
    """start[0], start[0] + 1, ... for each start, one after the other."""
    return torch.repeat_interleave(start, length) + counted(length)
