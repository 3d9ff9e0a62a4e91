"""Parameters as a method sees them: by name, tables by item; and the mini-batch of one client."""

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from types import MethodType
from typing import Any, NoReturn, cast
from weakref import WeakMethod

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import FederationError, did_you_mean
from fedrec.federation.model.history import History, Past, refuse_history


class Values(dict[str, Any]):
    """Parameters by name, as `w["Q"]` and as `w.Q`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __missing__(self, name: str) -> Any:  # noqa: ANN401 - see above
        raise FederationError(
            f"clients have no value w.{name}.{did_you_mean(name, self)} They have: {', '.join(self)}."
        )


class LazyValues(dict[str, Tensor]):
    """Values by name, each computed at its first use.

    The reference to a bound method is weak, because its object may hold these values. So the memory of both
    is freed without a garbage collection.
    """

    def __init__(self, look_up: Callable[[str], Tensor]) -> None:
        super().__init__()
        self._look_up = WeakMethod(look_up) if isinstance(look_up, MethodType) else lambda: look_up

    def __missing__(self, name: str) -> Tensor:
        look_up = self._look_up()
        assert look_up is not None, "the object that looks values up outlives them"
        self[name] = look_up(name)
        return self[name]


class View(Mapping[str, Any]):
    """Parameters, some of them replaced, such as a table that a plug-in gives its backbone."""

    def __init__(self, weights: Any, replaced: Mapping[str, Any]) -> None:  # noqa: ANN401 - any weights
        self._weights = weights
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        return self[name]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        return self._replaced[name] if name in self._replaced else self._weights[name]

    def history(self, length: int) -> History:
        """The client's last training items."""
        history: History = self._weights.history(length)
        return history

    def __contains__(self, name: object) -> bool:
        return name in self._replaced or name in self._weights

    def __iter__(self) -> Iterator[str]:
        return iter({**self._weights, **self._replaced})

    def __len__(self) -> int:
        return len({**self._weights, **self._replaced})


class SampledItems:
    """The items of a mini-batch in a loss: an index that only looks up rows of tables.

    Engines number items differently, for example by active rows, so a loss cannot read the numbers.
    """

    def __init__(self, index: Tensor) -> None:
        self.index = index

    @classmethod
    def __torch_function__(cls, *_called: object) -> NoReturn:
        _refuse_items()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        _refuse_items()


def _refuse_items(*_with: object) -> NoReturn:
    raise FederationError(
        "batch.items only looks up rows of tables (w.Q[batch.items]). It has no numbers to read. For a fixed "
        "number per item, declare an item table that no step trains, and read it as w.name[batch.items]."
    )


_ARITHMETIC = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift"
_OTHERS = "neg abs invert eq ne lt le gt ge getitem setitem len iter contains bool int float index array hash"
for _operator in (*_ARITHMETIC.split(), *map("r{}".format, _ARITHMETIC.split()), *_OTHERS.split()):
    setattr(SampledItems, f"__{_operator}__", _refuse_items)


def sampled(index: Tensor) -> Tensor:
    """Items as the argument of a loss or a rewrite; only type checkers see a `Tensor`."""
    return cast(Tensor, SampledItems(index))


def index_of(items: Any) -> Tensor:  # noqa: ANN401 - a tensor, or items of a mini-batch
    """The tensor by which rows of a table are looked up."""
    index: Tensor = items.index if isinstance(items, SampledItems) else items
    return index


class PlainTable:
    """Whole tables: one table (items, d), or one of each client (clients, items, d)."""

    def __init__(self, table: Tensor | Callable[[], Tensor], training: Tensor | None = None) -> None:
        """`training` are the training items of one client; `table` may be a function that returns it."""
        self._given = table
        self._training = training

    @cached_property
    def table(self) -> Tensor:
        """All rows."""
        return self._given if isinstance(self._given, Tensor) else self._given()

    def __getitem__(self, items: Tensor) -> Tensor:
        index = index_of(items)
        if self.table.dim() == 2:
            return functional.embedding(index, self.table)
        clients = torch.arange(len(self.table), device=index.device).unsqueeze(1)
        return functional.embedding(clients * self.table.shape[1] + index, self.table.flatten(0, 1))

    def whole(self) -> Tensor:
        """All rows."""
        return self.table

    def squared_norm(self) -> Tensor:
        """The sum of the squares of each table."""
        return reduced(self.table, 2)

    def row_sum(self) -> Tensor:
        """The sum of the rows of each table."""
        return reduced(self.table, 1)

    def training_sum(self) -> Tensor:
        """The sum of the rows of the client's training items."""
        if self._training is None:
            raise FederationError(
                "training_sum() is available only in losses, scores and `derived`; nothing else knows the "
                "training items."
            )
        return self[self._training].sum(0, keepdim=True)


