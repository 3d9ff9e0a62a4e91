"""Observer of a run: records for a figure or an audit, in addition to the final state.

- `vectors`: every parameter, except tables, that the named users keep, after each round.
- `uploads`: the last upload of each named user, by the server's parameter.
- `traffic`: download, upload and previous upload of each named user's last participation, for parameters
  with one row per item. If the option names no user, up to 64 users are recorded.
- `weights`: the weights of personalised aggregation among the named users, in each round.
- `abundance`: the information abundance of every user's tables before and after the last local training.

A recorder changes no number, and a run without one pays nothing for it. Its records go into the state's file
below `extra/`. An unknown number is NaN, and a round of 0 means never. The names are:

- `extra/<kind>/<parameter>`
- `extra/users/<kind>`: the users' numbers in the dataset
- `extra/uploaded_in`: the round of each upload
- `extra/abundance/<parameter>/before` and `/after`
- `extra/traffic/<parameter>/download`, `/upload` and `/earlier`
- `extra/traffic/<parameter>/rounds`: the rounds of the upload and of the earlier one

An upload is recorded as the server receives it, after the client's clipping and noise. A download is the
server's value of the parameter that the client then uploads. If clients upload a table of their own, the
download is the server's value of the parameter into which it goes.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import torch
from torch import Tensor

from fedrec.config.records import merged_records
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import SINGLE, Communicator, Tensors
from fedrec.federation.model.server_rule import Mixed
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.federation.observe.upload_log import UploadLog, is_by_item
from fedrec.federation.state.state import State

PREFIX = "extra/"
_SPREAD = 64
"""Most clients whose traffic is recorded if the option names none."""
_NUMBERS = 1 << 25
"""Most elements of the uploads of all these clients; a matrix of items x items has many."""


class Recorder:
    """Records the clients `who` (indices, by kind) of a federation, for `rounds`.

    Three events are reported to it: an upload, clients' tables before and after training, the end of a round.
    """

    def __init__(
        self,
        clients: Clients,
        rounds: int,
        who: Mapping[str, Tensor],
        weighed_users: Tensor,
        *,
        spreads: bool,
    ) -> None:
        """Take the recorded clients by kind; for `weights`, by their indices among those of all processes.

        `weighed_users` are the numbers in the dataset of the clients whose weights are recorded. With
        `spreads`, the recorder chooses the clients whose traffic is recorded.
        """
        self.clients = clients
        self.rounds = rounds
        self.who = who
        self._weighed_users = weighed_users
        self._spreads = spreads
        self._by_round: dict[str, list[Tensor]] = {}
        """Vectors and weights, one entry per round, by their name in the file."""
        self._abundance: dict[str, Tensor] = {}
        self._log = self._new_log()

    @classmethod
    def of(
        cls, records: Iterable[str], clients: Clients, rounds: int, communicator: Communicator = SINGLE
    ) -> Self:
        """Make a recorder from the texts of `--record`: `vectors=94,233`, `abundance`.

        If several processes train a run, each records its own clients. Every process records all weights.
        """
        users = communicator.all_gather(clients.user)
        index = {int(user): number for number, user in enumerate(users.tolist())}
        who, wanted = {}, merged_records(records)
        for kind, named in wanted.items():
            for user in named:
                if user not in index:
                    raise ConfigurationError(
                        f"--record {kind}: there is no user {user} in this split. Its {len(index)} users "
                        f"have numbers from {min(index)} to {max(index)}."
                    )
            chosen = torch.tensor([index[user] for user in named], dtype=torch.int64, device=clients.device)
            who[kind] = chosen if kind == "weights" else clients.local_index(chosen)
        weighed = users[who.get("weights", users[:0])]
        return cls(clients, rounds, who, weighed, spreads=wanted.get("traffic") == [])

    def start(self, state: State) -> None:
        """Prepare for a run; raise `ConfigurationError` if the method cannot give what `--record` names."""
        if "weights" in self.who and not state.personal:
            raise ConfigurationError(
                "--record weights: the server of this method makes no aggregate for each client, so there "
                "are no weights to record. Leave it out."
            )
        if "traffic" in self.who:
            sizes = [part.count for part in state.parameters.values() if is_by_item(part)]
            if not sizes:
                raise ConfigurationError(
                    "--record traffic: no item table of this method leaves a client, so there is "
                    "no traffic to record. Leave it out."
                )
            if self._spreads:
                spread = self._spread(min(_SPREAD, _NUMBERS // max(sizes)))
                self.who = {**self.who, "traffic": self.clients.local_index(spread)}
                self._log = self._new_log()

    def record_upload(
        self,
        state: State,
        source: str,
        into: str,
        who: Tensor,
        change: Callable[[Tensor], Tensor],
        item: Tensor | None = None,
    ) -> None:
        """Record that the clients `who` upload changes of their parameter `source` into the server's `into`.

        `change` takes a mask of clients and computes their changes in double precision. These are whole
        parameters (clients, ...), or with `item` one row each. Changes of a round add up.
        """
        if self._log is not None:
            self._log.record_upload(state, source, into, who, change, item)

    def expect_uploads(self, state: State, sources: Mapping[str, str]) -> None:
        """Prepare the records of a round, given the clients' parameter by the server's parameter.

        So each process has the same records, also if none of its own clients uploads.
        """
        nobody = torch.zeros(0, dtype=torch.int64, device=self.clients.device)
        for into, source in sources.items():
            self.record_upload(state, source, into, nobody, lambda chosen: chosen.double())

    def records_training(self, round_: int) -> bool:
        """Whether `record_training` must be called in this round."""
        return "abundance" in self.who and round_ == self.rounds

    def record_training(self, who: Tensor, before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> None:
        """Record whole tables (clients, items, d) of some clients before and after local training."""
        for moment, tables in (("before", before), ("after", after)):
            for name, table in tables.items():
                key = f"abundance/{name}/{moment}"
                if key not in self._abundance:
                    nobody = torch.full((len(self.clients),), torch.nan, dtype=torch.float64)
                    self._abundance[key] = nobody.to(who.device)
                self._abundance[key][who] = information_abundance(table)

    def end_round(
        self, state: State, round_: int, who: Tensor, mixed: Mapping[str, Mixed], *, aggregated: bool
    ) -> None:
        """End a round in which the server mixed the uploads of `who` by the weights `mixed`.

        `aggregated` says whether the server aggregated the uploads of this round.
        """
        if "vectors" in self.who:
            for name, kept in state.client_tensors.items():
                if not state.parameters[name].table:
                    self._append(f"vectors/{name}", kept.whole(self.who["vectors"]).clone())
        for name in state.personal if "weights" in self.who else ():
            self._append(f"weights/{name}", self._weights(who, mixed.get(name)))
        if self._log is not None:
            self._log.end_round(state, round_, aggregated=aggregated)

    def tensors(self) -> dict[str, Tensor]:
        """All records by name, for the state's file."""
        values = {f"users/{kind}": self._users(kind) for kind, who in self.who.items() if len(who)}
        values |= {key: torch.stack(each) for key, each in self._by_round.items()}
        values |= self._abundance | ({} if self._log is None else self._log.records)
        return {f"{PREFIX}{name}": value for name, value in values.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore from the result of `tensors()`."""
        self._by_round, self._abundance, self._log = {}, {}, self._new_log()
        stored = extras(tensors)
        for key, value in stored.items():
            kind, here = key.partition("/")[0], self._own(key, value, stored).to(self.clients.device)
            if kind in ("vectors", "weights"):
                self._by_round[key] = list(here)
            elif kind == "abundance":
                self._abundance[key] = here
            elif kind != "users" and self._log is not None:
                self._log.records[key] = here

    def _users(self, kind: str) -> Tensor:
        """The numbers in the dataset of the clients that this process records, of one kind."""
        return self._weighed_users if kind == "weights" else self.clients.user[self.who[kind]]

    def _own(self, key: str, value: Tensor, stored: Mapping[str, Tensor]) -> Tensor:
        """The part of the value stored under `key` that belongs to the users of this process."""
        kind, axis = _user_axis(key)
        if axis is None or not self.clients.remote_clients:
            return value
        chosen = torch.searchsorted(stored[f"users/{kind}"], self._users(kind).cpu())
        return value.index_select(axis, chosen)

    def _new_log(self) -> UploadLog | None:
        """A log of uploads, or None if the run records no uploads."""
        senders = {kind: who for kind, who in self.who.items() if kind in ("uploads", "traffic")}
        return UploadLog(len(self.clients), senders) if senders else None

    def _append(self, key: str, value: Tensor) -> None:
        self._by_round.setdefault(key, []).append(value)

    def _weights(self, who: Tensor, weights: Mixed | None) -> Tensor:
        """The weight of each recorded client's upload (column) in each recorded client's aggregate (row)."""
        recorded = self.who["weights"]
        if weights is None:
            return torch.full((len(recorded), len(recorded)), torch.nan, device=recorded.device)
        index = torch.full((self.clients.total_clients,), -1, dtype=torch.int64, device=who.device)
        index[who] = torch.arange(len(who), device=who.device)
        rows = index[recorded]
        left, right = weights if isinstance(weights, tuple) else (weights, None)
        chosen = left[rows][:, rows] if right is None else left[rows] @ right[:, rows]
        absent = rows < 0
        return chosen.masked_fill(absent.unsqueeze(1) | absent, torch.nan)

    def _spread(self, count: int) -> Tensor:
        """Clients at equal distances from the first to the last: at most `count`, at least one."""
        clients = self.clients.total_clients
        last, some = clients - 1, max(1, min(count, clients))
        spread: Tensor = torch.linspace(0, last, some, dtype=torch.float64).long().unique()
        return spread.to(self.clients.device)


def extras(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The records in a state file, by their names without the prefix."""
    return {name.removeprefix(PREFIX): value for name, value in tensors.items() if name.startswith(PREFIX)}


def merge_extras(parts: Sequence[Tensors], counts: Sequence[int]) -> dict[str, Tensor]:
    """Merge the records of several processes, given the number of clients of each process."""
    joined: dict[str, Tensor] = {}
    for key in dict.fromkeys(key for part in parts for key in extras(part)):
        name = f"{PREFIX}{key}"
        if key.startswith("abundance/"):
            unknown = (torch.full((count,), torch.nan, dtype=torch.float64) for count in counts)
            each = [part.get(name, nobody) for part, nobody in zip(parts, unknown, strict=True)]
            joined[name] = torch.cat(each)
            continue
        held = [part[name] for part in parts if name in part]
        _, axis = _user_axis(key)
        joined[name] = held[0] if axis is None else torch.cat(held, dim=axis)
    return joined


def _user_axis(key: str) -> tuple[str, int | None]:
    """The kind of a record, and its axis of recorded users; None if no axis differs between processes."""
    kind, _, rest = key.partition("/")
    if kind == "users":
        return rest, None if rest == "weights" else 0
    if kind == "uploaded_in":
        return "uploads", 0
    return kind, {"vectors": 1, "uploads": 0, "traffic": 0}.get(kind)
