"""Parameters as a method sees them: by name, tables by item."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.errors import FederationError


class Values(dict[str, Any]):
    """Parameters by name, as `w["Q"]` and as `w.Q`."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class PlainTable:
    """The table of one client, or one table for all: items x d."""

    def __init__(self, table: Tensor, training: Tensor | None = None) -> None:
        """`training` are the items the client trains on."""
        self.table = table
        self._training = training

    def __getitem__(self, items: Tensor) -> Tensor:
        return functional.embedding(items, self.table)

    def whole(self) -> Tensor:
        """See `method.Table`."""
        return self.table

    def squared_norm(self) -> Tensor:
        """See `method.Table`."""
        return reduced(self.table, 2)

    def row_sum(self) -> Tensor:
        """See `method.Table`."""
        return reduced(self.table, 1)

    def training_sum(self) -> Tensor:
        """See `method.Table`."""
        if self._training is None:
            raise FederationError("training items are known in losses and scores alone.")
        return self[self._training].sum(0, keepdim=True)


class ClientTables:
    """A table of each of some clients: clients x items x d."""

    def __init__(self, tables: Tensor) -> None:
        self.tables = tables

    def __getitem__(self, items: Tensor) -> Tensor:
        clients = torch.arange(len(self.tables), device=items.device).unsqueeze(1)
        return functional.embedding(clients * self.tables.shape[1] + items, self.tables.flatten(0, 1))

    def whole(self) -> Tensor:
        """See `method.Table`."""
        return self.tables

    def squared_norm(self) -> Tensor:
        """See `method.Table`."""
        return reduced(self.tables, 2)

    def row_sum(self) -> Tensor:
        """See `method.Table`."""
        return reduced(self.tables, 1)


class HeldRows:
    """The rows of a table that clients of a block hold; indexed by places among them."""

    def __init__(
        self,
        rows: Tensor,
        reduced: Callable[[int], Tensor],
        training_sum: Callable[[], Tensor],
        clients: int | None,
    ) -> None:
        """`clients` is how many there are, where every row of theirs is held."""
        self.rows = rows
        self.training_sum = training_sum
        self._reduced = reduced
        self._clients = clients
        self._last: tuple[Tensor, Tensor] | None = None

    def __getitem__(self, places: Tensor) -> Tensor:
        # A loss looks up the rows of its mini-batch several times: gather them, and scatter their
        # gradient, once.
        if self._last is None or self._last[0] is not places:
            self._last = (places, functional.embedding(places, self.rows))
        return self._last[1]

    def whole(self) -> Tensor:
        """See `method.Table`."""
        if self._clients is None:
            raise FederationError("whole tables are held only where the method says `dense = True`.")
        tables: Tensor = self.rows.unflatten(0, (self._clients, -1))
        return tables

    def squared_norm(self) -> Tensor:
        """See `method.Table`."""
        return self._reduced(2)

    def row_sum(self) -> Tensor:
        """See `method.Table`."""
        return self._reduced(1)


class GatheredRows:
    """The rows of one mini-batch, gathered beforehand so that each sample has a gradient of its own."""

    def __init__(self, places: Tensor, gathered: Tensor) -> None:
        self.places = places
        self.gathered = gathered

    def __getitem__(self, places: Tensor) -> Tensor:
        if places is not self.places:
            raise KeyError("a guarded table is known only at the items of the mini-batch")
        return self.gathered


class Weighed:
    """A sum of tables, each times its weight."""

    def __init__(self, *parts: tuple[Any, Tensor]) -> None:
        self.parts = parts

    def __getitem__(self, items: Tensor) -> Tensor:
        rows: Tensor = sum(weight * table[items] for table, weight in self.parts)
        return rows

    def whole(self) -> Tensor:
        """See `method.Table`."""
        rows: Tensor = sum(weight * table.whole() for table, weight in self.parts)
        return rows

    def training_sum(self) -> Tensor:
        """See `method.Table`."""
        total: Tensor = sum(weight * table.training_sum() for table, weight in self.parts)
        return total


class View(Mapping[str, Any]):
    """Parameters, some of them replaced: how a plug-in shows a backbone another table."""

    def __init__(self, weights: Any, replaced: Mapping[str, Any]) -> None:  # noqa: ANN401 - any weights
        self._weights = weights
        self._replaced = replaced

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        return self[name]

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a table or a tensor
        return self._replaced[name] if name in self._replaced else self._weights[name]

    def __contains__(self, name: object) -> bool:
        return name in self._replaced or name in self._weights

    def __iter__(self) -> Any:  # noqa: ANN401 - an iterator of names
        return iter({**self._weights, **self._replaced})

    def __len__(self) -> int:
        return len({**self._weights, **self._replaced})


def powers(rows: Tensor, power: int) -> Tensor:
    """What each row adds to a sum over a table, in double precision: itself, or its squared norm."""
    return rows.double() if power == 1 else rows.double().square().sum(-1, keepdim=True)


def reduced(tables: Tensor, power: int) -> Tensor:
    """The sum of the rows (power 1) or of their squared norms (power 2) of each table, as a vector."""
    return powers(tables, power).sum(-2, keepdim=True).to(tables.dtype)
