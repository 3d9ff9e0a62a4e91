"""What both engines hold to beyond the methods there are: optimisers that remember, and what may leave a client."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedrec.config.modules import method_names
from fedrec.errors import FederationError
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import GaussianMechanism, Step
from fedrec.federation.model.parameters import Initial, item_table, vector
from fedrec.federation.model.server_rule import ServerRule
from fedrec.federation.model.weights import dot, mean_entropy
from fedrec.federation.server.server import Server
from fedrec.methods.fedmf import FedMF
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, federation_of, kept, near
from tests.compositions import compositions
from tests.federations import METHODS, clients_of, method_of, planted_blocks, settings_of, values_of

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
LOOP, BATCHED = ENGINES
FEDERATED = [name for name in [*method_names(), *compositions(METHODS)] if method_of(name) is not None]


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
        guarded = Step({"Q": 0.5}, "sgd", gradient_noise={"Q": mechanism}, loss=self.shrunk)
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


class SupportsDP(FedMF):
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
            "'p' is private: it stays on the client and cannot be uploaded. A client may upload: Q, M.",
        ),
        (("p", "Q"), "'p' is private: it stays on the client"),
        (("M", None), "'M' is not on the server: 'M' cannot be uploaded into it."),
        (("Q", "p"), "'p' is not on the server: 'Q' cannot be uploaded into it."),
        (("Q", "M"), "'M' is not on the server"),
        (("Q", "elsewhere"), "'elsewhere' is not on the server"),
    ],
)
def test_what_must_stay_on_the_client_stays(engine, sent, said, monkeypatch):
    received = listen(monkeypatch)
    method = type("Sending", (SupportsDP,), {"sent": sent})
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
        "receive_active_rows",
        "receive_scaling",
        "receive_transformed",
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
    changes = ["local_epochs=1"] if "local_epochs" in settings_of(name) else []
    federation = federation_of(name, clients_with([[0], [1, 2]], items=8), *changes, engine=engine)
    report = federation.train_round(1)
    events = asked_of_a_client(federation).events
    uploads = [event[1:] for event in events if event[0] == "upload"]
    parameters = federation.state.parameters
    assert received == {goal for _, goal in uploads}
    assert all(parameters[goal].location in ("shared", "server", "personal") for _, goal in uploads)
    # What goes into two parameters is sent once.
    assert report.up == sum(parameters[goal].count for goal in dict(uploads).values())


ALL_ENGINES = ("loop", "batched", "fused")


def equal_to_the_loop(method, *changes, rounds=2, users=7, engines=("batched",)):
    """The loop's federation after some rounds, to which that of other engines is equal."""
    clients = clients_of(planted_blocks(users=users))
    loop = made_of(method, clients, *changes, engine=LOOP)
    reports = [loop.train_round(round_).loss for round_ in range(1, rounds + 1)]
    for name in engines:
        other = made_of(method, clients, *changes, engine=engine_named(name, 2**31))
        for round_, loss in enumerate(reports, 1):
            assert other.train_round(round_).loss == pytest.approx(loss, rel=1e-9, nan_ok=True)
        first, second = values_of(loop), values_of(other)
        assert first.keys() == second.keys()
        for key, value in first.items():
            assert near(value.double(), second[key].double(), within=1e-9), (name, key)
    return loop


class SumsOfSamples(FedMF):
    """A loss of everything that sums over samples."""

    def loss(self, w, batch):
        scores = self.score(w, batch.items)
        entropy = mean_entropy(scores, batch)
        likely = batch.sum(batch.softmax(scores) * batch.labels) - batch.logsumexp(2 * scores)
        return entropy - 0.1 * likely + batch.sum(scores.square()) / batch.size.squeeze(-1)


@pytest.mark.usefixtures("double_precision")
def test_sums_over_samples_equal_the_loop():
    equal_to_the_loop(SumsOfSamples, "batch_size=16", "optimiser=adam")


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("location", ["local", "private", "personal"])
def test_a_renewed_table_of_the_client_equals_the_loop(location):
    class Renewed(FedMF):
        def parameters(self):
            table = item_table(self.items, self.settings["d"], location, Initial("normal", 0.5))
            return super().parameters() | {"mine": replace(table, reset_each_round=True)}

        def score(self, w, items):
            return dot(w.Q[items] + w.mine[items], w.p)

        def local_round(self, client):
            rates = {"Q": 0.05, "p": 0.05, "mine": 0.1}
            self.fit(client, Step(rates, "sgd", weight_decay={"mine": 0.1}))
            client.upload("Q", *(["mine"] if location == "personal" else []))

    loop = equal_to_the_loop(Renewed, "batch_size=16", engines=("batched", "fused"))
    assert not near(kept(loop, "mine")[0], kept(loop, "mine")[1], within=1e-3)