class GatheredRows:
    """Rows gathered in advance: those of one mini-batch, with a gradient per sample, or a whole table."""

    def __init__(self, index: Tensor, gathered: Tensor) -> None:
        self.index = index
        self.gathered = gathered

    def __getitem__(self, items: Tensor) -> Tensor:
        if index_of(items) is not self.index:
            raise FederationError("look up rows of a table only by the items of the argument.")
        return self.gathered


class Combined:
    """A table computed row by row from others: `combine` gets the same rows of each."""

    def __init__(self, combine: Callable[..., Tensor], *tables: Any, linear: bool = False) -> None:  # noqa: ANN401 - tables
        """Take the tables and their function; with `linear`, sums of rows combine as rows do."""
        self._combine = combine
        self._tables = tables
        self._linear = linear

    def __getitem__(self, items: Tensor) -> Tensor:
        return self._combine(*(table[items] for table in self._tables))

    def whole(self) -> Tensor:
        """All rows."""
        return self._combine(*(table.whole() for table in self._tables))

    def training_sum(self) -> Tensor:
        """The sum of the rows of the client's training items."""
        if not self._linear:
            raise FederationError(
                "the sum of rows of a merged table is not available, because rows are merged one by one."
            )
        return self._combine(*(table.training_sum() for table in self._tables))


class PlainBatch:
    """A mini-batch of one client."""

    def __init__(self, index: Tensor, labels: Tensor, past: Callable[[], Past] | None = None) -> None:
        """`past` returns the history before the positive of each sample."""
        self.index = index
        self.labels = labels
        self._past = past

    def history(self, length: int) -> History:
        """The items before the positive of each sample."""
        if self._past is None:
            refuse_history(length)
        items, mask = self._past().items(length)
        return History(sampled(items), mask)

    @cached_property
    def items(self) -> Tensor:
        """The items of its samples."""
        return sampled(self.index)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the batch."""
        return values.mean()

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the batch."""
        return values.sum(-1)

    def logsumexp(self, values: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials over the batch."""
        return values.logsumexp(-1)

    def softmax(self, values: Tensor) -> Tensor:
        """The softmax over the batch."""
        return values.softmax(-1)

    @property
    def size(self) -> Tensor:
        """The number of samples: (1)."""
        return torch.tensor([float(len(self.index))], device=self.index.device)

    def occurrences(self) -> Tensor:
        """For each sample, how many samples have the same item."""
        listed = self.index.tolist()
        return torch.tensor([float(listed.count(item)) for item in listed], device=self.index.device)

    def distinct(self) -> Tensor:
        """1 for the first sample of every item, 0 for all others."""
        seen: set[int] = set()
        first = []
        for item in self.index.tolist():
            first.append(float(item not in seen))
            seen.add(item)
        return torch.tensor(first, device=self.index.device)

    def samples(self) -> "list[PlainBatch]":
        """Each sample as a mini-batch of its own."""
        return [
            PlainBatch(item, label)
            for item, label in zip(self.index.split(1), self.labels.split(1), strict=True)
        ]


def powers(rows: Tensor, power: int) -> Tensor:
    """The term of each row in a sum over a table, in double precision: the row, or its squared norm."""
    if power == 1:
        return rows.double()
    if rows.dtype == torch.float64:
        return rows.square().sum(-1, keepdim=True)
    # This avoids a copy of all rows in double precision; squaring the root loses no digit of the result.
    norms: Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float64)
    return norms.square()


def reduced(tables: Tensor, power: int) -> Tensor:
    """The sum of the rows (power 1) or of their squared norms (power 2) of each table, as a vector."""
    return powers(tables, power).sum(-2, keepdim=True).to(tables.dtype)
