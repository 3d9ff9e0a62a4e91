"""PFedCLR: items alone, then upload, then what is personal: the user vector and the correction."""

import pytest
import torch
from torch.nn import functional

from fedrec.methods.pfedclr import PFedCLR
from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
ALL = ("participation=1", "batch_size=100")


def moved_alone(weights, names, rates, epochs, score, items, labels, optimiser):
    """Plain torch.optim on some of the weights of one client."""
    for name in names:
        weights[name] = weights[name].detach().clone().requires_grad_()
    steps = optimiser(
        [{"params": [weights[name]], "lr": rate} for name, rate in zip(names, rates, strict=True)]
    )
    for _ in range(epochs):
        steps.zero_grad()
        functional.binary_cross_entropy_with_logits(score(weights, items), labels).backward()
        steps.step()
    for name in names:
        weights[name] = weights[name].detach()


def plain(w, items):
    return w["Q"][items] @ w["p"][0]


def corrected(w, items):
    return (w["Q"][items] + w["A"][items] @ w["B"]) @ w["p"][0]


@both_engines
@pytest.mark.parametrize(
    ("name", "optimiser"), [("adam", torch.optim.Adam), ("sgd", torch.optim.SGD)], ids=["adam", "sgd"]
)
def test_two_rounds_are_what_plain_optimisers_do(engine, name, optimiser):
    """Every round: only Q on p . q, sent, then p, A and B on p . (q + a B); fresh optimisers each time."""
    clients = clients_with([[0, 1], [2], [1, 3, 4]], items=8)
    federation = federation_of(
        "pfedclr", clients, *ALL, "d=3", "rank=2", "rate=0.1", "beta=0.05", "local_epochs=4",
        f"optimiser={name}", "negatives=2", engine=engine,
    )  # fmt: skip
    names = ("Q", "p", "A", "B")
    start = {one: federation.state.initial[one].clone() for one in names}
    own = [dict(start) for _ in range(3)]
    server = start["Q"]
    for round_ in (1, 2):
        samples = clients.samples(torch.arange(3), 2, 0, round_)
        sent = []
        for weights, items, labels in zip(
            own,
            samples.item.split(samples.size.tolist()),
            samples.label.split(samples.size.tolist()),
            strict=True,
        ):
            weights["Q"] = server
            data = (items, labels, optimiser)
            moved_alone(weights, ["Q"], [0.1], 4, plain, *data)
            sent.append(weights["Q"])
            moved_alone(weights, ["p", "A", "B"], [0.1, 0.05, 0.05], 4, corrected, *data)
        # Training rows 2, 1 and 3 of 6.
        server = sent[0] / 3 + sent[1] / 6 + sent[2] / 2
        federation.train_round(round_)
        assert near(federation.state.shared["Q"], server, within=1e-10)
        for one in names:
            expected = torch.stack([weights[one] for weights in own])
            assert near(kept(federation, one), expected, within=1e-10), one


def test_what_is_asked_of_a_client_in_which_order():
    clients = clients_with([[0]], items=5)
    asked = asked_of_a_client(federation_of("pfedclr", clients, "rate=0.3", "beta=0.2"))
    assert asked.events == [("fit", {"Q"}), ("upload", "Q", "Q"), ("fit", {"p", "A", "B"})]
    assert asked.steps[1][0].rates == {"p": 0.3, "A": 0.2, "B": 0.2}


class StepOneAlone(PFedCLR):
    """Leaves out step 2, which trains on the method's own loss."""

    def fit(self, client, *steps, loss=None):
        if loss is not None:
            super().fit(client, *steps, loss=loss)


@both_engines
def test_in_step_one_only_items_move_and_the_correction_is_zero(engine):
    clients = clients_with([[0, 1], [2]], items=6)
    federation = federation_of("pfedclr", clients, *ALL, "d=3", "rate=0.1", engine=engine)
    federation.method = StepOneAlone(federation.settings, clients.items)
    before = {name: kept(federation, name) for name in ("Q", "p", "A", "B")}
    federation.train_round(1)
    for name in ("p", "A", "B"):
        assert torch.equal(kept(federation, name), before[name])
    assert not kept(federation, "A").any()
    assert not torch.equal(kept(federation, "Q"), before["Q"])


