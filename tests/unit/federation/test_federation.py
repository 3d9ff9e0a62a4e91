"""The engine's pieces: draws, samples, parameters, the server's guard, memory, divergence, files."""

import pytest
import torch

from fedrec.config.methods import resolve
from fedrec.errors import (
    ConfigurationError,
    DivergenceError,
    FederationError,
    OutOfMemoryError,
    SplitError,
)
from fedrec.federation import draws
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model.parameters import Initial, Parameter, initial_values
from fedrec.federation.pairs import PairSet
from fedrec.federation.privacy.noise import laplace
from fedrec.federation.state.state import State
from fedrec.methods.fedmf import FedMF
from fedrec.random.purpose import Purpose
from fedrec.random.with_numpy import below, philox
from tests.federations import CPU, METHODS, clients_of, planted_blocks, settings_of, split_of

ENGINES = [LoopEngine(), BatchedEngine(2**30)]


@pytest.fixture(scope="module")
def clients():
    return clients_of(planted_blocks())


def federation(clients, engine, *changes, method=FedMF):
    settings = settings_of("fedmf", *changes)
    return Federation(method(settings, clients.items), clients, engine, settings, seed=0)


@pytest.mark.parametrize(("fraction", "count"), [(1.0, 60), (0.6, 36), (0.0, 1)])
def test_participants_are_a_random_share(fraction, count):
    users = torch.arange(60)
    chosen = draws.participants(users, fraction, 0, 1, Purpose.PARTICIPANTS)
    assert len(chosen) == len(chosen.unique()) == count
    assert torch.equal(chosen, chosen.sort().values)
    if 0 < fraction < 1:
        assert not torch.equal(chosen, draws.participants(users, fraction, 0, 2, Purpose.PARTICIPANTS))


def test_samples_are_the_positives_and_allowed_distinct_negatives(clients):
    everyone = torch.arange(len(clients))
    samples = clients.samples(everyone, 4, seed=0, round_=1)
    item, label = samples.item.reshape(-1, 5), samples.label.reshape(-1, 5)
    assert torch.equal(item[:, 0], clients.train_item)
    assert label[:, 0].eq(1).all()
    assert label[:, 1:].eq(0).all()
    owner = torch.repeat_interleave(everyone, clients.sizes)
    assert not clients.forbidden.holds(owner.unsqueeze(1), item[:, 1:]).any()
    assert all(len(set(row)) == 4 for row in item[:, 1:].tolist())


@pytest.mark.parametrize("count", [0, 1, 4, 7, 15])
def test_negatives_are_the_first_distinct_allowed_items_of_a_sequence(count):
    """By their definition, row by row; 15 of 20 items are all that the second client may draw."""
    items, forbidden = 20, [{0, 7}, {1, 2, 3, 5, 19}, set()]
    pairs = torch.tensor([(client, item) for client, own in enumerate(forbidden) for item in own])
    owner, place = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([0, 1, 0, 1, 0])
    drawn = draws.negatives(owner, place, PairSet.of(*pairs.T, 3, items), count, seed=9, round_=4)
    for client, row, found in zip(owner.tolist(), place.tolist(), drawn.tolist(), strict=True):
        expected, attempt = [], 0
        while len(expected) < count:
            words = philox((attempt * 2**20 + row, client, 4, int(Purpose.NEGATIVES)), 9)
            for item in below(words, items).tolist():
                if item not in forbidden[client] and item not in expected and len(expected) < count:
                    expected.append(item)
            attempt += 1
        assert found == expected


def test_a_client_can_be_replayed_alone(clients):
    together = clients.samples(torch.arange(len(clients)), 4, seed=3, round_=2)
    alone = clients.samples(torch.tensor([17]), 4, seed=3, round_=2)
    end = int(together.size[:18].sum())
    assert torch.equal(together.item[end - int(together.size[17]) : end], alone.item)
    order = draws.shuffled(torch.arange(len(clients)), together.size, 3, 2, 5)
    own = draws.shuffled(torch.tensor([17]), alone.size, 3, 2, 5)
    assert torch.equal(order[end - len(own) : end] - (end - len(own)), own)


def test_how_many_negatives_are_drawn_together_decides_nothing(clients, monkeypatch):
    together = clients.samples(torch.arange(len(clients)), 4, seed=3, round_=2)
    monkeypatch.setattr("fedrec.federation.clients.kernel_or_none", lambda *_: None)
    monkeypatch.setattr("fedrec.federation.clients._DRAWN_AT_ONCE", 7)
    pieces = clients.samples(torch.arange(len(clients)), 4, seed=3, round_=2)
    assert torch.equal(together.item, pieces.item)
    assert torch.equal(together.label, pieces.label)


