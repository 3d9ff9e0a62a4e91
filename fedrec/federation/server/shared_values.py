"""The server's parameters as a rule sees them; it may replace them by tensors of the same shape and type."""

from collections.abc import Iterator, MutableMapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from fedrec.errors import FederationError, did_you_mean
from fedrec.federation.rules.torch_calls import current_line


class SharedValues(MutableMapping[str, Tensor]):
    """Parameters by name. Engines rely on their shape, type and device, which no new value may change."""

    def __init__(self, values: MutableMapping[str, Tensor]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Tensor:
        return self._values[name]

    def __setitem__(self, name: str, value: Tensor) -> None:
        if name not in self._values:
            known = ", ".join(self._values)
            _refuse(
                f"'{name}', which is no parameter of it.{did_you_mean(name, self._values)} It has: {known}"
            )
        present = self._values[name]
        if not isinstance(value, Tensor):
            _refuse(f"'{name}' as {type(value).__name__}. Give a tensor")
        if value.shape != present.shape:
            _refuse(f"'{name}' the shape {tuple(value.shape)}, where it has {tuple(present.shape)}")
        if (value.dtype, value.device) != (present.dtype, present.device):
            _refuse(
                f"'{name}' as numbers of {value.dtype} on {value.device}, where it has {present.dtype} on "
                f"{present.device}. Write value.to(server.shared['{name}'])"
            )
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        _refuse(f"'{name}' away, which clients and checkpoints need")

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def check_weights(weights: Any, sizes: Tensor) -> None:  # noqa: ANN401 - whatever a rule gives
    """Raise `FederationError` unless a rule's weights are one number for each client."""
    shape = tuple(weights.shape) if isinstance(weights, Tensor) else type(weights).__name__
    if shape != tuple(sizes.shape):
        raise FederationError(
            f"the server's rule gives weights of the shape {shape} for {len(sizes)} clients. Give one number "
            "per client, as torch.ones_like(sizes) does."
        )


def check_chosen(chosen: Any, clients: int) -> None:  # noqa: ANN401 - see above
    """Raise `FederationError` unless a rule chooses existing clients, each once."""
    fits = isinstance(chosen, Tensor) and chosen.dim() == 1 and chosen.dtype == torch.int64
    if not fits or len(chosen.unique()) != len(chosen) or bool(((chosen < 0) | (chosen >= clients)).any()):
        raise FederationError(
            f"the server's rule must choose clients by a vector of int64 numbers from 0 to {clients - 1}, "
            "each once. Return such a tensor from `choose`."
        )


def _refuse(what: str) -> NoReturn:
    place = current_line()
    raise FederationError(f"{f'{place}: ' if place else ''}the server's rule gives {what}.")
