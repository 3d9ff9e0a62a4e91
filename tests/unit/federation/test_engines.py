"""What both engines hold to beyond the methods there are: optimisers that remember, and what may leave a client."""

import pytest
import torch
from torch.nn import functional

from fedrec.config.modules import method_names
from fedrec.errors import FederationError
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import GaussianMechanism, Step
from fedrec.federation.model.parameters import Initial, item_table, vector
from fedrec.federation.model.weights import dot, mean_entropy
from fedrec.federation.server.server import Server
from fedrec.methods.fedmf import FedMF
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, federation_of, kept, near
from tests.compositions import compositions
from tests.federations import METHODS, clients_of, planted_blocks, settings_of

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
LOOP, BATCHED = ENGINES
FEDERATED = [
    name
    for name in [*method_names(), *compositions(METHODS)]
    if name not in ("mf", "ncf", "lightgcn", "centrap", "popularity", "draw-counter")
]


def made_of(method, clients, *changes, engine):
    settings = settings_of("fedmf", *changes)
    return Federation(method(settings, clients.items), clients, engine, settings, seed=0)


class Remembering(FedMF):
    """Adam goes on from round to round, with all that the papers add to it."""

    def train(self, client):
        step = Step(
            {"Q": 0.05, "p": 0.05}, "adam", weight_decay={"Q": 0.01}, batch_decay=0.9, keep_state=True
        )
        client.fit(step, epochs=4, loss=self.loss, early_stop=0.03)


