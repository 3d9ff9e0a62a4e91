"""Histories in order of time: which items they are, and a sequential model that learns from them."""

import numpy as np
import pytest
import torch

from fedrec.errors import FederationError, FedrecError, SplitError
from fedrec.federation.federation import Federation
from fedrec.federation.model import (
    Batch,
    Client,
    Initial,
    Method,
    Parameter,
    Weights,
    dot,
    item_table,
    matrix,
    mean_entropy,
    transformed,
    vector,
)
from fedrec.federation.model.tables import PlainBatch
from tests.core import core_and
from tests.engines import ENGINES, LOOP
from tests.federations import apart, clients_of, planted_blocks, precision, settings_of, split_of, values_of

LENGTH = 4


class Sequential(Method):
    """One block of causal self-attention over the last items, as SASRec has it; the last place speaks."""

    def parameters(self) -> dict[str, Parameter]:
        d, start = self.settings["d"], Initial("normal", 0.3)
        tables = {name: item_table(self.items, d, "shared", start) for name in ("Q", "R")}
        layers = {name: matrix(d, d, "shared", start) for name in ("query", "key", "value")}
        return (
            tables | layers | {"place": vector(LENGTH * d, "shared", start), "p": vector(d, "private", start)}
        )

    def encoded(self, w: Weights, past) -> torch.Tensor:
        mask = past.mask.unsqueeze(-1)
        x = (w.Q[past.items] + w.place.unflatten(-1, (LENGTH, -1))) * mask
        query, key, value = (transformed(x, w[name]) for name in ("query", "key", "value"))
        likeness = query @ key.transpose(-1, -2) / x.shape[-1] ** 0.5
        later = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
        weights = likeness.masked_fill(later | (mask.transpose(-1, -2) == 0), -1e9).softmax(-1)
        return (x + weights @ value * mask)[..., -1, :] + 0.1 * w.p

    def score(self, w: Weights, items: torch.Tensor) -> torch.Tensor:
        return dot(w.R[items], self.encoded(w, w.history(LENGTH)))

    def loss(self, w: Weights, batch: Batch) -> torch.Tensor:
        return mean_entropy(dot(w.R[batch.items], self.encoded(w, batch.history(LENGTH))), batch)

    def local_round(self, client: Client) -> None:
        shared = [name for name, part in self.parameters().items() if part.location == "shared"]
        self.fit(client, self.step(client, dict.fromkeys([*shared, "p"], self.settings["rate"])))
        client.upload(*shared)


class Halved(Sequential):
    """Trained on half of the training items, whose histories are of all of them."""

    def local_round(self, client: Client) -> None:
        self.fit(client, self.step(client, {"Q": 0.1, "R": 0.1}), samples="second")
        client.upload("Q", "R")


class Leaking(Sequential):
    def loss(self, w: Weights, batch: Batch) -> torch.Tensor:
        return mean_entropy(self.score(w, batch.items), batch)


def federation_of(kind, clients, engine, **changes):
    settings = settings_of("fedmf", "d=6", "participation=1", "local_epochs=2", "batch_size=7") | changes
    held = LOOP if engine == "loop" else ENGINES[engine]
    method = kind(settings, clients.items)
    return Federation(method, clients, held.make(), settings, 0, held.dense_bytes)


def walks(users=60, items=40, per_user=10):
    """Users that go from item to item in one order that all share, each from a place of its own."""
    rng = np.random.default_rng(0)
    order = rng.permutation(items)
    rows = [
        (user, int(order[(first + step) % items]), step)
        for user, first in enumerate(rng.integers(0, items, users))
        for step in range(per_user - user % 3)
    ]
    return split_of(rows, items, candidates=15)


IN_CORE = [
    (Sequential, "adam", "fused"),
    (Sequential, "sgd", "batched"),
    (Sequential, "adam", "blocks"),
    (Halved, "adam", "fused"),
]
OTHERS = [
    (kind, optimiser, engine)
    for kind, optimiser in ((Sequential, "adam"), (Sequential, "sgd"), (Halved, "adam"))
    for engine in ("fused", "batched", "blocks")
    if (kind, optimiser, engine) not in IN_CORE
]


@pytest.mark.parametrize(("kind", "optimiser", "engine"), core_and(IN_CORE, OTHERS))
def test_a_sequential_model_trains_to_the_numbers_of_the_plain_loop(kind, optimiser, engine):
    with precision(torch.float64):
        clients = clients_of(planted_blocks(users=5, per_user=14))
        found = {}
        for name in ("loop", engine):
            federation = federation_of(kind, clients, name, optimiser=optimiser, rate=0.05)
            reports = [federation.train_round(round_).loss for round_ in (1, 2)]
            items = torch.arange(clients.items).expand(len(clients), -1)
            scores = federation.scores(torch.arange(len(clients)), items)
            found[name] = values_of(federation) | {"scores": scores, "losses": torch.tensor(reports)}
        assert max(apart(found["loop"], found[engine]).values()) < 1e-9
        assert float(found["loop"]["shared/Q"].std()) != pytest.approx(0.3, abs=1e-6)


