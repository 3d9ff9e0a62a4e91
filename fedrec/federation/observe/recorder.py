"""What a figure or an audit needs of a run besides its final state.

`vectors`    of some users, after each round, every parameter they keep that is no table
`uploads`    of some users, what they uploaded when they last took part, by the server's parameter
`traffic`    of some users (if none is named, of up to 64 spread over all), what passed between them and the
             server when they last took part: what it gave them, what they sent, and what they sent the time
             before; of what has one row per item
`weights`    among some users, the weights of personalised aggregation in each round
`abundance`  of every user, information abundance of its tables before and after the last local training

A watch looks and changes nothing; a run without one does not pay for it. What it saw goes into the state's
file below `extra/`: `extra/<kind>/<parameter>`, `extra/users/<kind>` (numbers in the dataset),
`extra/uploaded_in` (rounds, 0 for never), `extra/abundance/<parameter>/before` and `/after`, and
`extra/traffic/<parameter>/download`, `/upload`, `/earlier` and `/rounds` (of the upload and of the earlier
one, 0 for never). What there is nothing to tell of is NaN.

An upload is what reaches the server: clipped and noised, where clients do so before they send. A download is
the server's value of the parameter that is then sent; where clients send a table of their own, it is what the
server has at the place that table goes to.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fedrec.config.records import merged_records
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.federation.state.kept import Kept
from fedrec.federation.state.state import State

PREFIX = "extra/"
_SPREAD = 64
"""Clients whose traffic is kept where none is named."""
_NUMBERS = 1 << 25
"""Numbers that the uploads of all of them may have; products of items are many."""


@dataclass(frozen=True)
class _Uploads:
    """What watched clients send into one parameter in a round, on a leading axis of clients."""

    given: Tensor
    """What they were given before, in the run's precision."""
    value: Tensor
    """What the server had for each, to which changes are added; in double precision."""
    sent: Tensor
    """Who sent anything."""


