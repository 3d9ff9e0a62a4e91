"""Adam for one model: torch's own steps, without all that its class does around them."""

from collections.abc import Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam

from fedrec.central.steps import StepTaker
from fedrec.federation.model.tables import Values

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
"""As torch has them, and the papers."""


class Differentiable(Protocol):
    """Interface that optimiser steps need of a method; see `CentralMethod`."""

    def forward(self, w: Values) -> Values:
        """Terms of a loss."""

    def loss(self, w: Values, users: Tensor, items: Tensor, labels: Tensor) -> Tensor:
        """The loss of a mini-batch."""


class Adam:
    """Adam's steps on the named `values`, and its state.

    Equal to the fused form of `torch.optim.Adam` to the last bit. That class imports all of torch's compiler,
    which takes as long as torch itself, and is slower over a step of a small model.
    """

    def __init__(self, values: Mapping[str, Tensor], rate: float) -> None:
        self.values = values
        self.rate = rate
        self._state = {name: _start(value) for name, value in values.items()}

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of `loss`; what it does not depend on stays as it is."""
        gradients = torch.autograd.grad(loss, list(self.values.values()), allow_unused=True)
        # Torch's fused steps read a gradient as if its numbers lay one after the other, whatever its strides.
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
                # One piece of work for all values, and no question to a GPU how many steps were taken.
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
        """Steps down the loss of a method, whose `weights` are these values."""

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
        """Both moments of a value, where they are kept."""
        return self._state[name]["exp_avg"], self._state[name]["exp_avg_sq"]

    def advance(self, steps: int) -> None:
        """Count steps of all values that were taken elsewhere."""
        for state in self._state.values():
            state["step"] += steps

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The moments and number of steps of each value, by `value/what`."""
        for name, state in self._state.items():
            yield from ((f"{name}/{key}", tensor) for key, tensor in state.items())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up the state that `tensors` gave."""
        for name, state in self._state.items():
            for key, tensor in state.items():
                tensor.copy_(tensors[f"{name}/{key}"])


def _start(value: Tensor) -> dict[str, Tensor]:
    return {
        "step": torch.zeros((), dtype=torch.float32, device=value.device),
        "exp_avg": torch.zeros_like(value, requires_grad=False),
        "exp_avg_sq": torch.zeros_like(value, requires_grad=False),
    }
