"""Dense table of a number for every pair of client and item, if memory allows."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedrec.federation.pairs import keys


class AllCounts:
    """Dense counterpart of a `PairTable`, whose look-ups need no search."""

    def __init__(self, clients: int, items: int, device: torch.device) -> None:
        self.items = items
        self._number = torch.zeros(clients * items, dtype=torch.int64, device=device)

    def get(self, client: Tensor, item: Tensor) -> Tensor:
        """The number of each pair; `client` and `item` broadcast."""
        return self._number.take(keys(client, item, self.items))

    def count(self, client: Tensor, item: Tensor) -> None:
        """Increment the number of each pair, once per occurrence."""
        key = keys(client, item, self.items)
        self._number.scatter_add_(0, key, torch.ones_like(key))

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a `PairTable` with the same numbers."""
        key = self._number.nonzero().squeeze(1)
        return {"/key": key, "/value": self._number[key]}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
        key, value = (tensors[name].to(self._number.device) for name in ("/key", "/value"))
        self._number.zero_().index_copy_(0, key, value)
