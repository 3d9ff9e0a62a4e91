"""FedRecon: user vectors rebuilt from nothing, items trained on the other half of the rows."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from fedrec.federation.draws import halves
from fedrec.federation.engines.engine import Engine
from fedrec.federation.program import trace_after_aggregation
from fedrec.random.purpose import Purpose
from tests.by_hand import (
    ENGINES,
    Asked,
    asked_of_a_client,
    clients_with,
    everyone,
    federation_of,
    give,
    kept,
    near,
)
from tests.federations import clients_of, planted_blocks

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
SMALL = ("d=2", "negatives=2", "batch_size=1000", "rate=0.5", "item_factor=2", "item_scale=one")


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


class Watching(Engine):
    """An engine that remembers its tasks."""

    name = "watching"

    def __init__(self, engine):
        self.engine = engine
        self.tasks = []

    def run(self, task):
        self.tasks.append(task)
        return self.engine.run(task)


def fitted(what, rate, epochs, item, label, **fixed):
    """`what` (by name: of Q, p and b) after whole-batch steps of SGD."""
    values = {name: value.clone().requires_grad_() for name, value in what.items()}
    rates = {"Q": 2 * rate, "p": rate, "b": rate}
    for _ in range(epochs):
        w = fixed | values
        score = (w["Q"][item] * w["p"]).sum(-1) + w.get("b", torch.zeros(1)).squeeze(-1)
        loss = functional.binary_cross_entropy_with_logits(score, label)
        found = torch.autograd.grad(loss, list(values.values()))
        values = {
            name: (value - rates[name] * gradient).detach().requires_grad_()
            for (name, value), gradient in zip(values.items(), found, strict=True)
        }
    return {name: value.detach() for name, value in values.items()}


def by_the_book(federation, table, round_, purpose=Purpose.NEGATIVES):
    """Each client's samples, and which of them are in its first and in its second half."""
    clients, seed = federation.clients, federation.seed
    for client in range(len(clients)):
        who = torch.tensor([client])
        samples = clients.samples(who, 2, seed, round_, purpose)
        first, second = halves(who, clients.sizes[who], seed, round_).repeat_interleave(3, dim=1)
        yield table if table.dim() == 2 else table[client], samples, first, second


def expected_round(federation, table, round_, *, split):
    """The tables clients upload: users rebuilt on the first half, items trained on the second."""
    start = {name: federation.state.initial[name] for name in ("p", "b") if name in federation.state.initial}
    for own, samples, first, second in by_the_book(federation, table, round_):
        if not split:
            first = second = torch.ones_like(first)
        item, label = samples.item, samples.label.to(torch.float64)
        user = fitted(start, 0.5, 5, item[first], label[first], Q=own)
        yield fitted({"Q": own}, 0.5, 1, item[second], label[second], **user)["Q"]


def expected_users(federation, table, round_):
    """What clients are scored with: rebuilt on all rows, with other negatives."""
    start = {name: federation.state.initial[name] for name in ("p", "b") if name in federation.state.initial}
    for own, samples, _, _ in by_the_book(federation, table, round_, Purpose.LATE_NEGATIVES):
        yield fitted(start, 0.5, 5, samples.item, samples.label.to(torch.float64), Q=own)


def test_the_user_vector_is_rebuilt_on_one_half_and_then_items_are_trained_on_the_other():
    federation = federation_of("fedrecon", clients_with([[0]], items=5), "item_factor=80")
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"p"}), ("fit", {"Q"}), ("upload", "Q", "Q")]
    assert asked.halves == ["first", "second"]
    (user,), (items,) = asked.steps
    assert user.rates == {"p": 0.1}
    # 0.1 x 80 x 5 items.
    assert items.rates == {"Q": pytest.approx(40.0)}
    assert asked.asked == (1, None)


def test_before_it_is_scored_a_user_vector_is_rebuilt_on_all_rows():
    federation = federation_of("fedrecon", clients_with([[0]], items=5))
    program, who = trace_after_aggregation(federation.method, 1)
    assert who == "everyone"
    asked = Asked(program)
    assert asked.events == [("fit", {"p"})]
    assert (asked.halves, asked.asked) == ([None], (5, None))


def test_without_a_split_both_steps_see_all_rows():
    asked = asked_of_a_client(federation_of("fedrecon", clients_with([[0]], items=5), "split=none"))
    assert asked.halves == [None, None]
    assert asked.events == [("fit", {"p"}), ("fit", {"Q"}), ("upload", "Q", "Q")]


