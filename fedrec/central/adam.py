"""Adam for one model: the steps of torch's functional form, without its optimiser class."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

from fedrec.central.steps import StepTaker
from fedrec.federation.model.tables import Values

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""The defaults of torch and of the papers."""


class Differentiable(Protocol):
    """The methods of a `CentralMethod` that optimiser steps call."""

    def forward(self, w: Values) -> Values:
        """The tensors from which the loss is computed."""

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """The loss of a mini-batch."""


class Adam:
    """Adam's steps on the named `values`, and its state.

    Its numbers equal those of the fused `torch.optim.Adam` to the last bit. That class imports torch's
    compiler, which takes as long as importing torch, and its steps are slower for a small model.
    """

    def __init__(self, values: Mapping[str, Tensor], rate: float) -> None:
        self.values = values
        self.rate = rate
        self._state = {name: _start(value) for name, value in values.items()}

    def step(self, loss: Tensor) -> None:
        """Take one step down the gradient of `loss`; values without a gradient stay unchanged."""
        gradients = torch.autograd.grad(loss, list(self.values.values()), allow_unused=True)
        # torch's fused kernel ignores the strides of a gradient.
        moved = {
            name: g.contiguous() for name, g in zip(self.values, gradients, strict=True) if g is not None
        }
        with torch.no_grad():
            adam(
                [self.values[name] for name in moved],
                list(moved.values()),
                [self._state[name]["exp_avg"] for name in moved],
                [self._state[name]["exp_avg_sq"] for name in moved],
                max_exp_avg_sqs=[],
                state_steps=[self._state[name]["step"] for name in moved],
                # One kernel for all values, which reads the step counts on the GPU.
                foreach=False,
                fused=True,
                amsgrad=False,
                beta1=_BETA1,
                beta2=_BETA2,
                lr=self.rate,
                weight_decay=0.0,
                eps=_EPSILON,
                maximize=False,
            )

    def steps_of(self, method: Differentiable, weights: Values) -> StepTaker:
        """The function that takes a step down the loss of a method with these values as `weights`."""

        def step(users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
            loss = method.loss(method.forward(weights), users, items, labels)
            self.step(loss)
            return loss.detach()

        return step

    @property
    def taken(self) -> int:
        """Number of steps taken."""
        return max(int(state["step"]) for state in self._state.values())

    def moments(self, name: str) -> tuple[Tensor, Tensor]:
        """Both moments of a value, without a copy."""
        return self._state[name]["exp_avg"], self._state[name]["exp_avg_sq"]

    def advance(self, steps: int) -> None:
        """Add `steps` that a kernel took to the step counts of all values."""
        for state in self._state.values():
            state["step"] += steps

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The moments and step count of each value, by `value/part`."""
        for name, state in self._state.items():
            yield from ((f"{name}/{key}", tensor) for key, tensor in state.items())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
        for name, state in self._state.items():
            for key, tensor in state.items():
                tensor.copy_(tensors[f"{name}/{key}"])


def _start(value: Tensor) -> dict[str, Tensor]:
    return {
        "step": torch.zeros((), dtype=torch.float32, device=value.device),
        "exp_avg": torch.zeros_like(value, requires_grad=False),
        "exp_avg_sq": torch.zeros_like(value, requires_grad=False),
    }
