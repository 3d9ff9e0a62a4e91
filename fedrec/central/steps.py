"""The steps of an epoch: launched one by one, or on a GPU recorded once as a CUDA graph and replayed."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

StepTaker = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes a step on the users, items and labels of a mini-batch, and returns its loss."""

_STEPS_BEFORE_RECORDING = 3
"""Steps before the recording, in which torch allocates and loads what it needs at first use."""


@dataclass(frozen=True)
class EpochSamples:
    """The samples of an epoch in their order; with `whole_rows`, each row has several items."""

    user: Tensor
    item: Tensor
    label: Tensor

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """The users, items and labels."""
        return self.user, self.item, self.label

    def between(self, first: int, last: int) -> "EpochSamples":
        """The samples from index `first` to `last`."""
        return EpochSamples(*(tensor[first:last] for tensor in self.tensors()))


class Steps:
    """Steps on mini-batches of `batch_size`, launched one by one."""

    status = ""
    """Whether the steps are compiled, or why not; empty if the method has no compiled steps."""

    def __init__(self, step: StepTaker, batch_size: int) -> None:
        self._step = step
        self._batch_size = batch_size

    def epoch(self, samples: EpochSamples) -> float:
        """Take all steps of an epoch, and return their mean loss."""
        return float(self._taken(samples).mean())

    def _taken(self, samples: EpochSamples) -> Tensor:
        """Take the steps over some samples, and return their losses."""
        batches = zip(*(tensor.split(self._batch_size) for tensor in samples.tensors()), strict=True)
        return torch.stack([self._step(*batch) for batch in batches])


class RecordedSteps(Steps):
    """Steps replayed from a CUDA graph, since launching their many small kernels takes most of the time.

    A step is recorded once, with inputs at fixed addresses, and replayed for every whole mini-batch. The last
    mini-batch of an epoch may be shorter, and is launched normally. The graph itself advances the index of
    its samples and of its loss. Its tensors live as long as this object.
    """

    _samples: EpochSamples | None = None
    _record: torch.cuda.CUDAGraph | None = None

    @override
    def epoch(self, samples: EpochSamples) -> float:
        samples = self._placed(samples)
        every = len(samples.user)
        whole = every // self._batch_size * self._batch_size
        first = min(whole, _STEPS_BEFORE_RECORDING * self._batch_size)
        losses = [self._taken(samples.between(0, first))] if first else []
        if whole > first:
            losses.append(self._played(samples, first, whole))
        if whole < every:
            losses.append(self._taken(samples.between(whole, every)))
        return float(torch.cat(losses).mean())

    def _placed(self, samples: EpochSamples) -> EpochSamples:
        """Copy samples to the addresses from which the graph reads."""
        if self._samples is None:
            self._samples = EpochSamples(*(tensor.clone() for tensor in samples.tensors()))
        else:
            for own, tensor in zip(self._samples.tensors(), samples.tensors(), strict=True):
                own.copy_(tensor)
        return self._samples

    def _played(self, samples: EpochSamples, first: int, whole: int) -> Tensor:
        """Replay the whole mini-batches between two indices of samples, and return their losses."""
        if self._record is None:
            self._record = self._recorded(samples, first, whole)
        torch.arange(first, first + self._batch_size, out=self._place)
        self._number.zero_()
        for _ in range(first, whole, self._batch_size):
            self._record.replay()
        return self._losses

    def _recorded(self, samples: EpochSamples, first: int, whole: int) -> torch.cuda.CUDAGraph:
        device = samples.user.device
        self._place = torch.arange(self._batch_size, device=device)
        self._number = torch.zeros(1, dtype=torch.int64, device=device)
        self._losses = torch.zeros((whole - first) // self._batch_size, device=device)
        record = torch.cuda.CUDAGraph()
        with torch.cuda.graph(record):
            loss = self._step(*(tensor.index_select(0, self._place) for tensor in samples.tensors()))
            self._losses.index_copy_(0, self._number, loss.view(1))
            self._number += 1
            self._place += self._batch_size
        return record


def usual_steps(step: StepTaker, batch_size: int, device: torch.device) -> Steps:
    """The steps by torch: on a GPU `RecordedSteps`, else `Steps`."""
    return (RecordedSteps if device.type == "cuda" else Steps)(step, batch_size)