@both_engines
def test_two_rounds_by_hand(engine):
    # One client, item 0 liked, item 1 drawn; its single row is in both halves.
    federation = federation_of(
        "fedrecon", clients_with([[0]], items=2), "d=1", "negatives=1", "rate=0.5", "item_factor=6",
        "item_scale=one", "rebuild_epochs=1", engine=engine,
    )  # fmt: skip
    give(federation, Q=[2.0, 1.0], p=0.3)

    def rebuilt(q):
        return 0.3 - 0.5 * ((sigmoid(q[0] * 0.3) - 1) * q[0] + sigmoid(q[1] * 0.3) * q[1]) / 2

    q = [2.0, 1.0]
    for round_ in (1, 2):
        federation.train_round(round_)
        p = rebuilt(q)
        q = [q[0] - 3 * (sigmoid(q[0] * p) - 1) * p / 2, q[1] - 3 * sigmoid(q[1] * p) * p / 2]
        assert federation.state.shared["Q"].flatten().tolist() == pytest.approx(q, rel=1e-13)
        # Every time from 0.3 on, whatever it was before.
        assert float(kept(federation, "p")) == pytest.approx(rebuilt(q), rel=1e-13)


@both_engines
@pytest.mark.parametrize("split", ["halves", "none"])
def test_rounds_of_clients_of_all_sizes_by_the_book(engine, split):
    # 6, 3 and 1 rows: 3, 1 and 1 of them in the second half.
    clients = clients_with([[0, 1, 2, 3, 4, 5], [6, 7, 8], [9]], items=14)
    federation = federation_of("fedrecon", clients, *SMALL, f"split={split}", engine=engine)
    weights = [3 / 5, 1 / 5, 1 / 5] if split == "halves" else [6 / 10, 3 / 10, 1 / 10]
    for round_ in (1, 2):
        before = federation.state.shared["Q"].clone()
        tables = expected_round(federation, before, round_, split=split == "halves")
        expected = sum(weight * table for weight, table in zip(weights, tables, strict=True))
        report = federation.train_round(round_)
        assert near(federation.state.shared["Q"], expected)
        users = expected_users(federation, federation.state.shared["Q"], round_)
        assert near(kept(federation, "p"), torch.stack([user["p"] for user in users]))
        assert (report.up, report.down) == (14 * 2, 14 * 2)


@both_engines
def test_items_move_where_the_second_half_has_samples_and_nowhere_else(engine):
    clients = clients_with([[0, 1, 2, 3, 4]], items=40)
    federation = federation_of("fedrecon", clients, *SMALL, engine=engine)
    before = federation.state.shared["Q"].clone()
    federation.train_round(1)
    moved = (federation.state.shared["Q"] != before).any(1).nonzero().flatten().tolist()
    ((_, samples, _, second),) = by_the_book(federation, before, 1)
    assert moved == samples.item[second].unique().tolist()
    # Two positives with two negatives each, none of which belongs to another positive here.
    assert len(moved) == 6
    assert sum(item < 5 for item in moved) == 2


def test_halves_are_disjoint_cover_all_rows_and_a_single_row_is_in_both():
    who, rows = torch.tensor([3, 4, 7, 9]), torch.tensor([5, 1, 8, 2])
    first, second = halves(who, rows, seed=0, round_=1)
    owner = torch.repeat_interleave(torch.arange(4), rows)
    assert (first | second).all()
    assert torch.equal(first & second, owner == 1)
    assert torch.bincount(owner[first]).tolist() == [3, 1, 4, 1]
    assert torch.bincount(owner[second]).tolist() == [2, 1, 4, 1]


def test_halves_are_dealt_out_anew_in_every_round_and_alike_for_a_client_alone():
    who, rows = torch.tensor([3, 4]), torch.tensor([20, 30])
    dealt = [tuple(halves(who, rows, seed=0, round_=round_)[0].tolist()) for round_ in range(1, 6)]
    assert len(set(dealt)) == 5
    alone = halves(torch.tensor([4]), torch.tensor([30]), seed=0, round_=2)
    assert torch.equal(alone, halves(who, rows, seed=0, round_=2)[:, 20:])
    # Not always the same row: each is in the first half about half of the time.
    often = torch.stack([halves(who, rows, 0, round_)[0] for round_ in range(400)]).double().mean(0)
    assert ((often > 0.4) & (often < 0.6)).all()


