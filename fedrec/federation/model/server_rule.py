"""The server's part of a method, beyond the weighted mean of uploads."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

from torch import Tensor
from typing_extensions import override

Mixed: TypeAlias = Tensor | tuple[Tensor, Tensor]
"""The weight of each upload (column) for each client (row), or a product of two such matrices."""


class Uploads(Protocol):
    """One flat vector (numbers) of each client whose uploads are aggregated.

    Together they may exceed the memory, or belong to several processes. So a rule names the computation, and
    the server executes it in blocks.
    """

    def __len__(self) -> int:
        """Number of clients."""

    def map(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `of` to the vectors of all clients: it maps some of them (n, numbers) to a row each."""

    def sum_over_columns(self, of: Callable[[Tensor, slice], Tensor]) -> Tensor:
        """Sum `of` over blocks of columns, such as for products of vectors.

        A block has some columns of every client (clients, columns); `of` also gets their slice.
        """

    def mixed(self, weights: Tensor) -> Tensor:
        """Mixtures of all vectors, by rows of `weights`, for the clients of this process."""


class PersonalValues(Protocol):
    """A parameter of the server with one value per client."""

    def whole(self, who: Tensor) -> Tensor:
        """The values of some clients, on a leading client axis."""

    def put(self, who: Tensor, values: Tensor) -> None:
        """Replace the values of some clients."""

    def fill(self, who: Tensor, value: Tensor) -> None:
        """Set the values of some clients to the same `value`."""

    def sums(self, who: Tensor, weights: Tensor) -> Tensor:
        """Weighted sums of the values of some clients, in double precision, one per row of `weights`."""

    def mix(self, who: Tensor, uploads: Uploads, weights: Tensor) -> None:
        """Set the values of the uploading clients `who` to mixtures of all uploads, by rows of `weights`."""


@dataclass(frozen=True)
class ServerSide:
    """Server state that a rule may use before and after the uploads of a round."""

    round_: int
    seed: int
    shared: MutableMapping[str, Tensor]
    """The server's parameters, one for all; may be replaced."""
    initial: Mapping[str, Tensor]
    """Value of every parameter before the first round."""
    personal: Mapping[str, PersonalValues]
    """The server's parameters, one per client."""
    clients: int
    """Number of all clients."""
    aggregated: Callable[[], tuple[Tensor, Tensor]]
    """Function that computes `who` and `share`; several processes exchange theirs."""

    @property
    def who(self) -> Tensor:
        """The clients whose uploads are aggregated in this round."""
        return self._found[0]

    @property
    def share(self) -> Tensor:
        """The weight of each of these clients in a plain mean."""
        return self._found[1]

    @cached_property
    def _found(self) -> tuple[Tensor, Tensor]:
        return self.aggregated()


class ServerRule:
    """Base class of server rules; by default the weighted mean of uploads."""

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        self.settings = settings
        self.items = items

    def begin(self, server: ServerSide) -> None:
        """Hook before clients download."""

    def choose(self, server: ServerSide, count: int) -> Tensor | None:  # noqa: ARG002 - see override
        """The `count` clients that take part, in order; None to draw them at random."""
        return None

    def weights(self, sizes: Tensor) -> Tensor:
        """Each client's weight in the mean, in interactions, given its number of training interactions."""
        return sizes

    def mix(self, name: str, uploads: Uploads, server: ServerSide) -> Mixed | None:  # noqa: ARG002 - see override
        """Weights (clients, uploads) by which uploads of a personal parameter become clients' values.

        With None, each client keeps its own upload. `uploads` are those of the clients `server.who`. If many
        clients get the same value, the weights may be a product of two matrices.
        """
        return None

    def finish(self, server: ServerSide) -> None:
        """Hook after aggregation."""


class RenamedRule(ServerRule):
    """A backbone's rule, on a server that stores the backbone's parameters under other names."""

    def __init__(self, rule: ServerRule, names: Mapping[str, str]) -> None:
        super().__init__(rule.settings, rule.items)
        self.rule = rule
        self.names = names

    @override
    def begin(self, server: ServerSide) -> None:
        self.rule.begin(self._renamed(server))

    @override
    def choose(self, server: ServerSide, count: int) -> Tensor | None:
        return self.rule.choose(self._renamed(server), count)

    @override
    def weights(self, sizes: Tensor) -> Tensor:
        return self.rule.weights(sizes)

    @override
    def mix(self, name: str, uploads: Uploads, server: ServerSide) -> Mixed | None:
        return self.rule.mix(name, uploads, self._renamed(server))

    @override
    def finish(self, server: ServerSide) -> None:
        self.rule.finish(self._renamed(server))

    def _renamed(self, server: ServerSide) -> ServerSide:
        return replace(server, shared=_Renamed(server.shared, self.names))


class _Renamed(MutableMapping[str, Tensor]):
    """A mapping whose keys have other names."""

    def __init__(self, values: MutableMapping[str, Tensor], names: Mapping[str, str]) -> None:
        self.values_, self.names = values, names

    def __getitem__(self, name: str) -> Tensor:
        return self.values_[self.names.get(name, name)]

    def __setitem__(self, name: str, value: Tensor) -> None:
        self.values_[self.names.get(name, name)] = value

    def __delitem__(self, name: str) -> None:
        raise TypeError("a server's parameters cannot be removed")

    def __iter__(self) -> Iterator[str]:
        return iter(self.values_)

    def __len__(self) -> int:
        return len(self.values_)
