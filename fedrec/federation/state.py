"""The state of a federation: what the server holds, and what each client keeps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from fedrec.federation.method import Method
from fedrec.federation.parameters import Parameter, initial_values


@dataclass
class State:
    """`shared` values of the server; `kept` values of each client, on a leading client axis.

    Kept are the private parameters, and the copies of shared ones that clients are scored
    with. `parameters` describes them all.
    """

    parameters: Mapping[str, Parameter]
    shared: dict[str, Tensor]
    kept: dict[str, Tensor]

    @classmethod
    def initial(cls, method: Method, clients: int, seed: int, device: torch.device) -> Self:
        """The state before the first round: every client starts from the same values."""
        parameters = method.parameters()
        values = initial_values(parameters, seed, device)
        shared = {name: values[name] for name, one in parameters.items() if one.place == "shared"}
        own = [name for name in shared if method.evaluated.get(name) == "own"]
        kept_names = [name for name in parameters if name not in shared] + own
        kept = {name: values[name].expand(clients, *values[name].shape).clone() for name in kept_names}
        return cls(parameters, shared, kept)

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name, for a file."""
        return {f"shared/{name}": value for name, value in self.shared.items()} | {
            f"kept/{name}": value for name, value in self.kept.items()
        }

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` once gave."""
        for place, values in (("shared", self.shared), ("kept", self.kept)):
            for name in values:
                values[name] = tensors[f"{place}/{name}"].to(values[name].device)