@both_engines
def test_everyone_is_rebuilt_from_training_rows_with_negatives_of_its_own(engine):
    clients = clients_of(planted_blocks(users=12))
    watching = Watching(engine)
    federation = federation_of("fedrecon", clients, "participation=0.5", engine=watching)
    federation.train_round(1)
    trained, scored = watching.tasks
    assert (len(trained.who), trained.after_aggregation) == (6, False)
    assert (len(scored.who), scored.after_aggregation) == (12, True)
    group = scored.samples.item.reshape(-1, 5)
    assert torch.equal(group[:, 0], clients.train_item)
    assert torch.equal(scored.samples.label.reshape(-1, 5)[:, 0], torch.ones(len(group)))
    assert int(scored.samples.label.sum()) == len(clients.train_item)
    # The clients that trained drew other negatives then.
    then = clients.samples(trained.who, 4, federation.seed, 1)
    assert torch.equal(then.item, trained.samples.item)
    place = torch.isin(torch.repeat_interleave(torch.arange(12), clients.sizes), trained.who)
    same = (group[place][:, 1:] == trained.samples.item.reshape(-1, 5)[:, 1:]).double().mean()
    assert same < 0.1


@both_engines
def test_what_is_held_out_does_not_matter(engine):
    clients = clients_of(planted_blocks(users=8))
    other = replace(
        clients, held_out={part: items.roll(1) for part, items in clients.held_out.items()}, candidates={}
    )
    one, two = (federation_of("fedrecon", each, "d=2", engine=engine) for each in (clients, other))
    for federation in (one, two):
        federation.train_round(1)
    assert torch.equal(kept(one, "p"), kept(two, "p"))
    assert torch.equal(one.state.shared["Q"], two.state.shared["Q"])


def test_clients_remember_nothing():
    """Whatever a client holds when a round begins, the round is the same."""
    clients = clients_with([[0, 1], [2, 3, 4]], items=9)
    one, two = (federation_of("fedrecon", clients, *SMALL) for _ in range(2))
    two.state.client_tensors["p"].put(torch.arange(2), torch.full((2, 1, 2), 7.0))
    for federation in (one, two):
        federation.train_round(1)
    assert torch.equal(one.state.shared["Q"], two.state.shared["Q"])
    assert torch.equal(kept(one, "p"), kept(two, "p"))


def test_user_vectors_start_small():
    federation = federation_of("fedrecon", clients_with([[0]], items=5), "d=400", "spread=0.01")
    assert float(federation.state.initial["p"].std()) == pytest.approx(0.01, rel=0.15)
    assert float(federation.state.initial["Q"].std()) == pytest.approx(1.0, rel=0.15)


def test_uploads_count_by_query_rows_unless_they_are_to_count_the_same():
    clients = clients_with([[0], [1, 2, 3, 4, 5]], items=9)
    rows = torch.tensor([1, 2, 5, 8])
    assert federation_of("fedrecon", clients).method.server.weights(rows).tolist() == [1, 1, 2, 4]
    assert federation_of("fedrecon", clients, "split=none").method.server.weights(rows).tolist() == [
        1,
        2,
        5,
        8,
    ]
    assert federation_of("fedrecon", clients).settings["weighting"] == "size"


@both_engines
def test_with_dual_personalisation_users_have_a_rebuilt_bias_and_their_own_table(engine):
    clients = clients_with([[0, 1, 2, 3], [6, 7]], items=14)
    federation = federation_of("fedrecon+dualper", clients, *SMALL, engine=engine)
    give(federation, b=0.25)
    for round_ in (1, 2):
        before = federation.state.shared["Q"].clone()
        tables = torch.stack(list(expected_round(federation, before, round_, split=True)))
        federation.train_round(round_)
        assert near(kept(federation, "Q"), tables)
        assert near(federation.state.shared["Q"], (2 * tables[0] + tables[1]) / 3)
        users = list(expected_users(federation, tables, round_))
        for name in ("p", "b"):
            assert near(kept(federation, name), torch.stack([user[name] for user in users])), name
    items = torch.arange(14).expand(2, -1)
    expected = (tables * kept(federation, "p")).sum(-1) + kept(federation, "b")[:, 0]
    assert near(federation.scores(everyone(federation), items), expected)


def test_with_dual_personalisation_the_bias_is_rebuilt_with_the_user_vector():
    federation = federation_of("fedrecon+dualper", clients_with([[0]], items=5))
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"p", "b"}), ("fit", {"Q"}), ("upload", "Q", "Q")]
    assert asked.halves == ["first", "second"]
