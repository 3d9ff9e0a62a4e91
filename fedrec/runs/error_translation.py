"""Translate errors of training into errors that say what to do."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from fedrec.errors import (
    DeviceLostError,
    DivergenceError,
    FederationError,
    MemoryTakenError,
    OutOfMemoryError,
)

_MOST_CHARACTERS = 200
"""Of what torch says when memory runs out."""
_NO_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""What the driver of a GPU, torch on a CPU, and libraries say that have no error of their own for that."""
_WRONG_SHAPE = "must be the same as input size"
"""What torch says of a loss whose two sides differ in shape."""
_DEVICE_LOST = ("CUDA error", "the GPU cannot")
"""What torch, and kernels of our own, say when a GPU has refused work."""


@contextmanager
def translate_divergence() -> Iterator[None]:
    """Let a divergence that is refused say that it need not be."""
    try:
        yield
    except DivergenceError as error:
        raise DivergenceError(
            f"{error} To keep such a run as a result, add --on-divergence record, or set `diverged: kept` "
            "in the configuration."
        ) from error


@contextmanager
def translate_score_shape() -> Iterator[None]:
    """Let a score of the wrong shape say which shape is wanted."""
    try:
        yield
    except FederationError as error:
        if _WRONG_SHAPE not in str(error):
            raise
        raise FederationError(
            f"{error} The input is the result of `score`, the target one number per item of the batch. Sum "
            "over the last axis only in `score`, as `dot` does."
        ) from error


@contextmanager
def translate_out_of_memory(run: str, place: str) -> Iterator[None]:
    """Let memory of a device that runs out be a `MemoryTakenError`, which says what to do about it.

    Not so where a client needs more than it is allowed, however much is free.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OutOfMemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        elsewhere = "" if place == "cpu" else ", or use --device cpu"
        raise MemoryTakenError(
            f"{run}: does not fit into the memory of {place}, or another program uses that memory. Run "
            f"fewer jobs at the same time, give clients less with --memory{elsewhere}. "
            f"({str(error)[:_MOST_CHARACTERS]})"
        ) from error


@contextmanager
def translate_device_loss(run: str, place: str) -> Iterator[None]:
    """Let the loss of a GPU be a `DeviceLostError`, which says what to do about it."""
    try:
        yield
    except RuntimeError as error:
        first = _lost_by(error)
        if first is None:
            raise
        raise DeviceLostError(
            f"{run}: {place} accepts no more work of this process. If several processes share a GPU, an "
            "error of one ends them all. Type the same command again to continue from the last checkpoint. "
            "If the run fails again alone, use --engine batched or --device cpu, and report it. "
            f"({str(first)[:_MOST_CHARACTERS]})"
        ) from error


def _lost_by(error: BaseException | None) -> BaseException | None:
    """The first error of those behind `error` by which a GPU was lost; None where none was."""
    if error is None:
        return None
    earlier = _lost_by(error.__context__)
    is_lost = isinstance(error, RuntimeError) and any(words in str(error) for words in _DEVICE_LOST)
    return earlier or (error if is_lost else None)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, or an engine says so for that reason."""
    if isinstance(error, OutOfMemoryError):
        return _is_out_of_memory(error.__cause__)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    )
