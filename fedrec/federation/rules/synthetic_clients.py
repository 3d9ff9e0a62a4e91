"""Synthetic clients, on which the rules compute losses.

They are a single client, a client with padding, or several clients at once. Their numbers look random and are
the same every time; torch's generator stays unchanged.
"""

import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Literal, NoReturn, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import FederationError, did_you_mean
from fedrec.federation.model.history import History, no_history
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import Values, index_of, sampled
from fedrec.federation.model.weights import Weights
from fedrec.federation.rules.torch_calls import CallTrace, TorchCallRecorder, unrecorded

CheckedKind: TypeAlias = Literal["loss", "rewrite", "derived", "score"]
SyntheticPart: TypeAlias = tuple[str, str]
"""A value that a loss reads, such as the rows or the whole of a table, and the parameter's name."""


@dataclass(frozen=True)
class SyntheticClient:
    """The positions of a client's real samples among its padding, and the sign of its numbers."""

    name: str
    real: tuple[bool, ...]
    positive: bool


def _mask(text: str) -> tuple[bool, ...]:
    return tuple(letter == "x" for letter in text)


FIRST = SyntheticClient("first", _mask(".xx.xx.xxx."), positive=False)
SECOND = SyntheticClient("second", _mask(".x.xx..x.x."), positive=True)
SINGLE = SyntheticClient("single", _mask("x"), positive=False)
"""A client with one sample."""


@dataclass
class SyntheticClients:
    """Some clients as a loss sees them: one client, or several with a leading `client_axis`.

    With `padded`, their samples include padding.
    """

    parameters: Mapping[str, Parameter]
    clients: Sequence[SyntheticClient]
    padded: bool = False
    client_axis: bool = False
    trained: frozenset[str] = frozenset()
    stage: CheckedKind = "loss"
    per_sample: bool = False
    """Whether the loss needs a gradient per sample."""
    leaves: dict[SyntheticPart, Tensor] = field(default_factory=dict)
    reads_whole_tables: bool = False
    """Whether the function has read a whole table."""

    def __post_init__(self) -> None:
        self._histories: list[tuple[Tensor, bool, int]] = []

    @cached_property
    def index(self) -> Tensor:
        """The item of each sample."""
        with unrecorded():
            return self._together([self._items_of(client) for client in self.clients])

    @property
    def axes(self) -> tuple[int, ...]:
        """The leading axes: that of clients, or none."""
        return (len(self.clients),) if self.client_axis else ()

    @property
    def samples(self) -> int:
        """Number of samples of each client, with padding."""
        real = self.clients[0].real
        return len(real) if self.padded else sum(real)

    @property
    def real(self) -> Tensor:
        """Mask of the real samples."""
        return self._together([torch.tensor(self._real(client)) for client in self.clients])

    def leaf(self, part: str, name: str, shape: tuple[int, ...]) -> Tensor:
        """A value that a loss reads; `shape` is that of one client, without an axis of samples.

        It requires a gradient if it belongs to a trained parameter.
        """
        key = part, name
        if key not in self.leaves:
            with unrecorded():
                value = self._together(
                    [self._of_client(client, part, name, shape) for client in self.clients]
                )
                self.leaves[key] = value.requires_grad_(name in self.trained and part in _TRAINED)
        return self.leaves[key]

    def view(self) -> Weights:
        """The parameters as a method sees them."""
        values = Values()
        for name, part in self.parameters.items():
            if part.location != "server":
                values[name] = (
                    _SyntheticTable(self, name) if part.table else self.leaf("value", name, part.shape)
                )
        values |= {name: self.leaf("value", name, (1, 1)) for name in ("interactions", "held")}
        values |= {name: value for (part, name), value in self.leaves.items() if part == "derived"}
        values["own"] = _SyntheticOwnItems(self)
        values["history"] = self.last_items if self.stage == "score" else no_history
        return cast(Weights, values)

    def last_items(self, length: int) -> History:
        """The last training items of each client."""
        return self.history(length, of_samples=False)

    def history(self, length: int, *, of_samples: bool) -> History:
        """The last training items of each client, or those before the positive of each sample."""
        with unrecorded():
            index = torch.zeros(*self.axes, self.samples if of_samples else 1, length, dtype=torch.int64)
        self._histories.append((index, of_samples, length))
        if of_samples:
            return History(sampled(index), self.leaf("mask", "", (length,)))
        return History(index, self.leaf("known", "", (1, length)))

    def of_history(self, index: Tensor, name: str, width: int) -> Tensor | None:
        """The rows of a table for a history; None if `index` belongs to no history."""
        for known, of_samples, length in self._histories:
            if index is known:
                shape = (length, width) if of_samples else (1, length, width)
                return self.leaf("past" if of_samples else "history", name, shape)
        return None

    def _together(self, each: list[Tensor]) -> Tensor:
        return torch.stack(each) if self.client_axis else each[0]

    def _items_of(self, client: SyntheticClient) -> Tensor:
        """The items of a client's samples; padding gets the items after those of real samples."""
        real = torch.tensor(self._real(client))
        number = torch.where(real, real.cumsum(0), real.count_nonzero() + (~real).cumsum(0)) - 1
        return number % min((part.shape[0] for part in self.parameters.values() if part.table), default=1)

    def _real(self, client: SyntheticClient) -> list[bool]:
        return list(client.real) if self.padded else [True] * sum(client.real)

    def _of_client(self, client: SyntheticClient, part: str, name: str, shape: tuple[int, ...]) -> Tensor:
        if part not in _OF_SAMPLES:
            if name == "held" or part == "known":
                return torch.ones(shape)
            made = _numbers((client.name, part, name), shape, positive=client.positive)
            if name == "own":
                return (made > 0).to(made.dtype)
            return made.abs() + 1 if part == "squared_norm" or name == "interactions" else made
        real = _numbers((client.name, part, name), (sum(client.real), *shape), positive=client.positive)
        if part == "occurrences":
            real = (3 * real.abs()).ceil()
        elif part in _MARKS:
            real = (real > (0.5 if part in ("labels", "own") else -0.5)).to(real.dtype)
        if not self.padded:
            return real
        value = real.new_zeros(len(client.real), *shape)
        mask = torch.tensor(client.real)
        value[mask] = real
        value[~mask] = self._padding(client, part, real)
        return value

    def _padding(self, client: SyntheticClient, part: str, real: Tensor) -> Tensor:
        """Padding: larger and smaller than real samples, so that it changes a result that depends on it."""
        places = torch.arange(len(client.real) - len(real))
        if part == "distinct":
            return real.new_zeros(len(places))
        if part in _MARKS:
            return 1 - real[places % len(real)]
        scale = torch.where(places % 2 == 0, 4.0, 0.2 if client.positive else -4.0).to(real.dtype)
        return real[places % len(real)] * scale.reshape(-1, *(1 for _ in real.shape[1:]))


