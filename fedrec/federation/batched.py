"""The engine that trains many clients at once, in plain torch, on CPU or GPU, block by block."""

import logging
from collections.abc import Iterator

import torch
from torch import Tensor

from fedrec.errors import OutOfMemoryError
from fedrec.federation.block import Block
from fedrec.federation.draws import counted
from fedrec.federation.engine import Outcome, Task

logger = logging.getLogger(__name__)

_FLOAT = 4
_COPIES = 6
"""A trained number's copies at the peak: value, gradient, two moments, start, finished clients."""
_ACTIVATIONS = 8
"""Copies of a mini-batch's rows that a forward and backward pass hold."""


class BatchedEngine:
    """Trains the clients of a task in blocks that fit into `memory` bytes."""

    def __init__(self, memory: int) -> None:
        self.memory = memory

    def run(self, task: Task) -> Outcome:
        """See `engine.Engine.run`."""
        # Most mini-batches first; equal ones stay in order.
        batches = -(-task.samples.size // task.batch_size)
        order = torch.argsort(batches, descending=True, stable=True)
        end = task.samples.size.cumsum(0)
        loss = torch.empty(len(task.who), device=task.who.device)
        waiting = list(self._blocks(task, order))
        while waiting:
            chosen = waiting.pop(0)
            size = task.samples.size[chosen]
            try:
                block = Block(task, chosen, _ranges(end[chosen] - size, size))
                task.method.local_round(block)
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
        block = torch.zeros(len(need), dtype=torch.int64)
        filled, number = 0, 0
        for place, size in enumerate(need.tolist()):
            if filled + size > self.memory:
                filled, number = 0, number + 1
            filled += size
            block[place] = number
        yield from order.split(torch.bincount(block).tolist())

    def _bytes(self, task: Task) -> Tensor:
        """About how much each client of the task needs while it trains."""
        tables = [one for one in task.state.parameters.values() if one.table]
        others = sum(one.count for one in task.state.parameters.values() if not one.table)
        width = sum(one.shape[1] for one in tables)
        items = task.clients.items
        rows = (
            torch.full_like(task.samples.size, items)
            if task.method.dense
            else task.samples.size.clamp(max=items)
        )
        batch = task.samples.size.clamp(max=task.batch_size)
        samples = 10 * _FLOAT * task.samples.size
        numbers = _COPIES * (rows * width + others) + _ACTIVATIONS * batch * width
        return _FLOAT * numbers + samples


def _ranges(start: Tensor, length: Tensor) -> Tensor:
    """start[0], start[0] + 1, ... for each start, one after the other."""
    return torch.repeat_interleave(start, length) + counted(length)
