"""Cut clients into blocks that fit into memory and take the least total time."""

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import OutOfMemoryError
from fedrec.federation.engines.engine import Task

_FLOAT = 4
_COPIES = 6
"""Copies of a trained number at the peak: value, gradient, two moments, stopped clients, earlier upload."""
_OVERHEAD = {"cpu": 10_000, "cuda": 500_000}
"""Fixed cost of a step in samples: calls on a CPU, kernel launches on a GPU."""
_ACTIVATIONS = 8
"""Copies of a mini-batch's rows that forward and backward pass keep."""


def blocks(task: Task, sizes: Tensor, order: Tensor, memory: int, alone: int) -> Iterator[Tensor]:
    """The clients of each block: consecutive in `order`, chosen for the least time within `memory` bytes.

    `sizes` are the numbers of samples of the task's clients. Both tensors lie on the CPU.
    If one client needs more than `memory`, it may take up to `alone` bytes.
    """
    overhead = _OVERHEAD[task.who.device.type]
    alike = similar_sizes(sizes[order].numpy(), task.batch_size, overhead)
    yield from fitting_blocks(task, sizes, order, alike, memory, alone)


def fitting_blocks(
    task: Task, sizes: Tensor, order: Tensor, parts: list[int], memory: int, alone: int
) -> Iterator[Tensor]:
    """Cut each of the `parts` of `order` further until its training fits into memory; see `blocks`."""
    need = needed_bytes(task, sizes)
    largest = int(need.max())
    if largest > max(memory, alone):
        who = int(task.clients.user[task.who[int(order[need[order].argmax()])]])
        raise OutOfMemoryError(
            f"round {task.round_}: client {who} alone needs about {_amount(largest)}, but "
            f"{_amount(max(memory, alone))} are allowed. Allow more with --memory, or lower batch_size "
            "or d."
        )
    memory = max(memory, largest)
    for alike in order.split(parts):
        yield from alike.split(_fitting(need[alike].tolist(), memory))


def _amount(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB" if count >= 2**20 else f"{count:,} bytes"


def _fitting(need: list[int], memory: int) -> list[int]:
    """Lengths of runs of consecutive clients that fit into memory together."""
    counts, filled = [0], 0
    for size in need:
        if filled + size > memory:
            counts.append(0)
            filled = 0
        counts[-1] += 1
        filled += size
    return counts


def needed_bytes(task: Task, size: Tensor) -> Tensor:
    """Estimated bytes that each client of the task, with `size` samples, needs while it trains."""
    parameters = [task.state.parameters[name] for name in task.state.visible]
    tables = [part for part in parameters if part.table]
    others = [part for part in parameters if not part.table]
    width = sum(part.shape[1] for part in tables)
    # Autograd keeps a layer's outputs for every sample, as it keeps a table's rows.
    layers = sum(part.shape[1] for part in others if part.shape[0] > 1)
    items = task.clients.items
    rows = torch.full_like(size, items) if task.needs.whole_tables else size.clamp(max=items)
    batch = size.clamp(max=task.batch_size)
    samples = 10 * _FLOAT * size
    trained = rows * width + sum(part.count for part in others)
    numbers = _COPIES * trained + _ACTIVATIONS * batch * (width + layers)
    numbers = numbers + task.needs.square_matrices * batch.square()
    return _FLOAT * numbers + samples


def similar_sizes(sizes: NDArray[np.int64], batch_size: int, overhead: int) -> list[int]:
    """Cut clients, sorted by decreasing number of samples, into the blocks that take the least total time.

    Mini-batches of a block are padded to its longest. Each step costs `overhead` further samples.
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
    return similar_sizes(sizes[:cut], batch_size, overhead) + similar_sizes(sizes[cut:], batch_size, overhead)


def _work(sizes: NDArray[np.int64], batch_size: int, overhead: int) -> int:
    first = np.arange(0, sizes[0], batch_size)
    # Sorted from most to least: clients with more than `first` samples come first.
    active = np.searchsorted(-sizes, -first, side="left")
    width = np.minimum(sizes[0] - first, batch_size)
    return int((active * width).sum()) + overhead * len(first)