def _numbers(key: tuple[str, ...], shape: tuple[int, ...], *, positive: bool) -> Tensor:
    """Numbers between -1 and 1, or between 0.1 and 0.9 if `positive`."""
    made = _made if math.prod(shape) < _CACHED_BELOW else _made.__wrapped__
    return made(key, shape, positive, torch.get_default_dtype()).clone()


@lru_cache(maxsize=256)
def _made(key: tuple[str, ...], shape: tuple[int, ...], positive: bool, dtype: torch.dtype) -> Tensor:
    place = torch.arange(1, math.prod(shape) + 1, dtype=torch.float64)
    mixed = (place * 12.9898 + zlib.crc32("/".join(key).encode()) % 100_003).sin() * 43758.5453
    share = (mixed - mixed.floor()).reshape(shape).to(dtype)
    return 0.1 + 0.8 * share if positive else 2 * share - 1


_CACHED_BELOW = 4096
"""Number of elements from which on a tensor is not cached."""
OF_GRADIENT = ("rows", "past")
"""Rows of a table for each sample."""
_TRAINED = (*OF_GRADIENT, "value", "whole", "training_sum")
"""Parts of a parameter that may require a gradient."""
_OF_SAMPLES = (*OF_GRADIENT, "own", "mask", "labels", "distinct", "occurrences")
"""Parts with an axis of samples."""
_MARKS = ("own", "mask", "labels", "distinct")
"""Parts whose values are 0 or 1."""


_OF_BATCH = (
    "items", "labels", "size", "mean", "sum", "logsumexp", "softmax", "distinct", "occurrences", "history",
)  # fmt: skip
"""Attributes of a mini-batch that a loss may read."""


class _SyntheticTable:
    """A table of synthetic clients."""

    def __init__(self, clients: SyntheticClients, name: str) -> None:
        self._clients = clients
        self._name = name
        self._items, self._width = clients.parameters[name].shape

    def __getitem__(self, items: Tensor) -> Tensor:
        clients, index = self._clients, index_of(items)
        if index is clients.index:
            return clients.leaf("rows", self._name, (self._width,))
        of_history = clients.of_history(index, self._name, self._width)
        if of_history is not None:
            return of_history
        if clients.stage != "score":
            raise FederationError(
                f"rows of {self._name} are looked up by other items than those of the argument. Write "
                f"w.{self._name}[{'batch.items' if clients.stage == 'loss' else 'items'}]."
            )
        with unrecorded():
            table = _numbers((self._name,), (self._items, self._width), positive=False)
        return functional.embedding(index, table)

    def whole(self) -> Tensor:
        """All rows."""
        if self._clients.stage == "rewrite":
            self._refuse("whole()", "A new row follows from the same rows of other tables alone")
        self._clients.reads_whole_tables = True
        return self._clients.leaf("whole", self._name, (self._items, self._width))

    def training_sum(self) -> Tensor:
        """The sum of the rows of training items."""
        if self._clients.stage == "rewrite":
            self._refuse("training_sum()", "Compute it in `derived`, and read what that gives here")
        return self._clients.leaf("training_sum", self._name, (1, self._width))

    def squared_norm(self) -> Tensor:
        """The sum of the squares of the table."""
        return self._derived("squared_norm", 1)

    def row_sum(self) -> Tensor:
        """The sum of all rows."""
        return self._derived("row_sum", self._width)

    def _derived(self, part: str, width: int) -> Tensor:
        if self._clients.stage in ("loss", "rewrite"):
            instead = f"Compute it in `derived`, whose numbers a {self._clients.stage} reads by their names"
            if self._clients.stage == "loss" and part == "squared_norm":
                instead += f", or write w.{self._name}.whole().square().sum((-1, -2)), which has a gradient"
            self._refuse(f"{part}()", instead)
        return self._clients.leaf(part, self._name, (1, width))

    def _refuse(self, word: str, instead: str) -> NoReturn:
        raise FederationError(
            f"w.{self._name}.{word} is not available in a {self._clients.stage}. {instead}."
        )


