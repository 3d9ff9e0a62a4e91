"""The server: combines uploads. Sees what clients upload, and nothing else of them."""

from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from fedrec.errors import FederationError
from fedrec.federation.model.method import Mixed, ServerSide
from fedrec.federation.observe.recorder import Watch
from fedrec.federation.server.mixing import columns
from fedrec.federation.server.products import Goal
from fedrec.federation.state.state import State


class Mixing(Protocol):
    """See `method.Method.mixing`."""

    def __call__(self, name: str, uploads: Tensor, server: ServerSide) -> Mixed:
        """The weights of uploads for each client."""


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
    seed: int
    round_: int
    uploaded: dict[str, int] = field(default_factory=dict)
    """Numbers each client sends, by the parameter it sends."""
    goals: set[str] = field(default_factory=set)
    """The parameters uploads go into."""
    closed: bool = False
    """Whether uploads have been aggregated."""
    watch: Watch | None = None
    """Who looks at the uploads besides."""
    _change: dict[str, Tensor] = field(default_factory=dict)
    _factor: dict[str, Tensor] = field(default_factory=dict)
    _counted: dict[str, Tensor] = field(default_factory=dict)
    _products: dict[str, Goal] = field(default_factory=dict)

    @property
    def who(self) -> Tensor:
        """The clients whose uploads are aggregated."""
        return self.weight.nonzero().squeeze(1)

    def side(self) -> ServerSide:
        """What a method may use of it."""
        return ServerSide(
            round_=self.round_,
            seed=self.seed,
            shared=self.state.shared,
            initial=self.state.initial,
            personal={name: self.state.kept[name] for name in self.state.personal},
            clients=len(self.weight),
            who=self.who,
            share=self.weight[self.who].to(torch.get_default_dtype()),
        )

    def reference(self, into: str, who: Tensor) -> Tensor:
        """What the server has for some clients, on a leading axis of one or of all of them."""
        if into in self.state.shared:
            return self.state.shared[into].unsqueeze(0)
        return self.state.kept[into].whole(who)

    def products(self, name: str) -> Goal:
        """The server's products of rows as clients approach them, taken apart once a round."""
        if name not in self._products:
            self._products[name] = Goal.of(self.state.shared[name])
        return self._products[name]

    def receive_rows(self, into: str, who: Tensor, item: Tensor, change: Tensor) -> None:
        """Rows of a shared table that clients changed: for each its client, its item, and its change."""
        if self.watch is not None:
            self.watch.received_rows(self.state, into, who, item, change)
        weight = self._row_weight(into, self.weight[who].unsqueeze(1), change)
        self._sum(into).index_add_(0, item, change.double() * weight)
        if into in self._counted:
            self._counted[into].index_add_(0, item, weight)

    def receive_scaling(self, into: str, who: Tensor, factor: Tensor) -> None:
        """A shared table that clients multiplied by 1 + `factor`, one number each."""
        if self.state.parameters[into].combine != "mean":
            raise FederationError(
                f"every row of '{into}' decays: uploads can be combined by their mean alone."
            )
        if self.watch is not None:
            self.watch.received_scaling(self.state, into, who, factor)
        total = (factor.double() * self.weight[who]).sum()
        self._factor[into] = self._factor.get(into, torch.zeros_like(total)) + total

    def receive_products(self, into: str, who: Tensor, tables: Tensor) -> None:
        """The products of every two rows of each client's table (clients x items x d)."""
        if self.watch is not None:
            self.watch.received_products(self.state, into, who, tables)
        weight = self.weight[who].to(tables.dtype)
        side = (tables * weight.sqrt()[:, None, None]).transpose(0, 1).flatten(1)
        self._sum(into).add_((side @ side.T).double() - weight.sum() * self.state.shared[into].double())

    def receive(self, into: str, who: Tensor, change: Tensor) -> None:
        """A parameter's changes, one per client on the leading axis."""
        if self.watch is not None:
            self.watch.received(self.state, into, who, change)
        if into in self.state.shared:
            shares = self.weight[who].reshape(-1, *(1 for _ in change.shape[1:]))
            weight = self._row_weight(into, shares, change)
            self._sum(into).add_((change.double() * weight).sum(0))
            if into in self._counted:
                self._counted[into].add_(weight.sum(0))
            return
        chosen = self.weight[who] > 0
        kept = self.state.kept[into]
        kept.put(who[chosen], kept.whole(who[chosen]) + change[chosen])

    def aggregate(self, mixing: Mixing | None) -> None:
        """Replace shared parameters by the weighted mean of the uploads, personal ones by their own mean.

        Without `mixing`, personal ones stay what was uploaded.
        """
        for name, change in self._change.items():
            before = self.state.shared[name].double()
            factor, counted = self._factor.get(name), self._counted.get(name)
            # A row that nobody changed has no weight and no change.
            mean = change if counted is None else change / torch.where(counted > 0, counted, 1.0)
            total = before + mean if factor is None else before + mean + factor * before
            self.state.shared[name] = total.to(self.state.shared[name].dtype)
        who = self.who
        self.state.held.zero_()
        for name in self.state.personal:
            if name not in self.goals:
                continue
            if mixing is not None:
                self.state.kept[name].alter(who, partial(self._mix, mixing, name))
            self.state.held[who] = True
        self._products.clear()
        self.closed = True

    def _mix(self, mixing: Mixing, name: str, flat: Tensor) -> None:
        """Replace each client's flat upload by its mixture of all."""
        weights = mixing(name, flat, self.side())
        if self.watch is not None:
            self.watch.mixed(name, self.who, weights)
        factors = weights if isinstance(weights, tuple) else (weights,)
        for part in columns(flat):
            mixed = part
            for factor in reversed(factors):
                mixed = factor @ mixed
            part.copy_(mixed)

    def accept(self, name: str, into: str) -> None:
        """Take note of an upload; raise `FederationError` unless `name` may leave the client for `into`."""
        if self.closed:
            raise FederationError(f"'{name}' cannot be uploaded: the server has answered already.")
        place = {key: one.place for key, one in self.state.parameters.items()}
        if place[name] not in ("shared", "local") and not (place[name] == "personal" and into == name):
            free = [key for key, where in place.items() if where in ("shared", "local")]
            raise FederationError(
                f"'{name}' is {place[name]}: it stays on the client and cannot be uploaded. "
                f"What may be uploaded: {', '.join(free) or 'nothing'}."
            )
        if place.get(into) not in ("shared", "server", "personal"):
            raise FederationError(f"'{into}' is not on the server: '{name}' cannot be uploaded into it.")
        self.goals.add(into)
        self.uploaded[name] = self.state.parameters[into].count
        if self.watch is not None:
            self.watch.accepted(name, into)

    def _row_weight(self, into: str, share: Tensor, change: Tensor) -> Tensor:
        """The weight of each changed row, or of whole changes; see `Parameter.combine`."""
        combine = self.state.parameters[into].combine
        if combine == "mean":
            return share
        if into not in self._counted:
            items = self.state.shared[into].shape[0]
            self._counted[into] = share.new_zeros(items, 1)
        if combine == "touched":
            return share * (change != 0).any(-1, keepdim=True)
        return (share > 0) * change.double().abs().sum(-1, keepdim=True)

    def _sum(self, name: str) -> Tensor:
        if name not in self._change:
            self._change[name] = torch.zeros_like(self.state.shared[name], dtype=torch.float64)
        return self._change[name]