@both_engines
def test_the_first_step_of_step_two_moves_the_zero_factor_alone(engine):
    # Item 0 liked, item 1 drawn; p = (1, 2), B = (3, 4): B p = 11. Items rest (rate 0), so scores are
    # p . q = 0 for both, residuals -1/2 and 1/2, and A moves by -beta x residual x 11 / 2 samples.
    federation = federation_of(
        "pfedclr", clients_with([[0]], items=2), "d=2", "rank=1", "rate=0", "beta=0.1", "local_epochs=1",
        "optimiser=sgd", "negatives=1", "participation=1", engine=engine,
    )  # fmt: skip
    give(federation, Q=torch.zeros(2, 2), p=[1.0, 2.0], B=[3.0, 4.0])
    federation.train_round(1)
    assert kept(federation, "A").flatten().tolist() == pytest.approx([0.1 * 11 / 4, -0.1 * 11 / 4])
    assert kept(federation, "B").flatten().tolist() == [3.0, 4.0]
    # Now that A is not zero, B moves too.
    federation.train_round(2)
    assert not near(kept(federation, "B").flatten(), torch.tensor([3.0, 4.0]))


@both_engines
def test_what_is_sent_knows_nothing_of_step_two(engine):
    """The server's table after a round is the same whatever the correction does in it."""
    clients = clients_with([[0, 1], [2]], items=6)
    tables = []
    for change in ("beta=0", "beta=0.5", "rank=3", "correction=full"):
        federation = federation_of("pfedclr", clients, *ALL, "d=3", change, engine=engine)
        report = federation.train_round(1)
        # Only Q travels, whatever the rank.
        assert (report.up, report.down) == (6 * 3, 6 * 3)
        assert federation.state.shared.keys() == {"Q"}
        tables.append(federation.state.shared["Q"])
    assert all(torch.equal(tables[0], table) for table in tables[1:])


def test_rank_is_the_inner_size_of_the_correction():
    clients = clients_with([[0], [1]], items=7)
    for rank in (1, 4):
        federation = federation_of("pfedclr", clients, "d=5", f"rank={rank}")
        assert kept(federation, "A").shape == (2, 7, rank)
        assert kept(federation, "B").shape == (2, rank, 5)


def test_users_are_scored_with_their_own_table_and_correction():
    clients = clients_with([[0, 1], [2]], items=6)
    federation = federation_of("pfedclr", clients, *ALL, "d=3", "rate=0.1", "beta=0.1")
    federation.train_round(1)
    q, p, a, b = (kept(federation, name) for name in ("Q", "p", "A", "B"))
    expected = ((q + a @ b) * p).sum(-1)
    items = torch.arange(6).expand(2, -1)
    assert near(federation.scores(everyone(federation), items), expected)
    assert not near(q[0], federation.state.shared["Q"])
    assert a.abs().sum() > 0


@both_engines
def test_the_full_correction_has_a_free_vector_for_every_item(engine):
    # As above, but without B: the row of W moves by -beta x residual x p / 2.
    federation = federation_of(
        "pfedclr", clients_with([[0]], items=3, allowed=[[1]]), "d=2", "rate=0", "beta=0.1", "local_epochs=1",
        "optimiser=sgd", "negatives=1", "participation=1", "correction=full", engine=engine,
    )  # fmt: skip
    assert federation.state.parameters.keys() == {"Q", "p", "W"}
    give(federation, Q=torch.zeros(3, 2), p=[1.0, 2.0])
    assert not kept(federation, "W").any()
    federation.train_round(1)
    expected = torch.tensor([[0.1 / 4, 0.2 / 4], [-0.1 / 4, -0.2 / 4], [0.0, 0.0]])
    assert near(kept(federation, "W")[0], expected)
    scores = federation.scores(torch.tensor([0]), torch.tensor([[0, 1, 2]]))
    assert scores[0].tolist() == pytest.approx([0.5 / 4, -0.5 / 4, 0.0])


@pytest.mark.parametrize(("correction", "names"), [("low-rank", {"A", "B"}), ("full", {"W"})])
def test_joint_training_leaves_step_two_to_the_correction(correction, names):
    federation = federation_of(
        "pfedclr", clients_with([[0]], items=5), f"correction={correction}", "training=joint"
    )
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"Q", "p"}), ("upload", "Q", "Q"), ("fit", names)]
