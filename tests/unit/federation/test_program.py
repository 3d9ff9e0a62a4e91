"""A local round as data: what is recorded, what plug-ins make of it, and what follows from it."""

from dataclasses import replace

import pytest
import torch

from fedrec.config.methods import load_methods, resolve
from fedrec.errors import ConfigurationError, FederationError
from fedrec.federation.engines.engine import ENGINES as NAMED
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import Client, Fit, GaussianMechanism, Rewrite, Step, TableRewrite, Upload
from fedrec.federation.model.plugin import Plugin
from fedrec.federation.program import needs_of, shape_of, trace, trace_after_aggregation
from fedrec.methods.fedmf import FedMF
from fedrec.plan.fingerprint import PREFERRED_ENGINE
from fedrec.runs.registry import make_method
from tests.by_hand import ENGINES, clients_with, federation_of
from tests.conftest import ROOT
from tests.federations import server_side, settings_of

BATCHED = ENGINES[1]


def method_of(kind, *changes, items=12):
    return kind(settings_of("fedmf", *changes), items)


def made(name, *changes):
    return make_method(name, settings_of(name, *changes), 12)


def test_a_client_writes_down_what_it_is_asked_for():
    client, loss, rows = Client(3), object(), object()
    first, second = Step({"p": 0.1}, "sgd"), Step({"Q": 0.2}, "adam")
    client.fit(first, second, epochs=2, loss=loss, early_stop=0.1, samples="first")
    client.rewrite("Q", rows)
    client.upload("Q", "h")
    client.upload("p", into="P")
    assert client.round_ == 3
    assert client.program == (
        Fit((first, second), 2, loss, 0.1, "first"),
        Rewrite("Q", rows),
        Upload("Q", "Q"),
        Upload("h", "h"),
        Upload("p", "P"),
    )


def test_a_round_is_asked_for_once_however_many_clients_there_are():
    asked = []

    class Counting(FedMF):
        def local_round(self, client):
            asked.append(client.round_)
            super().local_round(client)

    clients, settings = clients_with([[0], [1], [2]], items=8), settings_of("fedmf", "d=2")
    for engine in ENGINES:
        federation = Federation(Counting(settings, 8), clients, engine, settings, seed=0)
        asked.clear()
        federation.train_round(1)
        federation.train_round(2)
        assert asked == [1, 2]


def test_nobody_works_after_aggregation_unless_the_method_says_who():
    assert trace_after_aggregation(method_of(FedMF), 1) == ((), "nobody")


def test_a_plug_in_that_changes_nothing_gives_the_backbones_program():
    class Nothing(Plugin):
        pass

    backbone = made("perfedrec")
    program = trace(Nothing(backbone, backbone.settings, 12), 1)
    plain = trace(backbone, 1)
    assert shape_of(program) == shape_of(plain)
    assert [type(operation) for operation in program] == [Rewrite, Fit, Upload, Upload]
    assert program[1].steps == plain[1].steps
    assert program[2:] == plain[2:]


def test_a_plug_in_may_transform_a_program_as_a_whole():
    class Twice(Plugin):
        def transform(self, program):
            return (program[0], *super().transform(program))

    backbone = made("fedmf")
    first, second, upload = trace(Twice(backbone, backbone.settings, 12), 1)
    assert isinstance(first, Fit)
    assert isinstance(second, Fit)
    assert upload == Upload("Q", "Q")


def test_a_plug_in_renames_what_the_backbones_server_sees():
    plugin, side = made("perfedrec+plgc"), []
    plugin.backbone.server.finish = side.append
    plugin.server.finish(server_side(torch.ones(1), shared={"Q": torch.zeros(2), "L": torch.ones(2)}))
    # PLGC's own table is L, and its stand-in on the server the backbone's Q.
    assert torch.equal(side[0].shared["Q"], torch.zeros(2))


class Trained(FedMF):
    """FedMF by a step of one's own."""

    how = Step({"Q": 0.1, "p": 0.1}, "adam")

    def local_round(self, client):
        client.fit(self.how, epochs=1, loss=self.loss)


@pytest.mark.parametrize(
    ("step", "whole"),
    [
        (Step({"Q": 0.1, "p": 0.1}, "adam"), False),
        (Step({"Q": 0.1}, "sgd", weight_decay={"Q": 0.1}), False),
        (Step({"Q": 0.1, "p": 0.1}, "adam", weight_decay={"p": 0.1}), False),
        (Step({"Q": 0.1, "p": 0.1}, "adam", weight_decay={"Q": 0.0}), False),
        (Step({"Q": 0.1, "p": 0.1}, "adam", weight_decay={"Q": 0.1}), True),
        (Step({"p": 0.1}, "adam", keep_state=True), False),
        (Step({"Q": 0.1}, "sgd", keep_state=True), False),
        (Step({"Q": 0.1}, "adam", keep_state=True), True),
        (Step({"Q": 0.1}, "sgd", gradient_noise={"Q": GaussianMechanism(1.0, 1.0)}), True),
    ],
)
def test_what_moves_every_row_needs_whole_tables(step, whole):
    method = method_of(type("Stepped", (Trained,), {"how": step}))
    assert needs_of(trace(method, 1), method).whole_tables == whole