def unused(**how):
    class Unused(FedMF):
        """Trains a table and a vector that its loss does not use."""

        def parameters(self):
            return super().parameters() | {
                "rest": item_table(self.items, 2, "local", Initial("normal", 0.5)),
                "head": vector(2, "private", Initial("normal", 0.5)),
            }

        def local_round(self, client):
            rates = {"Q": 0.05, "p": 0.05, "rest": 0.1, "head": 0.1}
            decay = {"rest": 0.3, "head": 0.3}
            self.fit(client, Step(rates, weight_decay=decay, **how))
            client.upload("Q")

    return Unused


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
@pytest.mark.parametrize("keep_state", [False, True])
def test_what_has_no_gradient_stays_and_takes_no_step(optimiser, keep_state):
    method = unused(optimiser=optimiser, keep_state=keep_state)
    loop = equal_to_the_loop(method, "batch_size=16", "local_epochs=2")
    for name in ("rest", "head"):
        assert torch.equal(kept(loop, name)[0], loop.state.initial[name])
    if optimiser == "adam" and keep_state:
        assert not loop.state.optimiser["rest/steps"].any()
        assert loop.state.optimiser["Q/steps"].any()


class WithoutTraining(FedMF):
    """Takes over the server's rows, and sends its user vector's table; nothing is trained."""

    def parameters(self):
        return super().parameters() | {
            "mine": item_table(self.items, self.settings["d"], "local", Initial("normal", 0.5))
        }

    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": 0.1}), epochs=0)
        client.rewrite("mine", lambda w, items: w.Q[items] * w.interactions)
        client.upload("mine", into="Q")


@pytest.mark.parametrize("name", ALL_ENGINES)
def test_a_round_without_training_has_no_loss_and_draws_nothing(name):
    clients, engine = clients_of(planted_blocks(users=5)), engine_named(name, 2**31)
    federation = made_of(
        WithoutTraining, clients, "participation=1", "aggregated=1", "weighting=size", engine=engine
    )
    before = federation.state.shared["Q"].clone()
    report = federation.train_round(1)
    assert math.isnan(report.loss)
    assert federation.negative_draws(1) == []
    sizes = clients.sizes.double()
    wanted = before.double() * (sizes.square().sum() / sizes.sum())
    assert near(federation.state.shared["Q"].double(), wanted, within=1e-4)
    trained = made_of(FedMF, clients_of(planted_blocks(users=5)), engine=LOOP)
    trained.train_round(1)
    assert len(trained.negative_draws(1)) == 1


@pytest.mark.parametrize("name", ALL_ENGINES)
def test_a_table_that_nothing_reads_is_not_looked_up(name, monkeypatch):
    class Idle(FedMF):
        def parameters(self):
            return super().parameters() | {"idle": item_table(self.items, 3, "local", Initial("normal", 0.5))}

    federation = made_of(Idle, clients_of(planted_blocks(users=5)), engine=engine_named(name, 2**31))
    read = []
    for word in ("whole", "rows", "put", "put_rows"):
        monkeypatch.setattr(
            federation.state.client_tensors["idle"], word, lambda *_, word=word: read.append(word)
        )
    federation.train_round(1)
    assert read == []


@pytest.mark.usefixtures("double_precision")
def test_what_a_client_has_of_a_parameter_of_the_server_is_what_it_downloaded():
    """It sends into its own `G`, and reads that for the first time later on."""

    class Late(FedMF):
        def parameters(self):
            table = item_table(self.items, self.settings["d"], "personal", Initial("normal", 0.5))
            own = replace(table, location="local")
            return super().parameters() | {"G": table, "mine": own}

        def local_round(self, client):
            rates = {"p": 0.1, "mine": 0.1}
            self.fit(
                client,
                Step(rates, "sgd"),
                loss=lambda w, batch: mean_entropy(self.mixed(w, "mine", batch), batch),
            )
            client.upload("mine", into="G")
            self.fit(
                client,
                Step(rates, "sgd"),
                loss=lambda w, batch: mean_entropy(self.mixed(w, "G", batch), batch),
            )

        def mixed(self, w, name, batch):
            return dot(w[name][batch.items] + w.mine[batch.items], w.p)

    equal_to_the_loop(Late)


@pytest.mark.usefixtures("double_precision")
def test_weights_of_a_mixture_may_have_another_precision():
    class Mixing(ServerRule):
        def mix(self, _name, uploads, _server):
            return torch.full((len(uploads), len(uploads)), 1 / len(uploads), dtype=torch.float32)

    class Mixed(FedMF):
        server_rule = Mixing

        def parameters(self):
            return super().parameters() | {
                "p": vector(self.settings["d"], "personal", Initial("normal", 0.5))
            }

        def local_round(self, client):
            super().local_round(client)
            client.upload("p")

    loop = equal_to_the_loop(Mixed, "participation=1", "aggregated=1")
    assert near(kept(loop, "p")[0], kept(loop, "p")[1])