@dataclass
class Watch:
    """Looks at the clients `who` (places, by kind) of a federation of `clients`, for `rounds`."""

    clients: Clients
    rounds: int
    who: Mapping[str, Tensor]
    _vectors: dict[str, list[Tensor]] = field(default_factory=dict)
    _weights: dict[str, list[Tensor]] = field(default_factory=dict)
    _seen: dict[str, Tensor] = field(default_factory=dict)
    """What is kept of uploads, traffic and abundance, by its name in the file."""
    _uploads: dict[str, _Uploads] = field(default_factory=dict)
    """The round's so far, by the server's parameter."""
    _sources: dict[str, str] = field(default_factory=dict)
    """The parameter that clients send into a parameter of the server."""
    _mixed: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, keeps: Iterable[str], clients: Clients, rounds: int) -> Self:
        """A watch by the texts of `--record`: `vectors=94,233`, `abundance`."""
        wanted = merged_records(keeps)
        places = {int(user): place for place, user in enumerate(clients.user.tolist())}
        who = {}
        for kind, users in wanted.items():
            for user in users:
                if user not in places:
                    raise ConfigurationError(
                        f"--record {kind}: there is no user {user} in this split. Users are numbered "
                        f"{min(places)} to {max(places)}; {len(places)} of them were split."
                    )
            who[kind] = torch.tensor(
                [places[user] for user in users], dtype=torch.int64, device=clients.device
            )
        return cls(clients, rounds, who)

    def start(self, state: State) -> None:
        """Get ready; raise `ConfigurationError` where a method has nothing of what is asked for."""
        if "weights" in self.who and not state.personal:
            raise ConfigurationError(
                "--record weights: this method's server makes no aggregate for each client, so that there "
                "are no weights to keep. Leave it out."
            )
        if "traffic" in self.who:
            sizes = [one.count for one in state.parameters.values() if _is_by_item(one)]
            if not sizes:
                raise ConfigurationError(
                    "--record traffic: no item table of this method ever leaves a client, so that there is "
                    "no traffic to keep. Leave it out."
                )
            if not len(self.who["traffic"]):
                self.who = {**self.who, "traffic": self._spread(min(_SPREAD, _NUMBERS // max(sizes)))}

    def accepted(self, name: str, into: str) -> None:
        """Clients send their `name` into the server's parameter `into`."""
        self._sources[into] = name

    def received(self, state: State, into: str, who: Tensor, change: Tensor) -> None:
        """Whole changes of a parameter, one per client on the leading axis."""
        if self._listens:
            chosen, place = self._chosen(who)
            self._sum(state, into, place).index_add_(0, place, change[chosen].double())

    def received_rows(self, state: State, into: str, who: Tensor, item: Tensor, change: Tensor) -> None:
        """Changes of rows of a table, each with its client and its item."""
        if self._listens:
            chosen, place = self._chosen(who)
            rows = self._sum(state, into, place)
            rows.index_put_((place, item[chosen]), change[chosen].double(), accumulate=True)

    def received_scaling(self, state: State, into: str, who: Tensor, factor: Tensor) -> None:
        """A table multiplied by 1 + `factor`, besides the changes of its rows."""
        if self._listens:
            chosen, place = self._chosen(who)
            change = factor[chosen].double()[:, None, None] * state.shared[into].double()
            self._sum(state, into, place).index_add_(0, place, change)

    def received_products(self, state: State, into: str, who: Tensor, tables: Tensor) -> None:
        """The products of every two rows of each client's table."""
        if self._listens:
            chosen, place = self._chosen(who)
            own = tables[chosen].double()
            change = own @ own.transpose(1, 2) - state.shared[into].double()
            self._sum(state, into, place).index_add_(0, place, change)

    def mixed(self, name: str, who: Tensor, weights: Tensor | tuple[Tensor, Tensor] | None) -> None:
        """The weight of each upload (column) in each client's aggregate (row)."""
        if "weights" not in self.who:
            return
        place = torch.full((len(self.clients),), -1, dtype=torch.int64, device=who.device)
        place[who] = torch.arange(len(who), device=who.device)
        rows = place[self.who["weights"]]
        if weights is None:
            found = (rows.unsqueeze(1) == rows).to(torch.get_default_dtype())
        elif isinstance(weights, tuple):
            found = weights[0][rows] @ weights[1][:, rows]
        else:
            found = weights[rows][:, rows]
        absent = rows < 0
        self._mixed[name] = found.masked_fill(absent.unsqueeze(1) | absent, torch.nan)

    def wants_training(self, round_: int) -> bool:
        """Whether `trained` is to be told of this round."""
        return "abundance" in self.who and round_ == self.rounds

    def trained(self, who: Tensor, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
        """Whole tables of some clients before and after local training, on a leading client axis."""
        for moment, tables in (("before", before), ("after", after)):
            for name, table in tables.items():
                key = f"abundance/{name}/{moment}"
                if key not in self._seen:
                    self._seen[key] = torch.full(
                        (len(self.clients),), torch.nan, dtype=torch.float64, device=who.device
                    )
                self._seen[key][who] = information_abundance(table)

    def end_round(self, state: State, round_: int, *, together: bool) -> None:
        """A round is over; `together` tells whether uploads of this round counted."""
        if "vectors" in self.who:
            for name, kept in state.kept.items():
                if not state.parameters[name].table:
                    self._vectors.setdefault(name, []).append(kept.whole(self.who["vectors"]).clone())
        if "weights" in self.who:
            count = len(self.who["weights"])
            nothing = torch.full((count, count), torch.nan, device=state.joined.device)
            for name in state.personal:
                self._weights.setdefault(name, []).append(self._mixed.get(name, nothing))
        for name, uploads in self._uploads.items() if together else ():
            if "uploads" in self.who:
                self._keep_uploads(name, self._of("uploads", uploads), round_)
            if "traffic" in self.who and _is_by_item(state.parameters[name]):
                self._keep_traffic(name, self._of("traffic", uploads), round_)
        self._uploads, self._mixed = {}, {}

    def tensors(self) -> dict[str, Tensor]:
        """Everything, by name, for a file."""
        found = {f"users/{kind}": self.clients.user[who] for kind, who in self.who.items() if len(who)}
        found |= {f"vectors/{name}": torch.stack(each) for name, each in self._vectors.items()}
        found |= {f"weights/{name}": torch.stack(each) for name, each in self._weights.items()}
        return {f"{PREFIX}{name}": value for name, value in (found | self._seen).items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take over what `tensors` once gave."""
        device = self.clients.device
        self._vectors, self._weights, self._seen = {}, {}, {}
        for key, value in extras(tensors).items():
            kind, _, name = key.partition("/")
            if kind in ("vectors", "weights"):
                goal = self._vectors if kind == "vectors" else self._weights
                goal[name] = list(value.to(device))
            elif kind != "users":
                self._seen[key] = value.to(device)

    @property
    def _listens(self) -> bool:
        """Whether uploads are looked at."""
        return "uploads" in self.who or "traffic" in self.who

    @property
    def _senders(self) -> Tensor:
        """The clients whose uploads are looked at, sorted."""
        each = [self.who[kind] for kind in ("uploads", "traffic") if kind in self.who]
        everyone: Tensor = torch.cat(each).unique()
        return everyone

    def _spread(self, count: int) -> Tensor:
        """Clients from the first to the last, `count` at most and one at least."""
        last, some = len(self.clients) - 1, max(1, min(count, len(self.clients)))
        places: Tensor = torch.linspace(0, last, some, dtype=torch.float64).long().unique()
        return places.to(self.clients.device)

    def _chosen(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """Which of `who` are watched, and their places among those that are."""
        place = torch.full((len(self.clients),), -1, dtype=torch.int64, device=who.device)
        watched = self._senders
        place[watched] = torch.arange(len(watched), device=who.device)
        chosen = place[who] >= 0
        return chosen, place[who[chosen]]

    def _sum(self, state: State, into: str, place: Tensor) -> Tensor:
        """Uploads so far: what the server had for each at first, to which changes are added."""
        if into not in self._uploads:
            watched, source = self._senders, self._sources[into]
            had = _of_each(state.shared[into] if into in state.shared else state.kept[into], watched)
            given = _of_each(state.shared[source], watched) if source in state.shared else had
            nobody = torch.zeros(len(watched), dtype=torch.bool, device=watched.device)
            self._uploads[into] = _Uploads(given.clone(), had.double().clone(), nobody)
        self._uploads[into].sent[place] = True
        return self._uploads[into].value

    def _of(self, kind: str, uploads: _Uploads) -> _Uploads:
        """Those of the clients of one kind, in the run's precision."""
        place = torch.searchsorted(self._senders, self.who[kind])
        value = uploads.value[place].to(uploads.given.dtype)
        return _Uploads(uploads.given[place], value, uploads.sent[place])

    def _keep_uploads(self, name: str, uploads: _Uploads, round_: int) -> None:
        sent = uploads.sent
        self._numbers(f"uploads/{name}", uploads.value)[sent] = uploads.value[sent]
        self._rounds("uploaded_in", sent)[sent] = round_

    def _keep_traffic(self, name: str, uploads: _Uploads, round_: int) -> None:
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
        """What is kept below `key`; of its shape, and NaN at first."""
        if key not in self._seen:
            self._seen[key] = torch.full_like(like, torch.nan)
        return self._seen[key]

    def _rounds(self, key: str, like: Tensor) -> Tensor:
        """Rounds kept below `key`; of its shape, and 0 at first."""
        if key not in self._seen:
            self._seen[key] = torch.zeros_like(like, dtype=torch.int64)
        return self._seen[key]


def _is_by_item(parameter: Parameter) -> bool:
    """Whether the server has a row of it for every item: of vectors, or of products with all items."""
    on_server = parameter.place in ("shared", "personal", "server")
    return on_server and (parameter.table or parameter.place == "server")


def _of_each(value: Tensor | Kept, who: Tensor) -> Tensor:
    """What is one for all or kept of each client, of the clients `who`."""
    return value.expand(len(who), *value.shape) if isinstance(value, Tensor) else value.whole(who)


def extras(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a watch put into a state's file, without its prefix."""
    return {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
