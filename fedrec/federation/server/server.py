"""The server, which combines uploads and sees no other client data."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial

import torch
from torch import Tensor

from fedrec.errors import FederationError
from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.model.client import Program, Upload, UploadTransform
from fedrec.federation.model.server_rule import Mixed, ServerRule, ServerSide
from fedrec.federation.observe.recorder import Recorder
from fedrec.federation.server.mixing import weighted_sums
from fedrec.federation.server.personal import PersonalTensor
from fedrec.federation.server.row_sums import add_rows, add_weighted_rows
from fedrec.federation.server.shared_values import SharedValues
from fedrec.federation.server.uploads import FlatUploads
from fedrec.federation.state.state import State
from fedrec.federation.table_rows import take_rows

UPLOADABLE = ("shared", "local", "scratch")
"""Locations of parameters that may be uploaded into any parameter of the server."""


@dataclass
class Server:
    """Collects the uploads of a round and forms the new values of shared and personal parameters.

    Uploads are changes: the client's value minus the server's value for it. `weight` (clients) is each
    client's share of the mean, 0 for clients that are not aggregated; shares add up to 1. Sums are in double
    precision, so neither the order of clients nor the size of blocks affects the result. If several processes
    train a federation, each has a server for its own clients; `communicator` then sums over all processes.
    """

    state: State
    weight: Tensor
    seed: int
    round_: int
    uploaded: dict[str, int] = field(default_factory=dict)
    """Number of elements that each client sends, by its parameter."""
    sources: dict[str, str] = field(default_factory=dict)
    """The clients' parameter, by the server's parameter into which it is uploaded."""
    closed: bool = False
    """Whether uploads have been aggregated."""
    recorder: Recorder | None = None
    """Observer of uploads, if any."""
    mixed: dict[str, Mixed] = field(default_factory=dict)
    """Weights of the mixtures of personal parameters, if a recorder needs them."""
    communicator: Communicator = SINGLE
    remote_clients: int = 0
    """Clients of other processes."""
    weighted: Tensor | None = None
    """The clients with a weight, if known, so that the CPU does not wait for a GPU."""
    _change: dict[str, Tensor] = field(default_factory=dict)
    _factor: dict[str, Tensor] = field(default_factory=dict)
    _counted: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def who(self) -> Tensor:
        """The clients of this process whose uploads are aggregated."""
        return self.weight.nonzero().squeeze(1) if self.weighted is None else self.weighted

    def side(self) -> ServerSide:
        """The part of the server that a rule may use."""
        return ServerSide(
            round_=self.round_,
            seed=self.seed,
            shared=SharedValues(self.state.shared),
            initial=self.state.initial,
            personal={
                name: PersonalTensor(self.state.client_tensors[name], self.clients, self.communicator)
                for name in self.state.personal
            },
            clients=self.clients,
            aggregated=self._aggregated,
        )

    @property
    def clients(self) -> int:
        """Number of clients of all processes."""
        return len(self.weight) + self.remote_clients

    def _aggregated(self) -> tuple[Tensor, Tensor]:
        """The clients of all processes whose uploads are aggregated, and their shares."""
        share = self.weight[self.who].to(torch.get_default_dtype())
        if self.communicator.size == 1:
            return self.who, share
        number = self.who + self.communicator.span(self.clients).start
        return self.communicator.all_gather(number), self.communicator.all_gather(share)

    def reference(self, into: str, who: Tensor) -> Tensor:
        """The server's values for some clients: (1, ...) or (clients, ...)."""
        if into in self.state.shared:
            return self.state.shared[into].unsqueeze(0)
        return self.state.client_tensors[into].whole(who)

    def receive_rows(self, into: str, who: Tensor, owner: Tensor, item: Tensor, change: Tensor) -> None:
        """Receive changed rows (rows, d) of a shared table, each with its `owner` in `who` and its item."""
        if self.recorder is not None:
            self._report(into, who[owner], lambda chosen: change[chosen].double(), item)
        share = self.weight[who]
        if self.state.parameters[into].combine == "mean":
            add_weighted_rows(self._sum(into), item, change, share, owner)
            return
        weight = self._row_weight(into, share[owner].unsqueeze(1), change)
        each = torch.arange(len(item), device=item.device)
        add_weighted_rows(self._sum(into), item, change, weight.squeeze(1), each)
        add_rows(self._counts(into), item, weight)

    def receive_active_rows(self, into: str, who: Tensor, owner: Tensor, item: Tensor, rows: Tensor) -> None:
        """Receive rows of a shared table by their new values; see `receive_rows`."""
        before = self.state.shared[into]
        if self.recorder is None and self.state.parameters[into].combine == "mean":
            add_weighted_rows(self._sum(into), item, rows, self.weight[who], owner, before)
        else:
            self.receive_rows(into, who, owner, item, rows - take_rows(before, item))

    def receive_scaling(self, into: str, who: Tensor, factor: Tensor) -> None:
        """Receive a shared table that each client multiplied by 1 + `factor` (clients)."""
        if self.state.parameters[into].combine != "mean":
            raise FederationError(
                f"every row of '{into}' decays (weight decay), so its uploads can only be combined by their "
                "mean. Set combine='mean', or train without weight decay."
            )
        before = self.state.shared[into]
        self._report(into, who, lambda chosen: factor[chosen].double()[:, None, None] * before.double())
        total = (factor.double() * self.weight[who]).sum()
        self._factor[into] = self._factor.get(into, torch.zeros_like(total)) + total

    def receive_transformed(self, into: str, who: Tensor, tables: Tensor, transform: UploadTransform) -> None:
        """Receive a function of each client's table (clients, items, d)."""
        before = self.state.shared[into].double()

        def change(chosen: Tensor) -> Tensor:
            return torch.stack([transform.of_one(table) for table in tables[chosen].double()]) - before

        self._report(into, who, change)
        weight = self.weight[who].to(tables.dtype)
        total = transform.weighted_sum(tables, weight)
        self._sum(into).add_(total.double() - weight.sum() * before)

    def receive(self, into: str, who: Tensor, change: Tensor) -> None:
        """Receive changes of a parameter (clients, ...)."""
        self._report(into, who, lambda chosen: change[chosen].double())
        if into not in self.state.shared:
            chosen = self.weight[who] > 0
            kept = self.state.client_tensors[into]
            kept.put(who[chosen], kept.whole(who[chosen]) + change[chosen])
        elif self.state.parameters[into].combine == "mean":
            self._sum(into).add_(weighted_sums(change, self.weight[who]))
        else:
            shares = self.weight[who].reshape(-1, *(1 for _ in change.shape[1:]))
            weight = self._row_weight(into, shares, change)
            self._sum(into).add_((change.double() * weight).sum(0))
            self._counted[into].add_(weight.sum(0))

    def receive_values(self, into: str, who: Tensor, values: Tensor) -> None:
        """Receive values of a parameter (clients, ...), without computing each client's change."""
        shared = into in self.state.shared
        if shared and self.state.parameters[into].combine != "mean":
            self.receive(into, who, values - self.reference(into, who))
            return

        def change(chosen: Tensor) -> Tensor:
            return values[chosen].double() - self.reference(into, who[chosen]).double()

        self._report(into, who, change)
        weight = self.weight[who]
        if shared:
            before = self.state.shared[into].double()
            self._sum(into).add_(weighted_sums(values, weight) - weight.sum() * before)
        else:
            sent = weight.nonzero().squeeze(1)
            aggregated = values if len(sent) == len(who) else values.index_select(0, sent)
            self.state.client_tensors[into].put(who[sent], aggregated)

    def aggregate(self, rule: ServerRule) -> None:
        """Replace shared parameters by the weighted mean of uploads, personal ones as `rule` mixes them."""
        self._all_reduce_sums()
        for name, change in self._change.items():
            before = self.state.shared[name]
            factor, counted = self._factor.get(name), self._counted.get(name)
            # A row that no client changed has no weight.
            mean = change if counted is None else change / torch.where(counted > 0, counted, 1.0)
            # The mean is in double precision.
            total = mean + before if factor is None else mean + before + factor * before.double()
            self.state.shared[name] = total.to(before.dtype)
        who = self.who
        self.state.held.zero_()
        if self.sources:
            self.state.held.index_fill_(0, who, True)
        for name in self.state.personal:
            if name in self.sources:
                self.state.client_tensors[name].modify(who, partial(self._mix, rule, name))
        self.closed = True

    def _mix(self, rule: ServerRule, name: str, flat: Tensor) -> None:
        """Replace each client's flat upload by its mixture of all uploads."""
        uploads = FlatUploads(flat, self.communicator)
        weights = rule.mix(name, uploads, self.side())
        if weights is None:
            return
        if self.recorder is not None:
            self.mixed[name] = weights
        uploads.mix(weights)

    def _all_reduce_sums(self) -> None:
        """Sum over the clients of all processes; some processes may have no upload."""
        if self.communicator.size == 1:
            return
        for name in self.sources:
            if name not in self.state.shared:
                continue
            self._change[name] = self.communicator.all_reduce(self._sum(name))
            if self.state.parameters[name].combine != "mean":
                self._counted[name] = self.communicator.all_reduce(self._counts(name))
            else:
                none = torch.zeros((), dtype=torch.float64, device=self.weight.device)
                self._factor[name] = self.communicator.all_reduce(self._factor.get(name, none))

    def accept(self, program: Program) -> None:
        """Register a program's uploads; raise `FederationError` unless each may leave the client."""
        for operation in program:
            if isinstance(operation, Upload):
                self._accept(operation.name, operation.into)

    def _accept(self, name: str, into: str) -> None:
        if self.closed:
            raise FederationError(
                f"'{name}' cannot be uploaded: the server has aggregated the round. Upload it in local_round."
            )
        location = {key: part.location for key, part in self.state.parameters.items()}
        if location[name] not in UPLOADABLE and not (location[name] == "personal" and into == name):
            free = [key for key, where in location.items() if where in UPLOADABLE]
            raise FederationError(
                f"'{name}' is {location[name]}: it stays on the client and cannot be uploaded. "
                f"A client may upload: {', '.join(free) or 'nothing'}."
            )
        if location.get(into) not in ("shared", "server", "personal"):
            raise FederationError(f"'{into}' is not on the server: '{name}' cannot be uploaded into it.")
        if into in self.sources:
            # The server would add them.
            raise FederationError(
                f"'{self.sources[into]}' and '{name}' are uploaded into '{into}' in one round. Upload one of "
                "them, once."
            )
        self.sources[into] = name
        self.uploaded[name] = self.state.parameters[into].count

    def _report(
        self, into: str, who: Tensor, change: Callable[[Tensor], Tensor], item: Tensor | None = None
    ) -> None:
        """Pass an upload to the recorder, which computes changes only of clients that it records."""
        if self.recorder is not None:
            self.recorder.record_upload(self.state, self.sources[into], into, who, change, item)

    def _row_weight(self, into: str, share: Tensor, change: Tensor) -> Tensor:
        """The weight of each changed row, or of whole changes; see `Parameter.combine`."""
        combine = self.state.parameters[into].combine
        if combine == "mean":
            return share
        self._counts(into)
        if combine == "touched":
            return share * (change != 0).any(-1, keepdim=True)
        return (share > 0) * change.double().abs().sum(-1, keepdim=True)

    def _counts(self, name: str) -> Tensor:
        if name not in self._counted:
            items = self.state.shared[name].shape[0]
            self._counted[name] = self.weight.new_zeros(items, 1)
        return self._counted[name]

    def _sum(self, name: str) -> Tensor:
        if name not in self._change:
            self._change[name] = torch.zeros_like(self.state.shared[name], dtype=torch.float64)
        return self._change[name]
