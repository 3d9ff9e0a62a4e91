"""FedCIA: products of item vectors go to the server, and tables follow everybody's."""

import pytest
import torch
from torch.nn import functional

from fedrec.federation.model.tables import PlainBatch, PlainTable, Values
from fedrec.federation.program import trace_after_aggregation
from fedrec.methods._math.products import Approach, Products
from tests.by_hand import (
    ENGINES,
    asked_of_a_client,
    clients_with,
    everyone,
    federation_of,
    kept,
    near,
)
from tests.federations import server_side

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
POSITIVES = [[0], [1, 2], [3, 4, 5]]
QUIET = ("noise=0", "d=2", "batch_size=1000", "local_epochs=1", "align_rate=0.1")


def federation_on(*changes, positives=POSITIVES, items=10, **others):
    return federation_of("fedcia", clients_with(positives, items), *QUIET, *changes, **others)


def products(tables):
    return tables @ tables.transpose(-1, -2)


@both_engines
@pytest.mark.parametrize(
    ("weighting", "shares"), [("equal", [1 / 3, 1 / 3, 1 / 3]), ("size", [1 / 6, 2 / 6, 3 / 6])]
)
def test_the_server_has_the_mean_of_everyones_products(engine, weighting, shares):
    """Without alignment clients keep the very tables whose products they sent."""
    federation = federation_on("align_steps=0", f"weighting={weighting}", "rate=0.3", engine=engine)
    for round_ in (1, 2):
        federation.train_round(round_)
        each = products(kept(federation, "Q"))
        assert near(federation.state.shared["S"], torch.tensordot(torch.tensor(shares), each, 1))
    assert not near(each[0], each[1], within=1e-2)


@both_engines
def test_only_products_leave_the_client(engine):
    federation = federation_on(engine=engine)
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"Q", "p"}), ("upload", "Q", "S")]
    assert isinstance(asked.program[-1].transform, Products)
    report = federation.train_round(1)
    assert (report.up, report.down) == (10 * 10, 10 * 10)
    assert federation.state.shared.keys() == {"S"}
    locations = {name: part.location for name, part in federation.state.parameters.items()}
    assert locations == {"Q": "local", "p": "private", "S": "server"}


def test_what_is_asked_of_a_client_when_the_server_has_answered():
    federation = federation_on("align_steps=7", "align_rate=0.2", "align_decay=0.03", "aggregate_from=3")
    # There is nothing to approach before uploads are aggregated.
    assert trace_after_aggregation(federation.method, 2) == ((), "nobody")
    (rewrite,), who = trace_after_aggregation(federation.method, 3)
    assert who == "participants"
    assert rewrite.name == "Q"
    goal = rewrite.rows
    assert isinstance(goal, Approach)
    assert (goal.goal, goal.steps, goal.rate, goal.decay) == ("S", 7, 0.2, 0.03)


@both_engines
def test_tables_are_aligned_and_users_scored_with_what_comes_out(engine):
    common = ("rate=0.3", "align_rate=0.05", "align_decay=0.01")
    trained = federation_on(*common, "align_steps=0", engine=engine)
    federation = federation_on(*common, "align_steps=4", engine=engine)
    for one in (trained, federation):
        one.train_round(1)
    goal = trained.state.shared["S"]
    assert near(federation.state.shared["S"], goal)
    tables = []
    for table in kept(trained, "Q"):
        own = table.clone().requires_grad_()
        sgd = torch.optim.SGD([own], lr=0.05, weight_decay=0.01)
        for _ in range(4):
            sgd.zero_grad()
            (own @ own.T - goal).norm().backward()
            sgd.step()
        tables.append(own.detach())
    expected = torch.stack(tables)
    assert near(kept(federation, "Q"), expected, within=1e-10)
    assert near(kept(federation, "p"), kept(trained, "p"))
    items = torch.arange(10).expand(3, -1)
    scores = (expected * kept(trained, "p")).sum(-1)
    assert near(federation.scores(everyone(federation), items), scores, within=1e-10)


@both_engines
def test_alignment_brings_tables_together(engine):
    federation = federation_on("rate=0.3", "align_rate=0.01", engine=engine, seed=1)
    apart = federation_on("rate=0.3", "align_steps=0", engine=engine, seed=1)
    for one in (federation, apart):
        one.train_round(1)
    distance = [(products(kept(one, "Q")) - one.state.shared["S"]).norm() for one in (federation, apart)]
    assert distance[0] < 0.5 * distance[1]


@both_engines
def test_only_who_took_part_is_aligned(engine):
    positives = [[0], [1, 2], [3, 4, 5], [6]]
    federation = federation_on("participation=0.5", positives=positives, engine=engine)
    before = kept(federation, "Q")
    assert federation.train_round(1).clients == 2
    moved = (kept(federation, "Q") != before).flatten(1).any(1)
    assert torch.equal(moved, federation.state.joined)
    assert moved.sum() == 2
    # Every row of theirs, sampled or not.
    assert (kept(federation, "Q") != before)[moved].any(2).all()


@both_engines
def test_before_uploads_are_aggregated_clients_train_alone(engine):
    alone = federation_on("align_steps=0", engine=engine)
    federation = federation_on("aggregate_from=3", engine=engine)
    for round_ in (1, 2):
        alone.train_round(round_)
        assert federation.train_round(round_).up == 0
    assert near(kept(federation, "Q"), kept(alone, "Q"))
    federation.train_round(3)
    alone.train_round(3)
    assert not near(kept(federation, "Q"), kept(alone, "Q"), within=1e-2)
    assert near(federation.state.shared["S"], products(kept(alone, "Q")).mean(0))


