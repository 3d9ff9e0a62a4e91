"""Log of uploads: `uploads` and `traffic` of some clients in a round."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from fedrec.federation.model.parameters import Parameter
from fedrec.federation.state.client_tensor import ClientTensor
from fedrec.federation.state.state import State


@dataclass(frozen=True)
class Sent:
    """Uploads of recorded clients into one parameter in a round: (clients, ...)."""

    given: Tensor
    """The download of each client, in the run's precision."""
    value: Tensor
    """The server's value for each client plus the uploaded changes, in double precision."""
    sent: Tensor
    """Mask of the clients that uploaded."""


@dataclass
class UploadLog:
    """Records the uploads of the clients `who` (indices by kind: `uploads`, `traffic`) of `clients`."""

    clients: int
    who: Mapping[str, Tensor]
    records: dict[str, Tensor] = field(default_factory=dict)
    """The records by their names in the state's file."""
    _round: dict[str, Sent] = field(default_factory=dict)
    """The uploads of the current round, by the server's parameter."""

    def record_upload(
        self,
        state: State,
        source: str,
        into: str,
        who: Tensor,
        change: Callable[[Tensor], Tensor],
        item: Tensor | None,
    ) -> None:
        """Add the changes that recorded clients upload; see `Recorder.record_upload`."""
        index = torch.full((self.clients,), -1, dtype=torch.int64, device=who.device)
        senders = self._senders
        index[senders] = torch.arange(len(senders), device=who.device)
        chosen = index[who] >= 0
        index = index[who[chosen]]
        if into not in self._round:
            self._round[into] = self._before(state, source, into)
        if not len(index):
            return
        total = self._round[into]
        total.sent[index] = True
        if item is None:
            total.value.index_add_(0, index, change(chosen))
        else:
            total.value.index_put_((index, item[chosen]), change(chosen), accumulate=True)

    def end_round(self, state: State, round_: int, *, aggregated: bool) -> None:
        """Record the uploads of the round, if the server aggregated them."""
        for name, sent in self._round.items() if aggregated else ():
            if "uploads" in self.who:
                self._record_uploads(name, self._of("uploads", sent), round_)
            if "traffic" in self.who and is_by_item(state.parameters[name]):
                self._record_traffic(name, self._of("traffic", sent), round_)
        self._round = {}

    @property
    def _senders(self) -> Tensor:
        """The clients whose uploads are recorded, sorted."""
        senders: Tensor = torch.cat(list(self.who.values())).unique()
        return senders

    def _before(self, state: State, source: str, into: str) -> Sent:
        """The server's values for each recorded client before the uploads of the round."""
        senders = self._senders
        had = _of_each(state.shared[into] if into in state.shared else state.client_tensors[into], senders)
        given = _of_each(state.shared[source], senders) if source in state.shared else had
        nobody = torch.zeros(len(senders), dtype=torch.bool, device=senders.device)
        return Sent(given.clone(), had.double().clone(), nobody)

    def _of(self, kind: str, sent: Sent) -> Sent:
        """The uploads of the clients of one kind, in the run's precision."""
        index = torch.searchsorted(self._senders, self.who[kind])
        return Sent(sent.given[index], sent.value[index].to(sent.given.dtype), sent.sent[index])

    def _record_uploads(self, name: str, uploads: Sent, round_: int) -> None:
        sent = uploads.sent
        self._numbers(f"uploads/{name}", uploads.value)[sent] = uploads.value[sent]
        self._rounds("uploaded_in", sent)[sent] = round_

    def _record_traffic(self, name: str, uploads: Sent, round_: int) -> None:
        sent = uploads.sent
        download, upload, earlier = (
            self._numbers(f"traffic/{name}/{part}", uploads.value)
            for part in ("download", "upload", "earlier")
        )
        earlier[sent] = upload[sent]
        download[sent], upload[sent] = uploads.given[sent], uploads.value[sent]
        rounds = self._rounds(f"traffic/{name}/rounds", sent.unsqueeze(1).expand(-1, 2))
        rounds[sent, 1] = rounds[sent, 0]
        rounds[sent, 0] = round_

    def _numbers(self, key: str, like: Tensor) -> Tensor:
        """The record of values named `key`, initially NaN."""
        if key not in self.records:
            self.records[key] = torch.full_like(like, torch.nan)
        return self.records[key]

    def _rounds(self, key: str, like: Tensor) -> Tensor:
        """The record of rounds named `key`, shaped like `like`, initially 0."""
        if key not in self.records:
            self.records[key] = torch.zeros_like(like, dtype=torch.int64)
        return self.records[key]


def is_by_item(parameter: Parameter) -> bool:
    """Whether the server has a row of the parameter for every item."""
    on_server = parameter.location in ("shared", "personal", "server")
    return on_server and (parameter.table or parameter.location == "server")


def _of_each(value: Tensor | ClientTensor, who: Tensor) -> Tensor:
    """The value of each of the clients `who`, from a shared or a per-client value: (clients, ...)."""
    return value.expand(len(who), *value.shape) if isinstance(value, Tensor) else value.whole(who)
