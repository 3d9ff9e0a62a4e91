"""Small federations for tests: planted blocks, random data, and what is trained on them, once for all tests."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from types import MappingProxyType

import numpy as np
import pytest
import torch
from torch import Tensor

from fedrec.config.document import read
from fedrec.config.methods import load_methods, resolve
from fedrec.config.protocol import Protocol
from fedrec.data.split import Split
from fedrec.data.temporal import split_by
from fedrec.federation.clients import Clients
from fedrec.federation.comparison import learnt_values as values_of
from fedrec.federation.comparison import relative_differences as apart
from fedrec.federation.federation import Federation
from fedrec.federation.learner import Learner
from fedrec.federation.model.method import Method
from fedrec.federation.model.server_rule import ServerSide
from fedrec.federation.server.personal import PersonalTensor
from fedrec.runs.registry import make_learner, make_method
from tests.engines import ENGINES, LOOP
from tests.made_data import ROOT, made_interactions

CPU = torch.device("cpu")
METHODS = load_methods(ROOT / "config/methods.yaml")
GENTLE = MappingProxyType(
    {
        "rate": 0.05, "item_factor": 1, "item_scale": "one", "item_rate": 1,
        "user_factor": 1, "adapter_rate": 0.01, "head_rate": 0.01, "align_rate": 0.002,
        "align_steps": 20,
    }
)  # fmt: skip
"""Rates at which rounding stays rounding: with the papers' hundreds a difference of 1e-16 grows to 1e-6. And as many
steps of a kind as show what they do: FedCIA's hundred towards the server's products are most of its time."""


def split_of(rows, items, protocol="clean", **changes) -> Split:
    # Not by what checks the file's schema: a machine with a GPU need not have it.
    entries = read(ROOT / "config/protocols.yaml").content
    known = {name: Protocol(name=name, **settings) for name, settings in entries.items()}
    rules = known[protocol] if protocol in known else _step_between(known, protocol)
    return split_by(made_interactions(rows, items=items), replace(rules, **changes))


def _step_between(known: Mapping[str, Protocol], name: str) -> Protocol:
    """A protocol that has no entry, such as `only-pool-fedem`."""
    from fedrec.config.protocol_file import protocol_named

    return protocol_named(known, name)


def planted_blocks(users=60, items=80, per_user=20, seed=0, **changes) -> Split:
    """Users of two kinds that only ever meet items of their own half; `per_user` or fewer each."""
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        half = items // 2
        count = per_user - user % 7
        own = rng.permutation(half)[:count] + half * (user % 2)
        rows += [(user, int(item), step) for step, item in enumerate(own)]
    return split_of(rows, items, candidates=15, **changes)


def uniform_noise(users=400, items=300, per_user=30, protocol="clean", candidates=99) -> Split:
    """Items drawn uniformly: nothing can be learnt about the held-out one."""
    rng = np.random.default_rng(1)
    rows = [(u, int(i), s) for u in range(users) for s, i in enumerate(rng.permutation(items)[:per_user])]
    return split_of(rows, items, protocol, candidates=candidates)


def planted_tastes(users=200, items=150, per_user=15, protocol="clean", candidates=49) -> Split:
    """Two kinds of users, each with favourites of its own: what others like tells of the held-out item."""
    rng = np.random.default_rng(1)
    favourites = [rng.permutation(items) for _ in range(2)]
    rows = []
    for user in range(users):
        liking = np.empty(items)
        liking[favourites[user % 2]] = 1 / np.arange(1, items + 1)
        own = rng.choice(items, per_user, replace=False, p=liking / liking.sum())
        rows += [(user, int(item), step) for step, item in enumerate(own)]
    return split_of(rows, items, protocol, candidates=candidates)


def clients_of(split: Split) -> Clients:
    return Clients.of_split(split, CPU)


def settings_of(method: str, *changes: str, paper: str | None = None) -> dict:
    return resolve(METHODS, method, paper, "made", changes)[0]


def chosen(name: str, values: Mapping[str, object]) -> list[str]:
    """Those of `values` that a method has settings for, as changes."""
    return [f"{key}={value}" for key, value in values.items() if key in settings_of(name)]


def applicable(name: str, *changes: str) -> list[str]:
    """Those of `changes` that a method has settings for: one that solves its round has none of training."""
    known = settings_of(name)
    return [change for change in changes if change.partition("=")[0] in known]


def gentle(name: str, *changes: str) -> tuple[str, ...]:
    """Changes to gentle rates, where a method has them, and then `changes`."""
    return *chosen(name, GENTLE), *changes


def method_of(name: str, *changes: str, items: int = 80) -> Method | None:
    """The federated method of a composition; None for one whose clients do not train."""
    return make_method(name, settings_of(name, *changes), items)


def learner_of(
    name: str,
    clients: Clients,
    *changes: str,
    engine: str = next(iter(ENGINES)),
    seed: int = 0,
    paper: str | None = None,
) -> Learner:
    """A composition before its first round, on an engine of `tests.engines` or the `loop`."""
    settings, held = settings_of(name, *changes, paper=paper), LOOP if engine == "loop" else ENGINES[engine]
    method = make_method(name, settings, clients.items)
    if method is None:
        return make_learner(name, clients, settings, seed, held.make())
    return Federation(method, clients, held.make(), settings, seed, held.dense_bytes)


@contextmanager
def precision(dtype: torch.dtype) -> Iterator[None]:
    """Floating point numbers are of this kind: in double precision a difference is a mistake, not rounding."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@dataclass(frozen=True)
