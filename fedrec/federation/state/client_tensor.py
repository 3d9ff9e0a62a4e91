"""Client state over rounds: one parameter, with one value per client."""

from collections.abc import Callable, Mapping
from typing import Protocol

from torch import Tensor


class ClientTensor(Protocol):
    """One parameter of every client. `who` are clients; for tables `item` goes along with it."""

    def whole(self, who: Tensor) -> Tensor:
        """The values of some clients, on a leading client axis."""

    def view(self, span: slice) -> Tensor:
        """The values of neighbouring clients, to be looked at only; copied where they do not lie there."""

    def put(self, who: Tensor, values: Tensor) -> None:
        """Replace the values of some clients."""

    def modify(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        """Let `change` replace the values of some clients (sorted), one flat vector each, in place."""

    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        """Rows of a table, each of its client; `who` and `item` have one shape."""

    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        """Replace rows of a table; no pair of client and item comes twice."""

    def scale(self, who: Tensor, factor: Tensor) -> None:
        """Multiply all rows of each client by its factor."""

    def fill(self, who: Tensor, value: Tensor) -> None:
        """Let some clients hold `value`, one and the same for all of them."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by a suffix of the parameter's name, for a file."""

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