@pytest.mark.parametrize(
    ("pool", "held_out", "candidates"),
    [
        ("exclude_all", False, True),
        ("exclude_train", True, True),
        ("exclude_train_and_candidates", False, False),
    ],
)
def test_pools_hold_what_their_names_say(pool, held_out, candidates):
    clients = clients_of(planted_blocks(negative_pool=pool))
    everyone = torch.arange(len(clients))
    owner = torch.repeat_interleave(everyone, clients.sizes)
    assert clients.forbidden.holds(owner, clients.train_item).all()
    for part in ("validation", "test"):
        assert clients.forbidden.holds(everyone, clients.held_out[part]).unique().tolist() == [not held_out]
        listed = clients.forbidden.holds(everyone.unsqueeze(1), clients.candidates[part])
        assert listed.unique().tolist() == [not candidates]


def test_a_pool_too_small_is_an_error():
    split = split_of([(0, item, item) for item in range(8)], items=12, candidates=2)
    with pytest.raises(SplitError, match=r"user 0 may draw only 6 items .* 7 distinct ones"):
        federation(clients_of(split), ENGINES[0], "negatives=7")


def test_initial_values_do_not_depend_on_anything_but_the_seed():
    parameters = {
        "a": Parameter((200, 50), "shared", Initial("normal", 2.0)),
        "b": Parameter((100, 100), "private", Initial("uniform", 0.5)),
        "c": Parameter((1, 3), "private", Initial("constant", 0.0)),
    }
    values = initial_values(parameters, 0, CPU)
    assert float(values["a"].std()) == pytest.approx(2.0, rel=0.03)
    assert float(values["a"].mean()) == pytest.approx(0.0, abs=0.06)
    assert float(values["b"].abs().max()) == pytest.approx(0.5, rel=0.01)
    assert values["c"].tolist() == [[0.0, 0.0, 0.0]]
    assert not torch.equal(values["a"], initial_values(parameters, 1, CPU)["a"])


class Leaky(FedMF):
    """Tries to send its user vector."""

    def local_round(self, client):
        self.train(client)
        client.upload("p")