def test_a_sequential_model_learns_the_order_that_popularity_does_not_know():
    clients = clients_of(walks())
    federation = federation_of(Sequential, clients, "batched", rate=0.02, d=16, local_epochs=3, batch_size=64)

    def found():
        items = torch.cat(
            (clients.held_out["validation"].unsqueeze(1), clients.candidates["validation"]), dim=1
        )
        scores = federation.scores(torch.arange(len(clients)), items)
        return float(((scores[:, 1:] >= scores[:, :1]).sum(1) < 3).double().mean())

    before = found()
    for round_ in range(1, 41):
        federation.train_round(round_)
    # Three of sixteen by chance, and by popularity too: all items are met as often.
    assert before < 0.45
    assert found() > 0.7


def test_fused_leaves_histories_to_batched_and_says_why():
    clients = clients_of(planted_blocks(users=5, per_user=14))
    federation = federation_of(Sequential, clients, "fused", rate=0.05)
    federation.train_round(1)
    (outcome,) = federation.engine.notes()["training"].values()
    assert "batch.history" in outcome


@pytest.mark.parametrize("engine", ["loop", "batched"])
def test_a_loss_cannot_ask_for_the_history_that_holds_its_positives(engine):
    clients = clients_of(planted_blocks(users=5, per_user=14))
    with pytest.raises(FederationError, match=r"batch\.history"):
        federation_of(Leaking, clients, engine, rate=0.05).train_round(1)


def seen(federation, who, length):
    past = federation.scoring_weights(torch.tensor(who)).history(length)
    return past.items, past.mask


def test_a_history_is_the_last_training_items_oldest_first_and_filled_up_at_its_beginning():
    rows = [(0, item, time) for time, item in enumerate([7, 3, 9, 1, 5, 2])] + [
        (1, item, 10 - time) for time, item in enumerate([4, 8, 6, 0])
    ]
    clients = clients_of(split_of(rows, 60, candidates=15))
    items, mask = seen(federation_of(Sequential, clients, "batched", rate=0.05), [0, 1], 3)
    assert items.shape == mask.shape == (2, 1, 3)
    # Of user 0 the last two, 5 and 2, are held out; of user 1, who went backwards, 8 and 4.
    assert items[0, 0].tolist() == [3, 9, 1]
    assert mask.squeeze(1).tolist() == [[1, 1, 1], [0, 1, 1]]
    assert items[1, 0, 1:].tolist() == [0, 6]


def test_every_sample_sees_what_came_before_its_positive_and_nothing_later():
    clients = clients_of(walks(users=6))
    met = []

    class Watched(Sequential):
        def loss(self, w: Weights, batch: Batch) -> torch.Tensor:
            if isinstance(batch, PlainBatch):
                past = batch.history(LENGTH)
                met.append((batch.index, batch.labels, past.items.index, past.mask))
            return super().loss(w, batch)

    federation = federation_of(Watched, clients, "loop", rate=0.05, batch_size=1000, local_epochs=1)
    federation.train_round(1)
    for user, (items, labels, past, mask) in enumerate(met[-len(clients) :]):
        order = clients.by_time[clients.start[user] : clients.start[user + 1]].tolist()
        positives = labels == 1
        assert sorted(items[positives].tolist()) == sorted(order)
        for item, before, known in zip(items[positives], past[positives], mask[positives], strict=True):
            turn = order.index(int(item))
            assert before[known == 1].tolist() == order[max(0, turn - LENGTH) : turn]
        # Negatives have the history of their positive: four of each.
        histories = [tuple(one) for one in ((past + 1) * mask).tolist()]
        assert {histories.count(one) for one in histories} == {5}


def test_a_federation_of_some_clients_has_their_histories():
    clients = clients_of(walks(users=9))
    some = clients.subset(torch.tensor([2, 5, 7]))
    for place, user in enumerate((2, 5, 7)):
        whole = clients.by_time[clients.start[user] : clients.start[user + 1]]
        assert some.by_time[some.start[place] : some.start[place + 1]].equal(whole)


def test_without_times_there_is_no_order_to_read():
    from dataclasses import replace

    from fedrec.data.split import make_split
    from tests.made_data import made_interactions

    known = walks()
    rows = [(user, item, 0) for user in range(5) for item in range(8)]
    split = make_split(replace(made_interactions(rows, items=60), timed=False), known.protocol)
    assert known.protocol.no_times == "random"
    with pytest.raises(SplitError, match="have no times"):
        split.turns()


def test_a_split_that_was_read_finds_its_order_in_the_interactions_beside_it(tmp_path):
    from fedrec.data.interactions import write_interactions
    from fedrec.data.split import make_split, read_split, write_split
    from tests.made_data import made_interactions

    rows = [(user, (user * 3 + step * 5) % 30, -step) for user in range(6) for step in range(6)]
    interactions = made_interactions(rows, items=60)
    split = make_split(interactions, walks().protocol)
    write_interactions(tmp_path / "interactions.parquet", interactions, {})
    (tmp_path / "clean").mkdir()
    write_split(split, tmp_path / "clean")
    read = read_split(tmp_path / "clean")
    assert read.turns().tolist() == split.turns().tolist()
    assert sorted(read.turns()[read.user == 2]) == list(range(6))
    (tmp_path / "interactions.parquet").unlink()
    with pytest.raises(FedrecError, match=r"interactions\.parquet"):
        read_split(tmp_path / "clean").turns()
