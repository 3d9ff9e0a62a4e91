"""The steps of an epoch: one after the other, or on a GPU recorded once and played again."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

StepTaker = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Takes a step on the users, items and labels of a mini-batch; its loss."""

_STEPS_BEFORE_RECORDING = 3
"""What torch allocates or loads at first use must not be recorded."""


@dataclass(frozen=True)
class EpochSamples:
    """Samples of an epoch in their order; rows have several items if a method has `whole_rows`."""

    user: Tensor
    item: Tensor
    label: Tensor

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Users, items and labels."""
        return self.user, self.item, self.label

    def between(self, first: int, last: int) -> "EpochSamples":
        """Some of them."""
        return EpochSamples(*(tensor[first:last] for tensor in self.tensors()))


class Steps:
    """Steps of one kind on mini-batches of `batch_size`."""

    status = ""
    """Why they are not compiled, where they might be, or that they are."""

    def __init__(self, step: StepTaker, batch_size: int) -> None:
        self._step = step
        self._batch_size = batch_size

    def epoch(self, samples: EpochSamples) -> float:
        """Take all steps of an epoch; their mean loss."""
        return float(self._taken(samples).mean())

    def _taken(self, samples: EpochSamples) -> Tensor:
        """The losses of the steps over samples, one after the other."""
        batches = zip(*(tensor.split(self._batch_size) for tensor in samples.tensors()), strict=True)
        return torch.stack([self._step(*batch) for batch in batches])


class RecordedSteps(Steps):
    """The same steps on a GPU, where giving out their many small pieces of work takes most of the time.

    A step is recorded once, as a graph of work whose inputs have fixed places, and played for every whole
    mini-batch; the last one of an epoch, which may be smaller, is taken as it comes. The record itself moves
    on what it reads and where it writes its loss. All that it uses lives as long as it does.
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
        """The same samples where the record reads them."""
        if self._samples is None:
            self._samples = EpochSamples(*(tensor.clone() for tensor in samples.tensors()))
        else:
            for own, tensor in zip(self._samples.tensors(), samples.tensors(), strict=True):
                own.copy_(tensor)
        return self._samples

    def _played(self, samples: EpochSamples, first: int, whole: int) -> Tensor:
        """The losses of the whole mini-batches between two places."""
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
    """Steps that torch takes: on a GPU recorded ones."""
    return (RecordedSteps if device.type == "cuda" else Steps)(step, batch_size)