@pytest.mark.parametrize("engine", ENGINES)
def test_private_parameters_cannot_reach_the_server(clients, engine):
    with pytest.raises(FederationError, match="'p' is private"):
        federation(clients, engine, "local_epochs=1", method=Leaky).train_round(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_noise_falls_on_the_whole_upload_and_on_nothing_else(clients, engine):
    changes = ("weighting=equal", "participation=1", "local_epochs=1")
    plain, noisy = (federation(clients, engine, *changes, ldp) for ldp in ("ldp=0", "ldp=2"))
    for one in (plain, noisy):
        one.train_round(1)
    added = noisy.state.shared["Q"] - plain.state.shared["Q"]
    drawn = laplace(torch.arange(len(clients)), added.numel(), 2.0, 0, 1)
    assert torch.allclose(added, drawn.mean(0).reshape(added.shape), atol=1e-5)
    everyone = torch.arange(len(clients))
    assert torch.equal(
        noisy.state.client_tensors["p"].whole(everyone), plain.state.client_tensors["p"].whole(everyone)
    )


class OwnTable(FedMF):
    """FedMF scored with the table each client trained last."""

    scored_with_own_copy = ("Q",)


def test_users_are_scored_with_the_newest_or_with_their_own_table(clients):
    own, newest = (federation(clients, ENGINES[1], "participation=1", method=m) for m in (OwnTable, FedMF))
    for one in (own, newest):
        one.train_round(1)
    assert torch.equal(own.state.shared["Q"], newest.state.shared["Q"])
    who, items = torch.tensor([4]), torch.arange(clients.items).unsqueeze(0)
    p, table = newest.state.client_tensors["p"].whole(who)[0], own.state.client_tensors["Q"].whole(who)[0]
    assert torch.allclose(newest.scores(who, items)[0], newest.state.shared["Q"] @ p[0], atol=1e-6)
    assert torch.allclose(own.scores(who, items)[0], table @ p[0], atol=1e-6)
    assert not torch.allclose(table, own.state.shared["Q"])


def test_own_tables_equal_the_loop_too(clients):
    loop, batched = (federation(clients, engine, method=OwnTable) for engine in ENGINES)
    for one in (loop, batched):
        one.train_round(1)
        one.train_round(2)
    assert torch.allclose(loop.tensors()["kept/Q"], batched.tensors()["kept/Q"], atol=1e-5)


class Decayed(FedMF):
    """Weight decay on the item table, which moves rows that hold no sample."""

    how = "sgd"

    def train(self, client):
        from fedrec.federation.model.client import Step

        step = Step({"Q": 0.1, "p": 0.1}, self.how, weight_decay={"Q": 0.1})
        client.fit(step, epochs=2, loss=self.loss)


class DecayedByAdam(Decayed):
    """The same with Adam, which has no closed form: all rows are held."""

    how = "adam"


class OwnDecayed(Decayed):
    """A kept copy shrinks as well."""

    scored_with_own_copy = ("Q",)


@pytest.mark.parametrize("method", [Decayed, DecayedByAdam, OwnDecayed])
def test_dense_terms_equal_the_loop(clients, method):
    loop, batched = (federation(clients, engine, "batch_size=16", method=method) for engine in ENGINES)
    for one in (loop, batched):
        one.train_round(1)
        one.train_round(2)
    for name, value in loop.tensors().items():
        assert torch.allclose(value.float(), batched.tensors()[name].float(), atol=1e-5)


class TwoSteps(FedMF):
    """Moves p, then Q on the loss computed anew."""

    def train(self, client):
        from fedrec.federation.model.client import Step

        client.fit(Step({"p": 0.1}, "sgd"), Step({"Q": 5.0}, "sgd"), epochs=2, loss=self.loss)


def test_two_steps_a_batch_equal_the_loop(clients):
    loop, batched = (federation(clients, engine, "batch_size=16", method=TwoSteps) for engine in ENGINES)
    for one in (loop, batched):
        one.train_round(1)
    for name, value in loop.tensors().items():
        assert torch.allclose(value, batched.tensors()[name], atol=1e-5)


def test_a_client_that_cannot_fit_is_named_with_the_numbers(clients):
    with pytest.raises(
        OutOfMemoryError, match=r"client \d+ alone needs about 80,784 bytes, but 10,000 bytes are"
    ):
        federation(clients, BatchedEngine(10_000)).train_round(1)


def test_a_device_that_runs_out_of_memory_gets_smaller_blocks(clients, caplog):
    whole = federation(clients, BatchedEngine(2**30))
    whole.train_round(1)

    class Tight(FedMF):
        def loss(self, w, batch):
            if batch.labels.dim() == 2 and len(batch.labels) > 10:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return super().loss(w, batch)

    tight = federation(clients, BatchedEngine(2**30), method=Tight)
    tight.train_round(1)
    assert "do not fit into memory together; fedrec trains them in two halves" in caplog.text
    for name, value in whole.tensors().items():
        assert torch.allclose(value, tight.tensors()[name], atol=1e-6)


@pytest.mark.parametrize("engine", ENGINES)
def test_divergence_names_round_client_and_parameter(clients, engine):
    diverging = federation(clients, engine, "optimiser=sgd", "rate=1e9", "local_epochs=3")
    with pytest.raises(DivergenceError, match=r"round \d, client \d+: training diverged; .*Q"):
        list(map(diverging.train_round, (1, 2, 3)))


def test_the_report_counts_what_travels(clients):
    report = federation(clients, ENGINES[0], "local_epochs=1", "participation=0.5").train_round(1)
    assert (report.clients, report.down, report.up) == (30, 80 * 16, 80 * 16)
    assert report.slowest is not None
    assert report.slowest > 0


def test_state_starts_the_same_for_everyone():
    state = State.of_method(FedMF(settings_of("fedmf"), 80), 5, 0, CPU)
    values = state.client_tensors["p"].whole(torch.arange(5))
    assert values.shape == (5, 1, 16)
    assert (values == values[0]).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["dd=3"], "fedmf has no setting 'dd'. Did you mean 'd'?"),
        (["d=0"], "d=0 is not allowed: size of a vector; integer from 1 to 4096"),
        (["d=1.5"], "d=1.5 is not of type integer"),
        (["optimiser=adamw"], "one of adam, sgd"),
        (["participation=2"], "number from 1e-06 to 1"),
        (["participation=0"], "above 0"),
        (["d"], "write name=value"),
    ],
)
def test_impossible_settings_are_refused(changes, said):
    with pytest.raises(ConfigurationError) as error:
        resolve(METHODS, "fedmf", None, "ml-100k", changes)
    assert said in str(error.value)


def test_settings_follow_the_paper_and_the_dataset():
    values, sources, paper = resolve(METHODS, "fedmf", "pfedrec", "lastfm-2k-a", ["d=8", "early_stop=null"])
    assert (values["rate"], values["d"], values["optimiser"], paper) == (0.05, 8, "sgd", "pfedrec")
    assert (sources["d"], sources["rate"]) == ("user", "paper")
    values, _, paper = resolve(METHODS, "fedmf", None, "ml-100k")
    assert (values["rate"], values["participation"], paper) == (0.01, 0.6, "pfedclr")