class Trained:
    """What a learner knew after its last round. Tests share it, and change nothing."""

    values: Mapping[str, Tensor]
    """Every number that it stores, tables whole, and every round's report."""
    scores: Tensor
    """Of every item for every client."""
    training: Mapping[str, str]
    """Which fits were compiled, or why not; nothing from an engine that compiles none."""


@cache
def trained(
    name: str,
    *changes: str,
    engine: str = next(iter(ENGINES)),
    rounds: int = 2,
    seed: int = 0,
    users: int = 60,
    per_user: int = 20,
    dtype: torch.dtype = torch.float32,
) -> Trained:
    """A composition after some rounds on planted blocks: trained by the first test that asks."""
    with precision(dtype):
        clients = clients_of(planted_blocks(users=users, per_user=per_user))
        learner = learner_of(name, clients, *changes, engine=engine, seed=seed)
        reports = [learner.train_round(round_) for round_ in range(1, rounds + 1)]
        told = [[report.loss, report.clients, report.down, report.up] for report in reports]
        values = values_of(learner) | {"reports": torch.tensor(told)}
        items = torch.arange(clients.items).expand(len(clients), -1)
        scores = learner.scores(torch.arange(len(clients)), items)
        training = learner.engine.notes().get("training", {}) if isinstance(learner, Federation) else {}
    return Trained(MappingProxyType({key: value.clone() for key, value in values.items()}), scores, training)


def assert_same(first: Mapping[str, Tensor], second: Mapping[str, Tensor], relative: float = 0.0) -> None:
    """Equal up to a share of the largest number of each tensor."""
    for name, share in apart(first, second).items():
        assert share <= relative, name


def server_side(share, initial=None, shared=None, personal=None, round_=1) -> ServerSide:
    """The server of a made round, as a method sees it: all its clients are aggregated."""
    return ServerSide(
        round_=round_, seed=0, shared=shared or {}, initial=initial or {},
        personal={name: PersonalTensor(kept, len(share)) for name, kept in (personal or {}).items()},
        clients=len(share), aggregated=lambda: (torch.arange(len(share)), share),
    )  # fmt: skip


def dies_in_round(monkeypatch, number) -> None:
    """The next federation that trains fails in that round, as if killed; those after it do not."""
    train_round, done = Federation.train_round, []

    def dying(self, round_):
        if round_ == number and not done:
            done.append(round_)
            pytest.fail("killed")
        return train_round(self, round_)

    monkeypatch.setattr(Federation, "train_round", dying)


def met_by(clients: Clients) -> np.ndarray:
    """1 for the training items of each client (row), 0 for others."""
    met = np.zeros((len(clients), clients.items))
    for client, (first, last) in enumerate(pairwise(clients.start.tolist())):
        met[client, clients.train_item[first:last].numpy()] = 1
    return met


def all_scores(learner: Learner, clients: Clients) -> np.ndarray:
    """The scores of all items for every client."""
    return learner.scores(clients.everyone, clients.catalogue.expand(len(clients), -1)).detach().numpy()
