"""A made-up client: what a loss sees while it is traced."""

import math
from collections.abc import Iterator, Mapping
from functools import cache
from typing import NoReturn, Protocol, cast

import torch
from torch import Tensor

from fedrec.federation.engines.fused.ir.dims import ROWS, SAMPLES
from fedrec.federation.engines.fused.ir.nodes import Leaf, UnsupportedError
from fedrec.federation.engines.fused.trace.sizes import FIRST, Sizes
from fedrec.federation.model.history import no_history
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import Values, index_of, sampled
from fedrec.federation.model.weights import Weights


class Model(Protocol):
    """What a loss is about: a method, or a model of all users."""

    def parameters(self) -> dict[str, Parameter]:
        """Its parts."""

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """Numbers that losses read and that follow from whole tables."""


def leaves_of(
    method: Model, sizes: Sizes, values_between: tuple[float, float]
) -> Iterator[tuple[Leaf, Tensor]]:
    """Everything a loss may ask for, made up, of so many samples and rows."""
    parameters = {name: part for name, part in method.parameters().items() if part.location != "server"}
    shapes: dict[Leaf, tuple[int, ...]] = {}
    samples, rows = sizes[SAMPLES], sizes[ROWS]
    for name, part in parameters.items():
        if part.table:
            shapes[Leaf("rows", name)] = (samples, part.shape[1])
            shapes[Leaf("whole", name)] = (rows, part.shape[1])
            shapes[Leaf("training_sum", name)] = (1, part.shape[1])
        else:
            shapes[Leaf("value", name)] = tuple(part.shape)
    shapes |= {Leaf(of_samples): (samples,) for of_samples in ("labels", "occurrences", "distinct")}
    shapes |= {Leaf("size"): (1,), Leaf("interactions"): (1, 1), Leaf("held"): (1, 1)}
    values = {leaf: _made_up(shape, *values_between) for leaf, shape in shapes.items()}
    with torch.no_grad():
        derived = method.derived(cast(Weights, view_of(parameters, values, WholeSums)))
    yield from values.items()
    yield from ((Leaf("derived", name), value.detach().clone()) for name, value in derived.items())


def _made_up(shape: tuple[int, ...], least: float, most: float) -> Tensor:
    return torch.linspace(least, most, math.prod(shape)).reshape(shape)


def check_sizes(leaves: Mapping[Leaf, Tensor]) -> None:
    """Raise `UnsupportedError` where a part is as wide as what stands for samples or rows."""
    for leaf, value in leaves.items():
        static = value.shape[1:] if leaf.part in ("rows", "whole") else value.shape
        if leaf.part not in ("labels", "occurrences", "distinct") and set(FIRST.values()) & set(static):
            raise UnsupportedError(f"{leaf.name} is {tuple(static)} wide, a size that stands for another")


def view_of(
    parameters: Mapping[str, Parameter],
    given: Mapping[Leaf, Tensor],
    table: "type[_TracedTable] | None" = None,
) -> Values:
    """The parameters as a loss sees them; `table` makes those of a `derived`."""
    values = Values({leaf.name: value for leaf, value in given.items() if leaf.part in ("value", "derived")})
    values |= {part: given[Leaf(part)] for part in ("interactions", "held")}
    values |= {"own": _NotCompiled("own"), "history": no_history}
    for name, part in parameters.items():
        if part.table:
            values[name] = (table or _TracedTable)(given, name, part.by)
    return values


class _NotCompiled:
    """What no kernel is given of a client."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, _items: object) -> NoReturn:
        raise UnsupportedError(f"its loss reads w.{self._name}")

    def whole(self) -> NoReturn:
        """Refused, too."""
        raise UnsupportedError(f"its loss reads w.{self._name}")


class _TracedTable:
    """A table as a loss sees it while it is traced."""

    def __init__(self, given: Mapping[Leaf, Tensor], name: str, by: str) -> None:
        self._given = given
        self._name = name
        self._by = by

    def __getitem__(self, chosen: object) -> Tensor:
        if index_of(chosen) is not _of_samples(self._given, self._by):
            raise UnsupportedError(f"its loss looks up other rows of {self._name} than the mini-batch's")
        return self._given[Leaf("rows", self._name)]

    def whole(self) -> Tensor:
        """Every row."""
        if self._by == "user":
            raise UnsupportedError(f"its loss reads all of {self._name}")
        return self._given[Leaf("whole", self._name)]

    def training_sum(self) -> Tensor:
        """The sum of the rows of training items."""
        return self._given[Leaf("training_sum", self._name)]

    def squared_norm(self) -> Tensor:
        """The sum of the squares of the whole table: no loss is compiled of it."""
        raise UnsupportedError(f"its loss asks for the squared norm of all of {self._name}")

    def row_sum(self) -> Tensor:
        """The sum of all rows: no loss is compiled of it."""
        raise UnsupportedError(f"its loss asks for the sum of all rows of {self._name}")


class WholeSums(_TracedTable):
    """A table as `derived` sees it: derived values are computed elsewhere, of true tables."""

    def squared_norm(self) -> Tensor:
        """A number of the right shape."""
        return torch.ones(1, 1)

    def row_sum(self) -> Tensor:
        """A vector of the right shape."""
        return torch.zeros_like(self.training_sum())


def _of_samples(given: Mapping[Leaf, Tensor], by: str) -> Tensor:
    """The items or users of a made-up mini-batch, always the same ones for so many samples."""
    return _first(by, len(given[Leaf("labels")]))


@cache
def _first(_by: str, samples: int) -> Tensor:
    return torch.arange(samples)


class TracedBatch:
    """A mini-batch as a loss sees it while it is traced."""

    def __init__(self, given: Mapping[Leaf, Tensor], *, mean_is_vector: bool) -> None:
        """`mean_is_vector` makes means vectors of one number."""
        self._given = given
        self._mean_is_vector = mean_is_vector
        self.items = sampled(_of_samples(given, "item"))
        self.users = sampled(_of_samples(given, "user"))
        self.labels = given[Leaf("labels")]
        self.size = given[Leaf("size")]

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the batch."""
        if values.numel() != len(self.labels):
            raise UnsupportedError("its loss takes the mean of other than one number per sample")
        return values.sum() / (self.size if self._mean_is_vector else self.size.squeeze(0))

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the batch."""
        return self._of_each(values).sum(-1)

    def logsumexp(self, values: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over the batch."""
        return self._of_each(values).logsumexp(-1)

    def softmax(self, values: Tensor) -> Tensor:
        """Each sample's share of the sum of exponentials over the batch."""
        return self._of_each(values).softmax(-1)

    def _of_each(self, values: Tensor) -> Tensor:
        if values.shape != self.labels.shape:
            raise UnsupportedError("its loss reduces other than one number per sample over the mini-batch")
        return values

    def history(self, _length: int) -> NoReturn:
        """The items before each sample's positive, which no kernel is given."""
        raise UnsupportedError("its loss reads batch.history")

    def distinct(self) -> Tensor:
        """1 for one sample of every item."""
        return self._given[Leaf("distinct")]

    def occurrences(self) -> Tensor:
        """For each sample, how many are of the same item."""
        return self._given[Leaf("occurrences")]