class _SyntheticOwnItems:
    """The table `own`: 1 for training items, 0 for others."""

    def __init__(self, clients: SyntheticClients) -> None:
        self._clients = clients

    def __getitem__(self, _items: Tensor) -> Tensor:
        return self._clients.leaf("own", "", (1,))

    def whole(self) -> Tensor:
        """All rows."""
        self._clients.reads_whole_tables = True
        items = next(part.shape[0] for part in self._clients.parameters.values() if part.table)
        return self._clients.leaf("whole", "own", (items, 1))


class SyntheticBatch:
    """The mini-batch of synthetic clients, whose sums leave out padding."""

    def __init__(self, clients: SyntheticClients, listener: TorchCallRecorder | CallTrace) -> None:
        self._clients = clients
        self._listener = listener
        with unrecorded():
            self._real = clients.real
            counts = self._real.sum(-1, keepdim=True).to(torch.get_default_dtype())
        self.items = sampled(clients.index)
        self.labels = clients.leaf("labels", "", ())
        self.size = clients.leaves.setdefault(("size", ""), counts)
        """Number of samples of each client."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise FederationError(
            f"a mini-batch has no batch.{name}.{did_you_mean(name, _OF_BATCH)} It has: {', '.join(_OF_BATCH)}"
        )

    def history(self, length: int) -> History:
        """The items before the positive of each sample."""
        return self._clients.history(length, of_samples=True)

    def distinct(self) -> Tensor:
        """1 for one sample of every distinct item."""
        return self._clients.leaf("distinct", "", ())

    def occurrences(self) -> Tensor:
        """For each sample, how many samples have the same item."""
        if self._clients.per_sample:
            raise FederationError(
                "batch.occurrences() counts samples of a mini-batch, but noise is added to the gradient of "
                "each sample by itself. Leave it out, or train without dp_noise"
            )
        return self._clients.leaf("occurrences", "", ())

    def mean(self, values: Tensor) -> Tensor:
        """The mean over each client's samples."""
        with self._listener.as_one_call("batch.mean", values) as result:
            # A value that all samples share is its own mean.
            given = self._of_samples("mean", values, or_one=True)
            # torch.broadcast_shapes imports packages for seconds at its first call.
            given = given.broadcast_to(np.broadcast_shapes(given.shape, self._real.shape))
            result.append(given.masked_fill(~self._real, 0.0).sum(-1) / self._real.sum(-1))
        return result[0]

    def sum(self, values: Tensor) -> Tensor:
        """The sum over each client's samples."""
        with self._listener.as_one_call("batch.sum", values) as result:
            result.append(self._of_samples("sum", values).masked_fill(~self._real, 0.0).sum(-1))
        return result[0]

    def logsumexp(self, values: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over each client's samples."""
        with self._listener.as_one_call("batch.logsumexp", values) as result:
            given = self._of_samples("logsumexp", values)
            result.append(given.masked_fill(~self._real, -torch.inf).logsumexp(-1))
        return result[0]

    def softmax(self, values: Tensor) -> Tensor:
        """The softmax over each client's samples."""
        with self._listener.as_one_call("batch.softmax", values) as result:
            given = self._of_samples("softmax", values)
            result.append(given.masked_fill(~self._real, -torch.inf).softmax(-1))
        return result[0]

    def _of_samples(self, name: str, values: Tensor, *, or_one: bool = False) -> Tensor:
        """Return the values of a sum; raise `FederationError` unless they are one number per sample."""
        axes, shape = self._clients.axes, tuple(values.shape)
        wanted = (*axes, self._clients.samples)
        allowed = {wanted}
        if or_one:
            allowed |= {(*axes, 1), (1,), (), wanted[-1:]}
        if shape in allowed or self._clients.samples == 1:
            return values
        if self._clients.client_axis:
            raise FederationError(
                f"with a client axis in front, batch.{name} is given the shape {shape} where {wanted} is "
                "(clients, samples). Clients stand in front of all other axes: count axes from the end"
            )
        raise FederationError(
            f"batch.{name} is given the shape {shape}. It takes one number per sample, here {wanted}: make "
            "one number of the others first, as values.mean(-1) or dot(a, b) do"
        )