def test_a_loss_that_asks_for_a_whole_table_needs_it():
    class Pulled(Trained):
        def loss(self, w, batch):
            return super().loss(w, batch) + w.Q.whole().square().sum((-1, -2))

    class OwnPull(Trained):
        how = replace(Trained.how, loss=lambda w, _batch: w.Q.whole().square().sum((-1, -2)))

    for kind, whole in ((Trained, False), (Pulled, True), (OwnPull, True)):
        method = method_of(kind)
        assert needs_of(trace(method, 1), method).whole_tables == whole


def test_sums_over_tables_and_rewrites_by_rows_need_no_whole_tables():
    for name in ("fedmf+plgc", "fedem[merge=dynamic]", "perfedrec", "pfedgraph"):
        method = made(name)
        assert not needs_of(trace(method, 1), method).whole_tables


def test_a_rewrite_of_a_whole_table_needs_it():
    class Halved(TableRewrite):
        def of_one(self, table, _server):
            return table / 2

        of_many = of_one

    method = method_of(FedMF)
    assert needs_of((Rewrite("Q", Halved()),), method).whole_tables
    assert not needs_of((Rewrite("Q", lambda w, items: w.Q[items]),), method).whole_tables


@pytest.mark.parametrize(
    ("name", "matrices"),
    [("fedmf", 0), ("fedncf", 0), ("colr", 0), ("fedmf+plgc", 0), ("fedmf+plgc[redundancy=feddecorr]", 0)],
)
def test_ordinary_losses_hold_no_matrix_of_pairs_of_samples(name, matrices):
    method = made(name)
    assert needs_of(trace(method, 1), method).square_matrices == matrices


def test_losses_that_look_at_pairs_of_samples_are_found():
    for redundancy in ("au", "duorec"):
        method = made(f"fedmf+plgc[redundancy={redundancy}]")
        # Likeness, its exponential or sum, and their gradients: four at the least.
        assert needs_of(trace(method, 1), method).square_matrices >= 4


def test_the_same_program_is_looked_at_once(monkeypatch):
    federation = federation_of("fedrap", clients_with([[0], [1]], items=8), "d=2")
    looked = []
    monkeypatch.setattr(
        "fedrec.federation.federation.needs_of", lambda *given: looked.append(1) or needs_of(*given)
    )
    for round_ in (1, 2, 3):
        federation.train_round(round_)
    assert len(looked) == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["Q", "p"])
def test_what_is_shared_and_what_is_no_table_cannot_be_rewritten(engine, name):
    class Rewriting(FedMF):
        def local_round(self, client):
            client.rewrite(name, lambda w, items: w.Q[items])

    settings = settings_of("fedmf", "d=2")
    federation = Federation(Rewriting(settings, 8), clients_with([[0]], items=8), engine, settings, seed=0)
    with pytest.raises(FederationError, match=f"'{name}' cannot be rewritten"):
        federation.train_round(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_is_uploaded_after_aggregation(engine):
    class Late(FedMF):
        def after_aggregation(self, client):
            client.upload("Q")
            return "everyone"

    settings = settings_of("fedmf", "d=2")
    federation = Federation(Late(settings, 8), clients_with([[0]], items=8), engine, settings, seed=0)
    with pytest.raises(FederationError, match="the server has aggregated the round"):
        federation.train_round(1)


def test_engines_go_by_name():
    for name in NAMED:
        assert engine_named(name, 2**20).name == name
    assert engine_named("auto", 2**20).name == PREFERRED_ENGINE
    with pytest.raises(ConfigurationError, match=r"unknown engine 'lop'. Did you mean 'loop'\?"):
        engine_named("lop", 2**20)


class Misspelt(FedMF):
    """Uploads what it does not have."""

    def local_round(self, client):
        client.upload("q")


def test_what_is_uploaded_must_be_a_parameter():
    method = Misspelt(resolve(load_methods(ROOT / "config/methods.yaml"), "fedmf", None, "any")[0], 8)
    with pytest.raises(
        FederationError, match=r"Misspelt uploads 'q', which is none of its parameters\. Did you"
    ):
        trace(method, 1)
