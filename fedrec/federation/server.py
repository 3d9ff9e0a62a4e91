"""The server: combines uploads. Sees what clients upload, and nothing else of them."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedrec.errors import FederationError
from fedrec.federation.state import State


@dataclass
class Server:
    """Collects the uploads of a round and forms the new shared values.

    `weight` gives each client its share of the mean, 0 to those not aggregated; shares add
    up to 1. Sums are kept in double precision, so that neither the order of clients nor the
    size of blocks shows in the result.
    """

    state: State
    weight: Tensor
    _change: dict[str, Tensor] = field(default_factory=dict)

    def receive_rows(self, name: str, who: Tensor, item: Tensor, change: Tensor) -> None:
        """Rows of a table that clients changed: for each its client, its item, and its change."""
        self._sum(name).index_add_(0, item, change.double() * self.weight[who].unsqueeze(1))

    def receive(self, name: str, who: Tensor, change: Tensor) -> None:
        """A parameter's changes, one per client on the leading axis."""
        shares = self.weight[who].reshape(-1, *(1 for _ in change.shape[1:]))
        self._sum(name).add_((change.double() * shares).sum(0))

    @property
    def uploaded(self) -> list[str]:
        """The parameters that came in."""
        return list(self._change)

    def aggregate(self) -> None:
        """Replace each uploaded parameter by the weighted mean of the uploads."""
        for name, change in self._change.items():
            before = self.state.shared[name]
            self.state.shared[name] = (before.double() + change).to(before.dtype)

    def refuse_private(self, name: str) -> None:
        """Raise `FederationError` unless `name` is a shared parameter."""
        if name not in self.state.shared:
            raise FederationError(
                f"'{name}' is private: it stays on the client and cannot be uploaded. "
                f"Shared parameters are: {', '.join(self.state.shared) or 'none'}."
            )

    def _sum(self, name: str) -> Tensor:
        self.refuse_private(name)
        if name not in self._change:
            self._change[name] = torch.zeros_like(self.state.shared[name], dtype=torch.float64)
        return self._change[name]
