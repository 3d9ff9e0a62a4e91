"""What a rule of the server may do, and how fedrec refuses the rest: alike in all engines."""

from dataclasses import replace

import pytest
import torch

from fedrec.errors import FederationError
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.federation import Federation
from fedrec.federation.model import Initial, Parameter, ServerRule
from fedrec.federation.model.parameters import given_table
from fedrec.methods.fedmf import FedMF
from tests.federations import clients_of, gentle, planted_blocks, settings_of

CLIENTS = clients_of(planted_blocks(users=6))
SETTINGS = settings_of("fedmf", *gentle("fedmf", "d=4", "local_epochs=1", "participation=0.5"))


def put(name, value_of):
    def finish(_rule, server):
        server.shared[name] = value_of(server.shared["Q"])

    return {"finish": finish}


def removes(_rule, server):
    del server.shared["Q"]


REFUSED = {
    "double": (put("Q", lambda q: q.double()), r"test_server_rules.py:\d+.*'Q' as numbers of torch.float64"),
    "half": (put("Q", lambda q: q.half()), r"has torch.float32.*value.to\(server.shared\['Q'\]\)"),
    "a shape": (put("Q", lambda q: q[:3]), r"'Q' the shape \(3, 4\), where it has"),
    "no tensor": (put("Q", lambda q: q.numpy()), "'Q' as ndarray. Give a tensor"),
    "an unknown name": (put("q", lambda q: q), "'q', which is no parameter of it. Did you mean 'Q'"),
    "a removal": ({"finish": removes}, "'Q' away, which clients and checkpoints need"),
    "one weight": ({"weights": lambda _rule, _sizes: torch.tensor(1.0)}, r"weights of the shape \(\)"),
    "no weights": ({"weights": lambda _rule, _sizes: None}, "weights of the shape NoneType"),
    "a client twice": ({"choose": lambda *_: torch.tensor([1, 1, 2])}, "each once"),
    "a client too many": ({"choose": lambda *_: torch.tensor([1, 6])}, "from 0 to 5"),
    "shares of clients": ({"choose": lambda *_: torch.tensor([0.5, 1.0])}, "vector of int64 numbers"),
}


@pytest.mark.parametrize("engine", ["loop", "batched", "fused"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_engines_would_compute_otherwise_is_refused(case, engine):
    words, said = REFUSED[case]

    class Method(FedMF):
        server_rule = type("Rule", (ServerRule,), words)

    federation = Federation(
        Method(SETTINGS, CLIENTS.items), CLIENTS, engine_named(engine, 2**30), SETTINGS, 0
    )
    with pytest.raises(FederationError, match=said):
        federation.train_round(1)


def test_what_a_rule_replaces_by_its_like_is_kept():
    class Method(FedMF):
        server_rule = type("Rule", (ServerRule,), put("Q", torch.zeros_like))

    federation = Federation(Method(SETTINGS, CLIENTS.items), CLIENTS, engine_named("loop", 0), SETTINGS, 0)
    federation.train_round(1)
    assert not federation.state.shared["Q"].any()


def test_two_uploads_into_one_parameter_are_refused():
    class Twice(FedMF):
        def local_round(self, client):
            super().local_round(client)
            client.upload("Q")

    federation = Federation(Twice(SETTINGS, CLIENTS.items), CLIENTS, engine_named("loop", 0), SETTINGS, 0)
    with pytest.raises(FederationError, match="'Q' and 'Q' are uploaded into 'Q' in one round"):
        federation.train_round(1)


def declaring(change):
    class Method(FedMF):
        def parameters(self):
            return change(super().parameters(), self.items)

    return Method


MISSPELT = {
    "a start": (
        lambda p, _: p | {"p": replace(p["p"], initial=Initial("gaussian", 1.0))},
        "start as 'gaussian'",
    ),
    "a combination": (lambda p, _: p | {"Q": replace(p["Q"], combine="median")}, "combined by 'median'"),
    "two beginnings": (
        lambda p, _: p | {"p": replace(p["p"], start="Q", reset_each_round=True)},
        "Set one of them",
    ),
    "what it copies": (
        lambda p, n: p | {"c": Parameter((n, 4), "local", Initial("constant", 0.0), table=True, start="q")},
        "'q', which is not a shared parameter. Did you mean 'Q'",
    ),
    "no file": (lambda p, n: p | {"f": given_table(n, None)}, "no setting names a file"),
}


@pytest.mark.parametrize("case", MISSPELT)
def test_parameters_are_spelt_right(case):
    change, said = MISSPELT[case]
    with pytest.raises(FederationError, match=said):
        Federation(
            declaring(change)(SETTINGS, CLIENTS.items), CLIENTS, engine_named("loop", 0), SETTINGS, 0
        ).train_round(1)


def test_who_works_after_aggregation_is_spelt_right():
    misspelt = type("Misspelt", (FedMF,), {"after_aggregation": lambda *_: "all"})
    with pytest.raises(FederationError, match=r"returns 'all'.*nobody, participants, everyone"):
        Federation(
            misspelt(SETTINGS, CLIENTS.items), CLIENTS, engine_named("loop", 0), SETTINGS, 0
        ).train_round(1)
