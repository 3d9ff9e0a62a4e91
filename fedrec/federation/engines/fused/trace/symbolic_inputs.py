"""A made-up client: the parameters and the mini-batch that a loss reads while it is traced.

The module reads a method's parameters and the sizes of a client. It gives a tensor for every input that a
loss may read, and refuses the inputs that kernels do not have.
"""

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
    """The owner of a loss: a method, or a centralised model of all users."""

    def parameters(self) -> dict[str, Parameter]:
        """Its parameters by name."""

    def derived(self, w: Weights) -> dict[str, Tensor]:
        """Tensors that losses read and that are computed from whole tables."""


def leaves_of(
    method: Model, sizes: Sizes, values_between: tuple[float, float]
) -> Iterator[tuple[Leaf, Tensor]]:
    """Yield a made-up tensor for every input that a loss may read.

    `sizes` are the numbers of samples and rows; all numbers are between the two of `values_between`.
    """
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
    """Raise `UnsupportedError` if a width equals the first client's number of samples or rows."""
    for leaf, value in leaves.items():
        static = value.shape[1:] if leaf.part in ("rows", "whole") else value.shape
        if leaf.part not in ("labels", "occurrences", "distinct") and set(FIRST.values()) & set(static):
            raise UnsupportedError(f"{leaf.name} is {tuple(static)} wide, a size that the trace reserves")


def view_of(
    parameters: Mapping[str, Parameter],
    given: Mapping[Leaf, Tensor],
    table: "type[_TracedTable] | None" = None,
) -> Values:
    """The parameters as a loss reads them; `table` is the class of tables, by default `_TracedTable`."""
    values = Values({leaf.name: value for leaf, value in given.items() if leaf.part in ("value", "derived")})
    values |= {part: given[Leaf(part)] for part in ("interactions", "held")}
    values |= {"own": _NotCompiled("own"), "history": no_history}
    for name, part in parameters.items():
        if part.table:
            values[name] = (table or _TracedTable)(given, name, part.by)
    return values


class _NotCompiled:
    """An input of a client that no kernel has; reading it raises `UnsupportedError`."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, _items: object) -> NoReturn:
        raise UnsupportedError(f"its loss reads w.{self._name}")

    def whole(self) -> NoReturn:
        """Raise `UnsupportedError`."""
        raise UnsupportedError(f"its loss reads w.{self._name}")


class _TracedTable:
    """A table as a loss reads it while it is traced."""

    def __init__(self, given: Mapping[Leaf, Tensor], name: str, by: str) -> None:
        self._given = given
        self._name = name
        self._by = by

    def __getitem__(self, chosen: object) -> Tensor:
        if index_of(chosen) is not _of_samples(self._given, self._by):
            raise UnsupportedError(f"its loss reads rows of {self._name} that are not the mini-batch's")
        return self._given[Leaf("rows", self._name)]

    def whole(self) -> Tensor:
        """All rows, `(rows, width)`."""
        if self._by == "user":
            raise UnsupportedError(f"its loss reads all of {self._name}")
        return self._given[Leaf("whole", self._name)]

    def training_sum(self) -> Tensor:
        """The sum of the rows of the client's training items, `(1, width)`."""
        return self._given[Leaf("training_sum", self._name)]

    def squared_norm(self) -> Tensor:
        """Raise `UnsupportedError`: kernels have no squared norm of a whole table."""
        raise UnsupportedError(f"its loss reads the squared norm of all of {self._name}")

    def row_sum(self) -> Tensor:
        """Raise `UnsupportedError`: kernels have no sum of all rows."""
        raise UnsupportedError(f"its loss reads the sum of all rows of {self._name}")


class WholeSums(_TracedTable):
    """A table as `derived` reads it. Only shapes matter: runs compute derived values from true tables."""

    def squared_norm(self) -> Tensor:
        """A number of the right shape."""
        return torch.ones(1, 1)

    def row_sum(self) -> Tensor:
        """A vector of the right shape."""
        return torch.zeros_like(self.training_sum())


def _of_samples(given: Mapping[Leaf, Tensor], by: str) -> Tensor:
    """The items or users of a made-up mini-batch, `(samples,)`: one tensor for each number of samples."""
    return _first(by, len(given[Leaf("labels")]))


@cache
def _first(_by: str, samples: int) -> Tensor:
    return torch.arange(samples)


class TracedBatch:
    """A mini-batch as a loss reads it while it is traced."""

    def __init__(self, given: Mapping[Leaf, Tensor], *, mean_is_vector: bool) -> None:
        """With `mean_is_vector` a mean has the shape `(1,)` instead of `()`."""
        self._given = given
        self._mean_is_vector = mean_is_vector
        self.items = sampled(_of_samples(given, "item"))
        """The item of each sample, `(samples,)`."""
        self.users = sampled(_of_samples(given, "user"))
        """The user of each sample, `(samples,)`."""
        self.labels = given[Leaf("labels")]
        """The label of each sample, `(samples,)`."""
        self.size = given[Leaf("size")]
        """The number of samples, `(1,)`."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the samples."""
        if values.numel() != len(self.labels):
            raise UnsupportedError("its loss takes a mean of more or less than one number per sample")
        return values.sum() / (self.size if self._mean_is_vector else self.size.squeeze(0))

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the samples."""
        return self._of_each(values).sum(-1)

    def logsumexp(self, values: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over the samples."""
        return self._of_each(values).logsumexp(-1)

    def softmax(self, values: Tensor) -> Tensor:
        """Each sample's share of the sum of exponentials over the samples, `(samples,)`."""
        return self._of_each(values).softmax(-1)

    def _of_each(self, values: Tensor) -> Tensor:
        if values.shape != self.labels.shape:
            raise UnsupportedError("its loss reduces more or less than one number per sample")
        return values

    def history(self, _length: int) -> NoReturn:
        """Raise `UnsupportedError`: kernels do not have the items before each sample's positive."""
        raise UnsupportedError("its loss reads batch.history")

    def distinct(self) -> Tensor:
        """1 for one sample of every item and 0 for its other samples, `(samples,)`."""
        return self._given[Leaf("distinct")]

    def occurrences(self) -> Tensor:
        """For each sample, the number of samples with the same item, `(samples,)`."""
        return self._given[Leaf("occurrences")]
