"""The state of a federation: the server's parameters, and the parameters that clients keep."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fedrec.federation.model.client import Rewrite
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter, initial_values
from fedrec.federation.program import needs_of, trace, trace_after_aggregation
from fedrec.federation.state.client_tensor import ClientTensor
from fedrec.federation.state.dense import DenseClientTensor
from fedrec.federation.state.sparse_rows import SparseRowsTensor

DENSE_BYTES = 4 << 30
"""Largest size of a dense table of all clients. A larger one is stored as changed rows, unless rounds change
every row. The limit is a constant, so every machine stores a run in the same way."""


@dataclass
class State:
    """Values of the server (`shared`), and those that each client keeps between rounds (`client_tensors`).

    Clients keep personal, local and private parameters, and the copies of shared ones that they are scored
    with. `joined` and `held` are masks (clients): `joined` marks clients that ever took part, `held` those
    whose uploads the last round aggregated. `optimiser` has moments and steps that last between rounds.
    """

    parameters: Mapping[str, Parameter]
    shared: dict[str, Tensor]
    client_tensors: dict[str, ClientTensor]
    initial: dict[str, Tensor]
    joined: Tensor
    held: Tensor
    optimiser: dict[str, Tensor] = field(default_factory=dict)
    _all_joined: bool = False

    @classmethod
    def of_method(
        cls,
        method: Method,
        clients: int,
        seed: int,
        device: torch.device,
        *,
        copies: bool = False,
        dense_bytes: int = DENSE_BYTES,
        remote_clients: int = 0,
    ) -> Self:
        """The state before the first round: every client starts from the same values.

        With `copies`, clients keep their copies of all shared parameters. `remote_clients` of other processes
        are not stored here, but count towards the limit of dense storage.
        """
        parameters = method.parameters()
        values = initial_values(parameters, seed, device)
        shared = {
            name: values[name] for name, part in parameters.items() if part.location in ("shared", "server")
        }
        moved = _moved_as_a_whole(method)
        kept: dict[str, ClientTensor] = {}
        for name, part in parameters.items():
            own = name in method.scored_with_own_copy or copies
            if part.location in ("scratch", "given", "server") or (part.location == "shared" and not own):
                continue
            size = (clients + remote_clients) * values[name].numel() * values[name].element_size()
            whole = not part.table or name in moved or size <= dense_bytes
            kept[name] = (DenseClientTensor if whole else SparseRowsTensor)(values[name], clients)
        nobody = torch.zeros(clients, dtype=torch.bool, device=device)
        return cls(parameters, shared, kept, values, nobody, nobody.clone())

    @property
    def visible(self) -> list[str]:
        """Names of the parameters that clients read."""
        return [name for name, part in self.parameters.items() if part.location != "server"]

    @property
    def personal(self) -> list[str]:
        """Names of the parameters that the server stores per client."""
        return [name for name, part in self.parameters.items() if part.location == "personal"]

    def join(self, who: Tensor) -> None:
        """Initialise local parameters of clients that take part for the first time; see `Parameter.start`."""
        if self._all_joined:
            return
        new = who[~self.joined[who]]
        self.joined[new] = True
        self._all_joined = bool(self.joined.all())
        for name, part in self.parameters.items():
            if part.start is not None and len(new):
                self.client_tensors[name].fill(new, self.shared[part.start])

    def moments(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        """Adam's first and second moments (clients, ...) and step counts (clients), zero at first."""
        shape = self.parameters[name].shape
        for suffix, each in (("first", shape), ("second", shape), ("steps", ())):
            if f"{name}/{suffix}" not in self.optimiser:
                self.optimiser[f"{name}/{suffix}"] = self.joined.new_zeros(
                    (len(self.joined), *each), dtype=torch.get_default_dtype()
                )
        first, second, steps = (self.optimiser[f"{name}/{part}"] for part in ("first", "second", "steps"))
        return first, second, steps

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the state by name, for a file."""
        tensors = {f"shared/{name}": value for name, value in self.shared.items()}
        for name, kept in self.client_tensors.items():
            tensors |= {f"kept/{name}{suffix}": value for suffix, value in kept.tensors().items()}
        tensors |= {f"optimiser/{name}": value for name, value in self.optimiser.items()}
        return tensors | {"clients/joined": self.joined, "clients/held": self.held}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
        device = self.joined.device
        self._all_joined = False
        for name, value in self.shared.items():
            self.shared[name] = tensors[f"shared/{name}"].to(value.device)
        for name, kept in self.client_tensors.items():
            prefix = f"kept/{name}"
            # `mlp.0` must not match `mlp.0.bias`: a suffix is empty or begins with a slash.
            kept.load(
                {
                    key.removeprefix(prefix): value
                    for key, value in tensors.items()
                    if key == prefix or key.startswith(f"{prefix}/")
                }
            )
        for key, value in tensors.items():
            if key.startswith("optimiser/"):
                self.optimiser[key.removeprefix("optimiser/")] = value.to(device)
        self.joined = tensors["clients/joined"].to(device)
        self.held = tensors["clients/held"].to(device)


def _moved_as_a_whole(method: Method) -> set[str]:
    """The tables of which rounds change every row, so storing changed rows would save nothing."""
    parameters = method.parameters()
    program = trace(method, 1) + trace_after_aggregation(method, 1)[0]
    if needs_of(program, method).whole_tables:
        return set(parameters)
    rewritten = {operation.name for operation in program if isinstance(operation, Rewrite)}
    return rewritten | {name for name, part in parameters.items() if part.location == "personal"}
