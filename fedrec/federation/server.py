"""The server: combines uploads. Sees what clients upload, and nothing else of them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import torch
from torch import Tensor

from fedrec.errors import FederationError
from fedrec.federation.state import State

Mixing: TypeAlias = Callable[[Tensor, Tensor], Tensor]
_COLUMNS = 1 << 16


@dataclass
class Server:
    """Collects the uploads of a round and forms the new values of shared and personal parameters.

    Uploads come as changes: what a client sends minus what the server has for it. `weight`
    gives each client its share of the mean, 0 to those not aggregated; shares add up to 1.
    Sums are kept in double precision, so that neither the order of clients nor the size of
    blocks shows in the result.
    """

    state: State
    weight: Tensor
    uploaded: dict[str, int] = field(default_factory=dict)
    """Numbers each client sent, by the parameter they go into."""
    _change: dict[str, Tensor] = field(default_factory=dict)
    _factor: dict[str, Tensor] = field(default_factory=dict)

    def reference(self, into: str, who: Tensor) -> Tensor:
        """What the server has for some clients, on a leading axis of one or of all of them."""
        if into in self.state.shared:
            return self.state.shared[into].unsqueeze(0)
        return self.state.kept[into].whole(who)

    def receive_rows(self, into: str, who: Tensor, item: Tensor, change: Tensor) -> None:
        """Rows of a shared table that clients changed: for each its client, its item, and its change."""
        self._sum(into).index_add_(0, item, change.double() * self.weight[who].unsqueeze(1))

    def receive_scaling(self, into: str, who: Tensor, factor: Tensor) -> None:
        """A shared table that clients multiplied by 1 + `factor`, one number each."""
        total = (factor.double() * self.weight[who]).sum()
        self._factor[into] = self._factor.get(into, torch.zeros_like(total)) + total

    def receive(self, into: str, who: Tensor, change: Tensor) -> None:
        """A parameter's changes, one per client on the leading axis."""
        self.uploaded[into] = change[0].numel()
        if into in self.state.shared:
            shares = self.weight[who].reshape(-1, *(1 for _ in change.shape[1:]))
            self._sum(into).add_((change.double() * shares).sum(0))
            return
        chosen = self.weight[who] > 0
        kept = self.state.kept[into]
        kept.put(who[chosen], kept.whole(who[chosen]) + change[chosen])

    def aggregate(self, mixing: Mixing) -> None:
        """Replace shared parameters by the weighted mean of the uploads, personal ones by their own mean."""
        for name, change in self._change.items():
            before = self.state.shared[name].double()
            factor = self._factor.get(name)
            total = before + change if factor is None else before + change + factor * before
            self.state.shared[name] = total.to(self.state.shared[name].dtype)
        who = self.weight.nonzero().squeeze(1)
        self.state.held.zero_()
        for name in self.state.personal:
            if name not in self.uploaded:
                continue
            kept = self.state.kept[name]
            stack = kept.whole(who)
            flat = stack.flatten(1)
            weights = mixing(flat, self.weight[who].to(flat.dtype))
            for columns in flat.split(_COLUMNS, dim=1):
                columns.copy_(weights @ columns)
            kept.put(who, stack)
            self.state.held[who] = True

    def refuse(self, name: str, into: str) -> None:
        """Raise `FederationError` unless `name` may leave the client and go into `into`."""
        place = {key: one.place for key, one in self.state.parameters.items()}
        if place[name] not in ("shared", "local"):
            free = [key for key, where in place.items() if where in ("shared", "local")]
            raise FederationError(
                f"'{name}' is {place[name]}: it stays on the client and cannot be uploaded. "
                f"What may be uploaded: {', '.join(free) or 'nothing'}."
            )
        if place.get(into) not in ("shared", "personal"):
            raise FederationError(f"'{into}' is not on the server: '{name}' cannot be uploaded into it.")

    def _sum(self, name: str) -> Tensor:
        if name not in self._change:
            self._change[name] = torch.zeros_like(self.state.shared[name], dtype=torch.float64)
            self.uploaded[name] = self.state.shared[name].numel()
        return self._change[name]
