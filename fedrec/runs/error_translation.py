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
"""Characters of torch's message to show."""
_NO_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""Messages about memory of the GPU driver, of torch on a CPU, and of libraries without an own error class."""
_WRONG_SHAPE = "must be the same as input size"
"""Part of torch's message about a loss whose two sides differ in shape."""
_DEVICE_LOST = ("CUDA error", "the GPU cannot")
"""Parts of the messages of torch and of fedrec's kernels when a GPU refuses work."""


@contextmanager
def translate_divergence() -> Iterator[None]:
    """Add to a `DivergenceError` how to record the run as diverged instead."""
    try:
        yield
    except DivergenceError as error:
        raise DivergenceError(
            f"{error} To keep such a run as a result, add --on-divergence record, or set `diverged: kept` "
            "in the configuration."
        ) from error


@contextmanager
def translate_score_shape() -> Iterator[None]:
    """Add to an error about the shape of a score the shape that is required."""
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
def translate_out_of_memory(run: str, device: str) -> Iterator[None]:
    """Translate an out-of-memory error of a device to `MemoryTakenError`, with advice.

    The error of a client that needs more than its limit is not translated: free memory would not help.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OutOfMemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        elsewhere = "" if device == "cpu" else ", or use --device cpu"
        raise MemoryTakenError(
            f"{run}: does not fit into the memory of {device}, or another program uses that memory. Run "
            f"fewer jobs at the same time, give clients less with --memory{elsewhere}. "
            f"({str(error)[:_MOST_CHARACTERS]})"
        ) from error


@contextmanager
def translate_device_loss(run: str, device: str) -> Iterator[None]:
    """Translate the loss of a GPU to `DeviceLostError`, with advice."""
    try:
        yield
    except RuntimeError as error:
        first = _lost_by(error)
        if first is None:
            raise
        raise DeviceLostError(
            f"{run}: {device} accepts no more work of this process. If several processes share a GPU, an "
            "error of one ends them all. Type the same command again to continue from the last checkpoint. "
            "If the run fails again alone, use --engine batched or --device cpu, and report it. "
            f"({str(first)[:_MOST_CHARACTERS]})"
        ) from error


def _lost_by(error: BaseException | None) -> BaseException | None:
    """The earliest error in the chain of `error` that reports the loss of a GPU; None if there is none."""
    if error is None:
        return None
    earlier = _lost_by(error.__context__)
    is_lost = isinstance(error, RuntimeError) and any(words in str(error) for words in _DEVICE_LOST)
    return earlier or (error if is_lost else None)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, directly or as the cause of an engine's error."""
    if isinstance(error, OutOfMemoryError):
        return _is_out_of_memory(error.__cause__)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    )