@pytest.mark.usefixtures("double_precision")
def test_an_optimiser_that_remembers_equals_the_loop():
    clients = clients_of(planted_blocks(users=14))
    changes = ("participation=0.5", "batch_size=16")
    loop, batched = (made_of(Remembering, clients, *changes, engine=engine) for engine in ENGINES)
    for round_ in (1, 2, 3):
        loop.train_round(round_)
        batched.train_round(round_)
    first, second = loop.tensors(), batched.tensors()
    assert first.keys() == second.keys()
    for name, value in first.items():
        assert near(value.double(), second[name].double(), within=1e-9), name
    steps = first["optimiser/Q/steps"]
    # Some never took part, some came more than once, and not all that came went on to the fourth epoch.
    assert (steps == 0).any()
    samples = 5 * clients.sizes
    assert (steps > 4 * -(-samples // 16)).any()
    assert (steps % (4 * -(-samples // 16)) != 0).any()


@both_engines
@pytest.mark.usefixtures("double_precision")
def test_an_optimiser_that_remembers_is_one_that_never_stopped(engine):
    """One client alone gets its own table back: three rounds are one run of Adam on changing samples."""

    class Plain(FedMF):
        def train(self, client):
            client.fit(Step({"Q": 0.05, "p": 0.1}, "adam", keep_state=True), epochs=2, loss=self.loss)

    clients = clients_with([[0, 1, 2]], items=9)
    federation = made_of(Plain, clients, "d=2", "batch_size=100", engine=engine)
    q, p = (federation.state.initial[name].clone().requires_grad_() for name in ("Q", "p"))
    adam = torch.optim.Adam([{"params": [q], "lr": 0.05}, {"params": [p], "lr": 0.1}])
    for round_ in (1, 2, 3):
        federation.train_round(round_)
        samples = clients.samples(torch.tensor([0]), 4, 0, round_)
        for _ in range(2):
            adam.zero_grad()
            score = (q[samples.item] * p).sum(-1)
            functional.binary_cross_entropy_with_logits(score, samples.label).backward()
            adam.step()
    assert near(federation.state.shared["Q"], q.detach())
    assert near(kept(federation, "p")[0], p.detach())
    assert federation.tensors()["optimiser/p/steps"].tolist() == [6]


class DecayingLater(FedMF):
    """What decays every row comes behind the upload, which has changes of a few rows alone."""

    def local_round(self, client):
        self.train(client)
        client.upload("Q")
        later = Step({"Q": 0.1, "p": 0.1}, "sgd", weight_decay={"Q": 0.5})
        client.fit(later, epochs=1, loss=self.loss)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("combine", ["mean", "touched"])
def test_an_upload_stays_as_it_is_whatever_decays_later(combine):
    clients = clients_of(planted_blocks(users=9))
    engines = (LOOP, BATCHED, engine_named("fused", 2**31))
    loop, *others = (
        made_of(DecayingLater, clients, f"combine={combine}", "rate=0.05", engine=engine)
        for engine in engines
    )
    for federation in (loop, *others):
        federation.train_round(1)
    for federation in others:
        assert near(federation.state.shared["Q"], loop.state.shared["Q"], within=1e-9)
        assert near(kept(federation, "p"), kept(loop, "p"), within=1e-9)


@both_engines
def test_what_an_optimiser_remembers_is_stored(engine):
    clients = clients_of(planted_blocks(users=6))
    whole, first, second = (
        made_of(Remembering, clients, "participation=0.5", engine=engine) for _ in range(3)
    )
    for round_ in (1, 2, 3, 4):
        whole.train_round(round_)
    first.train_round(1)
    first.train_round(2)
    second.load({key: value.clone() for key, value in first.tensors().items()})
    second.train_round(3)
    second.train_round(4)
    for key, value in whole.tensors().items():
        assert torch.equal(value, second.tensors()[key]), key


@pytest.mark.usefixtures("double_precision")
def test_vectors_may_remember_without_whole_tables():
    class Vectors(FedMF):
        def train(self, client):
            steps = Step({"p": 0.1}, "adam", keep_state=True), Step({"Q": 0.1}, "adam")
            client.fit(*steps, epochs=2, loss=self.loss)

    clients = clients_of(planted_blocks(users=6))
    loop, batched = (made_of(Vectors, clients, "participation=0.5", engine=engine) for engine in ENGINES)
    for round_ in (1, 2, 3):
        loop.train_round(round_)
        batched.train_round(round_)
    for key, value in loop.tensors().items():
        assert near(value.double(), batched.tensors()[key].double(), within=1e-10), key


class OwnGuardedLoss(FedMF):
    """A guarded step on a loss of its own, before one on the fit's."""

    def parameters(self):
        shift = vector(self.settings["d"], "private", Initial("constant", 0.1))
        return super().parameters() | {"c": shift}

    def shrunk(self, w, batch):
        return mean_entropy(dot(w.Q[batch.items], w.p + 3 * w.c), batch)

    def train(self, client):
        mechanism = GaussianMechanism(clip=0.2, multiplier=0.01)
        guarded = Step({"Q": 0.5}, "sgd", guarded={"Q": mechanism}, loss=self.shrunk)
        client.fit(guarded, Step({"p": 0.1}, "sgd"), epochs=2, loss=self.loss)


@pytest.mark.usefixtures("double_precision")
def test_a_guarded_step_with_a_loss_of_its_own_equals_the_loop():
    clients = clients_of(planted_blocks(users=5))
    loop, batched, other = (
        made_of(method, clients, "d=2", "batch_size=16", engine=engine)
        for method, engine in (
            (OwnGuardedLoss, LOOP),
            (OwnGuardedLoss, BATCHED),
            (type("Same", (OwnGuardedLoss,), {"shrunk": FedMF.loss}), BATCHED),
        )
    )
    for federation in (loop, batched, other):
        federation.train_round(1)
    assert near(loop.state.shared["Q"], batched.state.shared["Q"], within=1e-10)
    assert near(kept(loop, "p"), kept(batched, "p"), within=1e-10)
    # The loss of the step is not the loss of the fit.
    assert not near(other.state.shared["Q"], batched.state.shared["Q"], within=1e-3)


class Guarded(FedMF):
    """Has a part of every kind, and sends what `sent` says."""

    sent = ("p", None)

    def parameters(self):
        table = item_table(self.items, self.settings["d"], "scratch", Initial("constant", 0.0))
        return super().parameters() | {"M": table}

    def local_round(self, client):
        self.train(client)
        name, into = self.sent
        client.upload(name, into=into)


@both_engines
@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (
            ("p", None),
            "'p' is private: it stays on the client and cannot be uploaded. What may be uploaded: Q.",
        ),
        (("p", "Q"), "'p' is private: it stays on the client"),
        (("M", None), "'M' is scratch: it stays on the client"),
        (("M", "Q"), "'M' is scratch: it stays on the client"),
        (("Q", "p"), "'p' is not on the server: 'Q' cannot be uploaded into it."),
        (("Q", "M"), "'M' is not on the server"),
        (("Q", "elsewhere"), "'elsewhere' is not on the server"),
    ],
)
def test_what_must_stay_on_the_client_stays(engine, sent, said, monkeypatch):
    received = listen(monkeypatch)
    method = type("Sending", (Guarded,), {"sent": sent})
    federation = made_of(method, clients_with([[0], [1]], items=6), "d=2", engine=engine)
    with pytest.raises(FederationError) as error:
        federation.train_round(1)
    assert said in str(error.value)
    assert not received


def listen(monkeypatch):
    """The parameters of the server that anything was received for."""
    received = set()
    for name in (
        "receive",
        "receive_values",
        "receive_rows",
        "receive_held_rows",
        "receive_scaling",
        "receive_through",
    ):
        plain = getattr(Server, name)

        def heard(self, into, *arguments, plain=plain):
            received.add(into)
            return plain(self, into, *arguments)

        monkeypatch.setattr(Server, name, heard)
    return received


@both_engines
@pytest.mark.parametrize("name", FEDERATED)
def test_the_server_receives_what_the_method_sends_and_nothing_else(name, engine, monkeypatch):
    received = listen(monkeypatch)
    federation = federation_of(name, clients_with([[0], [1, 2]], items=8), "local_epochs=1", engine=engine)
    report = federation.train_round(1)
    events = asked_of_a_client(federation).events
    uploads = [event[1:] for event in events if event[0] == "upload"]
    parameters = federation.state.parameters
    assert received == {goal for _, goal in uploads}
    assert all(parameters[goal].location in ("shared", "server", "personal") for _, goal in uploads)
    # What goes into two parameters is sent once.
    assert report.up == sum(parameters[goal].count for goal in dict(uploads).values())
