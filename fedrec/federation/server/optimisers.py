"""Optimisers of the server, which move a shared parameter in a direction instead of along a gradient.

Their moments are parameters at `server`. Checkpoints keep them; clients neither see nor download them.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Literal

from torch import Tensor

from fedrec.federation.model.parameters import Initial, Parameter

ServerOptimiserName = Literal["adam", "yogi"]


@dataclass(frozen=True)
class ServerOptimiser:
    """Adam or Yogi, by the equations of Reddi et al. (2021), algorithm 2.

        first   <- beta1 first + (1 - beta1) direction
        second  <- beta2 second + (1 - beta2) direction^2                                    (adam)
                   second - (1 - beta2) direction^2 sign(second - direction^2)               (yogi)
        value   <- value + rate x first / (sqrt(second) + floor)

    With `corrected`, both moments are divided by 1 - beta^steps first, as Kingma and Ba (2015) do.
    """

    name: ServerOptimiserName
    rate: float
    beta1: float
    beta2: float
    floor: float
    corrected: bool = False

    def move(self, shared: MutableMapping[str, Tensor], name: str, direction: Tensor) -> None:
        """Move the parameter `name` one step in a direction of its shape, and update its moments."""
        square = direction.square()
        first = shared[f"{name}.first"].lerp(direction, 1 - self.beta1)
        second = shared[f"{name}.second"]
        if self.name == "adam":
            second = second.lerp(square, 1 - self.beta2)
        else:
            second = second - (1 - self.beta2) * square * (second - square).sign()
        steps = shared[f"{name}.steps"] + 1
        shared.update({f"{name}.first": first, f"{name}.second": second, f"{name}.steps": steps})
        if self.corrected:
            done = steps.double()
            first = first / (1 - self.beta1**done).to(first.dtype)
            second = second / (1 - self.beta2**done).to(second.dtype)
        shared[name] = shared[name] + self.rate * first / (second.sqrt() + self.floor)


def moments_of(parameters: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """The moments, as parameters at `server`, that an optimiser needs for `parameters`."""
    zero = Initial("constant", 0.0)
    moments: dict[str, Parameter] = {}
    for name, part in parameters.items():
        moment = replace(part, location="server", initial=zero, combine="mean", downloaded=False)
        steps = Parameter((1, 1), "server", zero, downloaded=False)
        moments |= {f"{name}.first": moment, f"{name}.second": moment, f"{name}.steps": steps}
    return moments
