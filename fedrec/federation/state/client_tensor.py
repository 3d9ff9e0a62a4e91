"""Interface of client state: one parameter, with one value per client, kept between rounds."""

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor


class ClientTensor(Protocol):
    """One parameter of every client. `who` (n) are client indices; for tables `item` has the same shape."""

    def whole(self, who: Tensor) -> Tensor:
        """The values of some clients: (n, ...)."""

    def view(self, span: slice) -> Tensor:
        """The values of consecutive clients, read-only; a view if the storage allows it."""

    def put(self, who: Tensor, values: Tensor) -> None:
        """Replace the values of some clients."""

    def modify(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        """Apply `change`, in place, to the values (n, numbers) of some clients (sorted)."""

    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        """Rows of a table, one per pair of client and item: (..., d)."""

    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        """Replace rows of a table; no pair of client and item occurs twice."""

    def scale(self, who: Tensor, factor: Tensor) -> None:
        """Multiply all rows of each client by its factor."""

    def fill(self, who: Tensor, value: Tensor) -> None:
        """Set the values of some clients to the same `value`."""

    def tensors(self) -> dict[str, Tensor]:
        """The stored tensors by their suffix of the parameter's name, for a file."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
