"""Parameters of a method's model: shape, initial values and location."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

from fedrec.errors import FederationError, did_you_mean
from fedrec.random.purpose import Purpose
from fedrec.random.with_numpy import normal, uniform

Location: TypeAlias = Literal["shared", "server", "personal", "local", "private", "scratch", "given"]
Combine: TypeAlias = Literal["mean", "touched", "change"]


@dataclass(frozen=True)
class Initial:
    """Initial values of a parameter: normal (standard deviation), uniform (bound), constant, or given."""

    kind: Literal["normal", "uniform", "constant", "given"]
    scale: float
    values: Tensor | None = field(default=None, repr=False, compare=False)
    """The values, if they are given."""

    def __post_init__(self) -> None:
        _check_word("a parameter cannot start as", self.kind, ("normal", "uniform", "constant", "given"))


@dataclass(frozen=True, eq=False)
class GivenTable:
    """Item values from a file: a setting of type `path` during training; see `given_table`."""

    path: str
    sha256: str
    columns: tuple[str, ...]
    values: Tensor


@dataclass(frozen=True)
class Parameter:
    """A parameter of a model, as one client sees it.

    A table has one row per item, or one row per user in a centralised model (`by`).

    `location` is one of:

    - `shared`: on the server, one for all clients; a client trains a copy and may upload it
    - `server`: on the server, one for all clients; clients read it only in rewrites of whole tables
    - `personal`: on the server, one per client; its client downloads it, and may upload it into itself
    - `local`: on the client, kept over rounds; may be uploaded
    - `private`: on the client, kept over rounds; can never be uploaded
    - `scratch`: on the client, for one round; the result of a rewrite, which may be uploaded into another
    - `given`: known to all clients and constant; neither trained nor uploaded

    A local or personal parameter with a `start` becomes a copy of that shared parameter when its client first
    takes part. With `reset_each_round`, it has its initial value at the start of each round.

    `combine` says how the server combines uploads of a shared table, row by row. `mean` is the weighted mean;
    `touched` is the weighted mean of the uploads that changed the row. `change` weighs each upload by the L1
    norm of the row's change. With `downloaded=False`, clients know a shared parameter without downloading it.
    """

    shape: tuple[int, ...]
    location: Location
    initial: Initial
    table: bool = False
    by: Literal["item", "user"] = "item"
    start: str | None = None
    reset_each_round: bool = False
    combine: Combine = "mean"
    downloaded: bool = True

    def __post_init__(self) -> None:
        _check_word("a parameter cannot live at", self.location, get_args(Location))
        _check_word("uploads cannot be combined by", self.combine, get_args(Combine))
        if self.start is not None and self.reset_each_round:
            raise FederationError(
                f"a parameter may become a copy of '{self.start}' when its client first takes part (start), "
                "or have its initial value in every round (reset_each_round), but not both. Set one of them."
            )

    @property
    def count(self) -> int:
        """Number of elements."""
        return int(torch.Size(self.shape).numel())


def _check_word(what: str, word: str, known: tuple[str, ...]) -> None:
    if word not in known:
        raise FederationError(f"{what} '{word}'.{did_you_mean(word, known)} There are: {', '.join(known)}.")


def item_table(
    items: int, size: int, location: Location, initial: Initial, combine: Combine = "mean"
) -> Parameter:
    """A table of one vector per item."""
    return Parameter((items, size), location, initial, table=True, combine=combine)


def given_table(items: int, given: GivenTable | str | None) -> Parameter:
    """A table of given numbers per item: the value of a setting of type `path`.

    Without a dataset, its columns are unknown, and the table has one column of zeros.
    """
    if not isinstance(given, GivenTable):
        return Parameter((items, 1), "given", Initial("constant", 0.0), table=True, downloaded=False)
    return Parameter(
        (items, given.values.shape[1]),
        "given",
        Initial("given", 1.0, given.values),
        table=True,
        downloaded=False,
    )


def user_table(users: int, size: int, initial: Initial) -> Parameter:
    """A table of one vector per user, in a centralised model."""
    return Parameter((users, size), "shared", initial, table=True, by="user")


def vector(size: int, location: Location, initial: Initial) -> Parameter:
    """One vector."""
    # The leading axis lets it meet a batch of samples: (batch, size) with (1, size).
    return Parameter((1, size), location, initial)


def matrix(rows: int, columns: int, location: Location, initial: Initial) -> Parameter:
    """One matrix."""
    return Parameter((rows, columns), location, initial)


def mlp(name: str, sizes: tuple[int, ...], location: Location) -> dict[str, Parameter]:
    """The layers of a multi-layer perceptron: weights `name.0`, biases `name.0.bias`, and so on.

    Initial values are those of torch.nn.Linear: uniform up to 1 / sqrt(inputs).
    """
    layers: dict[str, Parameter] = {}
    for number, (inputs, outputs) in enumerate(pairwise(sizes)):
        start = Initial("uniform", inputs**-0.5)
        layers[f"{name}.{number}"] = matrix(inputs, outputs, location, start)
        layers[f"{name}.{number}.bias"] = vector(outputs, location, start)
    return layers


def initial_values(parameters: Mapping[str, Parameter], seed: int, device: torch.device) -> dict[str, Tensor]:
    """Initial value of each parameter, the same for all clients and on every device."""
    return {
        name: _initial_value(parameter, seed, stream).to(device)
        for stream, (name, parameter) in enumerate(parameters.items())
    }


def _initial_value(parameter: Parameter, seed: int, stream: int) -> Tensor:
    start = parameter.initial
    if start.kind == "constant":
        return torch.full(parameter.shape, start.scale)
    if start.values is not None:
        return start.values.to(torch.get_default_dtype())
    draw = normal if start.kind == "normal" else uniform
    numbers = draw(seed, Purpose.INITIAL, stream=stream, count=parameter.count) * np.float32(start.scale)
    return torch.from_numpy(numbers).reshape(parameter.shape).to(torch.get_default_dtype())
