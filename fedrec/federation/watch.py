"""What a figure needs of a run besides its final state.

`vectors`    of some users, after each round, every parameter they keep that is no table
`uploads`    of some users, what they uploaded when they last took part, by the server's parameter
`weights`    among some users, the weights of personalised aggregation in each round
`abundance`  of every user, information abundance of its tables before and after the last local training

A watch looks and changes nothing; a run without one does not pay for it. What it saw goes into the state's
file below `extra/`: `extra/<kind>/<parameter>`, `extra/users/<kind>` (numbers in the dataset),
`extra/uploaded_in` (rounds, 0 for never) and `extra/abundance/<parameter>/before` and `/after`. What there is
nothing to tell of is NaN.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import torch
from torch import Tensor

from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.evaluation.spectrum import information_abundance
from fedrec.federation.clients import Clients
from fedrec.federation.state import State

KINDS = ("vectors", "uploads", "weights", "abundance")
PREFIX = "extra/"


@dataclass
class Watch:
    """Looks at the clients `who` (places, by kind) of a federation of `clients`, for `rounds`."""

    clients: Clients
    rounds: int
    who: Mapping[str, Tensor]
    _vectors: dict[str, list[Tensor]] = field(default_factory=dict)
    _weights: dict[str, list[Tensor]] = field(default_factory=dict)
    _seen: dict[str, Tensor] = field(default_factory=dict)
    """What is kept of uploads and abundance, by its name in the file."""
    _sent: dict[str, Tensor] = field(default_factory=dict)
    """Uploads of the round so far, and beside each whose they are."""
    _senders: dict[str, Tensor] = field(default_factory=dict)
    _mixed: dict[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, keeps: Iterable[str], clients: Clients, rounds: int) -> Self:
        """A watch by the texts of `--keep`: `vectors=94,233`, `abundance`."""
        wanted = merged_keeps(keeps)
        places = {int(user): place for place, user in enumerate(clients.user.tolist())}
        who = {}
        for kind, users in wanted.items():
            for user in users:
                if user not in places:
                    raise ConfigurationError(
                        f"--keep {kind}: there is no user {user} in this split. Users are numbered "
                        f"{min(places)} to {max(places)}; {len(places)} of them were split."
                    )
            who[kind] = torch.tensor(
                [places[user] for user in users], dtype=torch.int64, device=clients.device
            )
        return cls(clients, rounds, who)

    def check(self, state: State) -> None:
        """Raise `ConfigurationError` where a method has nothing of what is asked for."""
        if "weights" in self.who and not state.personal:
            raise ConfigurationError(
                "--keep weights: this method's server makes no aggregate for each client, so that there are "
                "no weights to keep. Leave it out."
            )

    def received(self, state: State, into: str, who: Tensor, change: Tensor) -> None:
        """Whole changes of a parameter, one per client on the leading axis."""
        if "uploads" in self.who:
            chosen, place = self._chosen(who)
            self._sum(state, into, place).index_add_(0, place, change[chosen].double())

    def received_rows(self, state: State, into: str, who: Tensor, item: Tensor, change: Tensor) -> None:
        """Changes of rows of a table, each with its client and its item."""
        if "uploads" in self.who:
            chosen, place = self._chosen(who)
            rows = self._sum(state, into, place)
            rows.index_put_((place, item[chosen]), change[chosen].double(), accumulate=True)

    def received_scaling(self, state: State, into: str, who: Tensor, factor: Tensor) -> None:
        """A table multiplied by 1 + `factor`, besides the changes of its rows."""
        if "uploads" in self.who:
            chosen, place = self._chosen(who)
            change = factor[chosen].double()[:, None, None] * state.shared[into].double()
            self._sum(state, into, place).index_add_(0, place, change)

    def received_products(self, state: State, into: str, who: Tensor, tables: Tensor) -> None:
        """The products of every two rows of each client's table."""
        if "uploads" in self.who:
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
        for name, sent in self._sent.items() if together else ():
            self._keep_upload(name, sent.to(state.initial[name].dtype), self._senders[name], round_)
        self._sent, self._senders, self._mixed = {}, {}, {}

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

    def _chosen(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """Which of `who` are watched, and their places among those that are."""
        place = torch.full((len(self.clients),), -1, dtype=torch.int64, device=who.device)
        watched = self.who["uploads"]
        place[watched] = torch.arange(len(watched), device=who.device)
        chosen = place[who] >= 0
        return chosen, place[who[chosen]]

    def _sum(self, state: State, into: str, place: Tensor) -> Tensor:
        """Uploads so far: what the server had for each at first, to which changes are added."""
        watched = self.who["uploads"]
        if into not in self._sent:
            shared = into in state.shared
            had = state.shared[into].unsqueeze(0) if shared else state.kept[into].whole(watched)
            self._sent[into] = had.double().expand(len(watched), *had.shape[1:]).clone()
            self._senders[into] = torch.zeros(len(watched), dtype=torch.bool, device=watched.device)
        self._senders[into][place] = True
        return self._sent[into]

    def _keep_upload(self, name: str, sent: Tensor, senders: Tensor, round_: int) -> None:
        key = f"uploads/{name}"
        if key not in self._seen:
            self._seen[key] = torch.full_like(sent, torch.nan)
        self._seen[key][senders] = sent[senders]
        if "uploaded_in" not in self._seen:
            self._seen["uploaded_in"] = torch.zeros(len(senders), dtype=torch.int64, device=senders.device)
        self._seen["uploaded_in"][senders] = round_


def merged_keeps(keeps: Iterable[str]) -> dict[str, list[int]]:
    """What texts such as `vectors=94,233` and `abundance` ask for: users by kind, sorted, each once."""
    found: dict[str, set[int]] = {}
    for text in keeps:
        kind, _, users = text.partition("=")
        if kind not in KINDS:
            raise ConfigurationError(
                f"--keep {text}: unknown kind '{kind}'.{did_you_mean(kind, KINDS)} There are: "
                f"{', '.join(KINDS)}."
            )
        try:
            listed = {int(user) for user in users.split(",")} if users else set()
        except ValueError:
            raise ConfigurationError(f"--keep {text}: users are numbers joined by commas.") from None
        if bool(listed) == (kind == "abundance"):
            raise ConfigurationError(
                f"--keep {text}: abundance is of every user, and takes no numbers."
                if listed
                else f"--keep {text}: name the users, for example {kind}=94,233."
            )
        found.setdefault(kind, set()).update(listed)
    return {kind: sorted(found[kind]) for kind in KINDS if kind in found}


def spelled_keeps(keeps: Mapping[str, Sequence[int]]) -> list[str]:
    """The texts that ask for users by kind, in one order."""
    return [
        kind + ("=" + ",".join(map(str, sorted(keeps[kind]))) if keeps[kind] else "")
        for kind in KINDS
        if kind in keeps
    ]


def extras(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """What a watch put into a state's file, without its prefix."""
    return {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}
