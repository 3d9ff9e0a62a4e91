"""Local differential privacy of uploads: Laplace noise on every number, with clipping or without it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fedrec.federation.model.parameters import Parameter
from fedrec.federation.privacy.accountant import laplace_epsilon
from fedrec.federation.privacy.noise import laplace


@dataclass(frozen=True)
class UploadNoise:
    """Laplace noise of `scale` on uploads; `clip` bounds the L1 norm of an upload's change."""

    scale: float
    clip: float | None
    seed: int

    def shrinkage(self, norm: Tensor) -> Tensor:
        """The factor that clips each client's change, given its L1 norm: (clients)."""
        if self.clip is None:
            return torch.ones_like(norm)
        return (self.clip / norm.clamp(min=1e-30)).clamp(max=1.0)

    def draw(self, parameters: Mapping[str, Parameter], name: str, who: Tensor, round_: int) -> Tensor:
        """The noise on the parameter `name` of the clients `who`: (clients, ...)."""
        names = list(parameters)
        before = sum(parameters[other].count for other in names[: names.index(name)])
        count = parameters[name].count
        drawn = laplace(who, count, self.scale, self.seed, round_, before)
        return drawn.reshape(len(who), *parameters[name].shape)

    def report(self, rounds: int, uploads: int = 1) -> dict[str, Any]:
        """The privacy guarantee after `rounds` with `uploads` parameters each; none without clipping.

        Clients clip each parameter separately, so the epsilons of the parameters add up.
        """
        mechanism: dict[str, Any] = {
            "mechanism": "laplace noise on uploads",
            "scale": self.scale,
            "clip": self.clip,
            "rounds": rounds,
            "parameters_per_round": uploads,
        }
        if self.clip is None:
            return mechanism | {
                "epsilon": None,
                "why_undefined": "uploads are not clipped, so two of them may differ by any amount",
            }
        return mechanism | {
            "epsilon": laplace_epsilon(self.clip, self.scale, rounds * uploads),
            "epsilon_per_round": laplace_epsilon(self.clip, self.scale, uploads),
            "unit": "everything a client holds; basic composition over all rounds",
        }
