"""The steps of an epoch: one after the other, or on a GPU recorded once and played again."""

from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.method import CentralMethod
from fedrec.federation.model.tables import Values

_STEPS_BEFORE_RECORDING = 3
"""What torch allocates or loads at first use must not be recorded."""


@dataclass(frozen=True)
class Samples:
    """What an epoch goes over, mixed: with rows of several items where a method has `whole_rows`."""

    user: Tensor
    item: Tensor
    label: Tensor
    order: Tensor
    """The places of all samples, in the order of their turns."""

    def tensors(self) -> tuple[Tensor, ...]:
        """All that differs from epoch to epoch."""
        return self.user, self.item, self.label, self.order


class Steps:
    """Steps of Adam on mini-batches of `batch_size`."""

    def __init__(self, method: CentralMethod, weights: Values, optimiser: Adam, batch_size: int) -> None:
        self._method = method
        self._weights = weights
        self._optimiser = optimiser
        self._batch_size = batch_size

    def epoch(self, samples: Samples) -> float:
        """Take all steps of an epoch; their mean loss."""
        return float(self._taken(samples, samples.order).mean())

    def _taken(self, samples: Samples, order: Tensor) -> Tensor:
        """The losses of the steps over a part of the order."""
        return torch.stack([self._step(samples, chosen) for chosen in order.split(self._batch_size)])

    def _step(self, samples: Samples, chosen: Tensor) -> Tensor:
        w = self._method.forward(self._weights)
        loss = self._method.loss(w, samples.user[chosen], samples.item[chosen], samples.label[chosen])
        self._optimiser.step(loss)
        return loss.detach()


class RecordedSteps(Steps):
    """The same steps on a GPU, where giving out their many small pieces of work takes most of the time.

    A step is recorded once, as a graph of work whose inputs have fixed places, and played for every whole
    mini-batch; the last one of an epoch, which may be smaller, is taken as it comes. The record reads from
    `_position` where in the order it is, and moves it on itself. All that it reads lives as long as it does.
    """

    _samples: Samples | None = None
    _record: torch.cuda.CUDAGraph | None = None

    @override
    def epoch(self, samples: Samples) -> float:
        fixed = self._placed(samples)
        whole = len(fixed.order) // self._batch_size * self._batch_size
        first = min(whole, _STEPS_BEFORE_RECORDING * self._batch_size)
        losses = [self._taken(fixed, fixed.order[:first])] if first else []
        if whole > first:
            losses.append(self._played(fixed, first, whole))
        if whole < len(fixed.order):
            losses.append(self._taken(fixed, fixed.order[whole:]))
        return float(torch.cat(losses).mean())

    def _placed(self, samples: Samples) -> Samples:
        """The same samples where the record reads them."""
        if self._samples is None:
            self._samples = Samples(*(tensor.clone() for tensor in samples.tensors()))
        else:
            for own, tensor in zip(self._samples.tensors(), samples.tensors(), strict=True):
                own.copy_(tensor)
        return self._samples

    def _played(self, samples: Samples, first: int, whole: int) -> Tensor:
        """The losses of the whole mini-batches between two places of the order."""
        if self._record is None:
            self._record = self._recorded(samples)
        self._position.fill_(first)
        for _ in range(first, whole, self._batch_size):
            self._record.replay()
        return self._losses[first // self._batch_size : whole // self._batch_size]

    def _recorded(self, samples: Samples) -> torch.cuda.CUDAGraph:
        device = samples.order.device
        self._position = torch.zeros((), dtype=torch.int64, device=device)
        self._losses = torch.zeros(len(samples.order) // self._batch_size, device=device)
        self._place = torch.arange(self._batch_size, device=device)
        record = torch.cuda.CUDAGraph()
        with torch.cuda.graph(record):
            loss = self._step(samples, samples.order[self._position + self._place])
            self._losses.index_copy_(0, (self._position // self._batch_size).view(1), loss.view(1))
            self._position += self._batch_size
        return record


def steps_on(device: torch.device) -> type[Steps]:
    """The fastest steps that a device has."""
    return RecordedSteps if device.type == "cuda" else Steps
