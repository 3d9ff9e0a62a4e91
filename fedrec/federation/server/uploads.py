"""Uploads into a per-client parameter of the server, as a rule sees them."""

from collections.abc import Callable, Iterator
from functools import cached_property, reduce

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.model.server_rule import Mixed, Uploads
from fedrec.federation.server.mixing import columns
from fedrec.federation.server.subsets import mixed_by_subsets


class FlatUploads(Uploads):
    """One flat vector per client; this process has the `rows` of its own clients.

    Computations over all clients use blocks of columns. Processes exchange blocks, so that each has its share
    of the columns for all clients, and as many numbers as before.
    """

    def __init__(self, rows: Tensor, communicator: Communicator = SINGLE) -> None:
        self._rows = rows
        self._communicator = communicator

    def __len__(self) -> int:
        return sum(self._lengths)

    @override
    def map(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        return self._communicator.all_gather(of(self._rows))

    @override
    def sum_over_columns(self, of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        return self._communicator.all_reduce(
            reduce(torch.add, (of(part, place) for place, part in self._parts()))
        )

    @override
    def mixed(self, weights: Tensor) -> Tensor:
        return self._to_rows(weights.to(self._rows.dtype) @ self._columns)

    def mix(self, weights: Mixed) -> None:
        """Replace each client's upload by its mixture of all uploads, in place."""
        given = weights if isinstance(weights, tuple) else (weights,)
        factors = tuple(factor.to(self._rows.dtype) for factor in given)
        if len(factors) > 1 or not mixed_by_subsets(self._columns, factors[0]):
            for _, part in self._parts():
                part.copy_(reduce(lambda mixed, factor: factor @ mixed, reversed(factors), part))
        if self._communicator.size > 1:
            self._rows.copy_(self._to_rows(self._columns))

    @cached_property
    def _lengths(self) -> list[int]:
        """Number of clients of each process whose uploads are aggregated."""
        return self._communicator.all_gather_lengths(self._rows)

    @cached_property
    def _columns(self) -> Tensor:
        """The columns of this process, for all clients: (clients, columns)."""
        if self._communicator.size == 1:
            return self._rows
        spans = self._communicator.spans(self._rows.shape[1])
        own = spans[self._communicator.rank]
        shapes = [(length, own.stop - own.start) for length in self._lengths]
        return torch.cat(self._communicator.all_to_all([self._rows[:, span] for span in spans], shapes))

    def _to_rows(self, some_columns: Tensor) -> Tensor:
        """The rows of this process's clients, given each process's share of the columns."""
        if self._communicator.size == 1:
            return some_columns
        spans = self._communicator.spans(self._rows.shape[1])
        shapes = [(len(self._rows), span.stop - span.start) for span in spans]
        return torch.cat(self._communicator.all_to_all(some_columns.split(self._lengths), shapes), dim=1)

    def _parts(self) -> Iterator[tuple[slice, Tensor]]:
        """Blocks of this process's columns, with the slice of each."""
        first = self._communicator.span(self._rows.shape[1]).start
        for part in columns(self._columns):
            yield slice(first, first + part.shape[1]), part
            first += part.shape[1]
