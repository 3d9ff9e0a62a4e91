"""Small federations for tests: planted blocks, random data, and a round of training by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedrec.config.methods import load_methods, resolve
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.data.split import Split, make_split
from fedrec.federation.clients import Clients
from fedrec.federation.federation import Federation
from fedrec.federation.model.server_rule import ServerSide
from tests.conftest import ROOT, made_interactions

CPU = torch.device("cpu")
METHODS = load_methods(ROOT / "config/methods.yaml")


def split_of(rows, items, protocol="clean", **changes) -> Split:
    known = load_protocols(ROOT / "config/protocols.yaml")
    settings = replace(protocol_named(known, protocol), **changes)
    return make_split(made_interactions(rows, items=items), settings)


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


def server_side(share, initial=None, shared=None, personal=None, round_=1) -> ServerSide:
    """The server of a made round, as a method sees it: all its clients are aggregated."""
    return ServerSide(
        round_=round_, seed=0, shared=shared or {}, initial=initial or {}, personal=personal or {},
        clients=len(share), who=torch.arange(len(share)), share=share,
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