@both_engines
@pytest.mark.parametrize("state", ["kept", "fresh"])
def test_adam_goes_on_from_round_to_round_or_begins_anew(engine, state):
    """One client; nothing aligns it, so three rounds are one run on changing samples."""
    clients = clients_with([[0, 1, 2]], items=9)
    changes = (*QUIET, "align_steps=0", "rate=0.05", "item_factor=2", "local_epochs=2", f"adam_state={state}")
    federation = federation_of("fedcia", clients, *changes, engine=engine)
    q, p = (federation.state.initial[name].clone().requires_grad_() for name in ("Q", "p"))
    for round_ in (1, 2, 3):
        federation.train_round(round_)
        if round_ == 1 or state == "fresh":
            adam = torch.optim.Adam([{"params": [q], "lr": 0.1}, {"params": [p], "lr": 0.05}])
        samples = clients.samples(torch.tensor([0]), 4, 0, round_)
        for _ in range(2):
            adam.zero_grad()
            score = (q[samples.item] * p).sum(-1)
            functional.binary_cross_entropy_with_logits(score, samples.label).backward()
            adam.step()
    assert near(kept(federation, "Q")[0], q.detach(), within=1e-10)
    assert near(kept(federation, "p")[0], p.detach(), within=1e-10)
    steps = {key: value.tolist() for key, value in federation.tensors().items() if key.endswith("/steps")}
    assert steps == ({"optimiser/Q/steps": [6], "optimiser/p/steps": [6]} if state == "kept" else {})


@pytest.mark.parametrize("share", [[0.25] * 4, [0.5, 0.3, 0.2], [1.0]])
def test_the_noise_is_as_wide_as_the_mean_of_everyones(share):
    """A Laplace number of scale b has variance 2 b^2, and shares of independent ones add up by squares."""
    method = federation_on("noise=0.2").method
    share, start = torch.tensor(share), torch.full((300, 300), 7.0)
    server = server_side(share, shared={"S": start})
    method.server.finish(server)
    noise = server.shared["S"] - start
    expected = 0.2 * (2 * share.square().sum()).sqrt()
    # 90,000 draws: a standard error of 0.24 % of the deviation.
    assert float(noise.std()) == pytest.approx(float(expected), rel=0.01)
    assert abs(float(noise.mean())) < 5 * float(expected) / 300
    # Every number has noise of its own, also beside its mirror image.
    assert len(noise.unique()) > 80_000
    again, next_one = (server_side(share, shared={"S": start}, round_=round_) for round_ in (1, 2))
    for one in (again, next_one):
        method.server.finish(one)
    assert torch.equal(again.shared["S"], server.shared["S"])
    assert not near(next_one.shared["S"], server.shared["S"], within=1e-3)


@both_engines
def test_the_noise_goes_to_the_clients_too(engine):
    quiet, loud = (federation_on(f"noise={noise}", "align_steps=1", engine=engine) for noise in (0, 0.5))
    for one in (quiet, loud):
        one.train_round(1)
    assert not near(loud.state.shared["S"], loud.state.shared["S"].T, within=1e-2)
    assert not near(kept(loud, "Q"), kept(quiet, "Q"), within=1e-3)


def test_fitting_dimensions_by_hand():
    w = Values(Q=PlainTable(torch.tensor([[2.0, 1.0], [1.0, -1.0]])), p=torch.tensor([[0.5, 3.0]]))
    batch = PlainBatch(torch.tensor([0, 1]), torch.tensor([1.0, 0.0]))
    # Products (1, 3) shall be (1, 1), and (0.5, -3) shall be 0: squares (0, 4) and (0.25, 9).
    method = federation_on("fitting=dimensions").method
    assert float(method.loss(w, batch)) == pytest.approx((2 + 4.625) / 2)
    # The common protocol: logits 4 and -2.5.
    entropy = functional.binary_cross_entropy_with_logits(torch.tensor([4.0, -2.5]), batch.labels)
    assert float(federation_on().method.loss(w, batch)) == pytest.approx(float(entropy))


@both_engines
def test_dimensions_are_what_is_trained(engine):
    clients = clients_with([[0, 1]], items=8)
    changes = ("align_steps=0", "fitting=dimensions", "optimiser=sgd", "rate=0.5", "item_factor=1")
    federation = federation_of("fedcia", clients, *QUIET, *changes, engine=engine)
    q, p = (federation.state.initial[name].clone().requires_grad_() for name in ("Q", "p"))
    federation.train_round(1)
    samples = clients.samples(torch.tensor([0]), 4, 0, 1)
    functional.mse_loss(q[samples.item] * p, samples.label.unsqueeze(1).expand(-1, 2)).backward()
    assert near(kept(federation, "Q")[0], (q - 0.5 * q.grad).detach())
    assert near(kept(federation, "p")[0], (p - 0.5 * p.grad).detach())


@both_engines
def test_everyone_starts_from_the_same_vectors(engine):
    federation = federation_on("spread=0.1", items=400, engine=engine)
    tables = kept(federation, "Q")
    assert torch.equal(tables[0], tables[2])
    # 800 draws: a standard error of 2.5 % of the deviation.
    assert float(tables[0].std()) == pytest.approx(0.1, rel=0.1)
