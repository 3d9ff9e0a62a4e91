"""PFedRec: two losses a mini-batch, items at a rate of their own, own tables at inference."""

import math

import pytest
import torch

from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, give, kept, near
from tests.federations import clients_of, planted_blocks

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
TINY = ("d=1", "optimiser=sgd", "negatives=1", "item_scale=one")


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


@both_engines
def test_items_step_on_a_loss_computed_after_the_score_function_moved(engine):
    # One client, item 0 liked, item 1 drawn: a mini-batch of both. Scores 2 theta + b and theta + b.
    tuned = federation_of(
        "pfedrec", clients_with([[0]], items=2), *TINY, "rate=0.5", "item_factor=6", engine=engine
    )
    give(tuned, Q=[2.0, 1.0], theta=0.5, b=0.1)
    tuned.train_round(1)
    liked, drawn = sigmoid(2 * 0.5 + 0.1) - 1, sigmoid(1 * 0.5 + 0.1)
    theta = 0.5 - 0.5 * (2 * liked + 1 * drawn) / 2
    b = 0.1 - 0.5 * (liked + drawn) / 2
    assert float(kept(tuned, "theta")) == pytest.approx(theta, rel=1e-14)
    assert float(kept(tuned, "b")) == pytest.approx(b, rel=1e-14)
    liked, drawn = sigmoid(2 * theta + b) - 1, sigmoid(1 * theta + b)
    expected = [2 - 3 * liked * theta / 2, 1 - 3 * drawn * theta / 2]
    assert kept(tuned, "Q").flatten().tolist() == pytest.approx(expected, rel=1e-14)
    # One client: the mean table is its own.
    assert tuned.state.shared["Q"].flatten().tolist() == pytest.approx(expected, rel=1e-14)


def test_items_learn_at_rate_times_items_times_eighty():
    # 0.1 x 80 x 5 items; the score function at 0.1.
    federation = federation_of("pfedrec", clients_with([[0]], items=5), paper="pfedrec")
    score, items = asked_of_a_client(federation).steps[0]
    assert score.rates == {"theta": 0.1, "b": 0.1}
    assert items.rates == {"Q": pytest.approx(40.0)}
    assert (score.optimiser, items.optimiser) == ("sgd", "sgd")


def test_one_epoch_of_two_steps_and_then_the_item_table_alone_is_sent():
    federation = federation_of("pfedrec", clients_with([[0]], items=5))
    asked = asked_of_a_client(federation)
    assert asked.events == [("fit", {"theta", "b"}, {"Q"}), ("upload", "Q", "Q")]
    assert asked.asked == (1, None)


@both_engines
def test_the_server_takes_the_plain_mean(engine):
    # Clients with 1, 2 and 3 training rows count the same.
    clients = clients_with([[0], [1, 2], [3, 4, 5]], items=8)
    federation = federation_of("pfedrec", clients, "d=3", engine=engine)
    report = federation.train_round(1)
    own = kept(federation, "Q")
    assert near(federation.state.shared["Q"], own.mean(0))
    by_size = own[0] / 6 + own[1] / 3 + own[2] / 2
    assert not near(federation.state.shared["Q"], by_size, within=1e-3)
    assert (report.up, report.down) == (8 * 3, 8 * 3)


def test_users_are_scored_with_their_own_table_and_the_server_overwrites_it_next_round():
    clients = clients_with([[0], [1, 2]], items=6)
    federation = federation_of("pfedrec", clients, "d=3", "participation=0.5")
    before = federation.state.shared["Q"].clone()
    federation.train_round(1)
    trained = int(federation.state.joined.nonzero())
    items = torch.arange(6).expand(2, -1)
    expected = (kept(federation, "Q") * kept(federation, "theta")).sum(-1) + kept(federation, "b")[:, 0]
    assert near(federation.scores(everyone(federation), items), expected)
    # The client that never took part has the table all started from.
    assert torch.equal(kept(federation, "Q")[1 - trained], before)
    assert not near(kept(federation, "Q")[trained], before)


@both_engines
def test_a_client_starts_every_round_from_the_server(engine):
    """With a rate of 0 its own table becomes the server's, whatever it trained before."""
    clients = clients_with([[0], [1, 2]], items=6)
    federation = federation_of("pfedrec", clients, "d=3", "rate=0", engine=engine)
    changed = torch.arange(18.0).reshape(6, 3)
    federation.state.shared["Q"] = changed
    federation.train_round(1)
    assert torch.equal(kept(federation, "Q"), changed.expand(2, 6, 3))


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("batch_size=7", "local_epochs=2"),
        ("optimiser=adam", "rate=0.01"),
        ("round_decay=0.9", "batch_decay=0.8"),
    ],
)
def test_matrix_factorisation_with_dual_personalisation_is_this_method(changes):
    """Parameter for parameter: the user vector is the score function."""
    clients = clients_of(planted_blocks(users=12))
    own = federation_of("pfedrec", clients, *changes, paper="pfedrec")
    composed = federation_of("fedmf+dualper", clients, *changes, paper="pfedrec")
    for round_ in (1, 2, 3):
        own.train_round(round_)
        composed.train_round(round_)
    assert near(own.state.shared["Q"], composed.state.shared["Q"], within=1e-9)
    for one, other in (("Q", "Q"), ("theta", "p"), ("b", "b")):
        assert near(kept(own, one), kept(composed, other), within=1e-9), one
    items = torch.arange(clients.items).expand(len(clients), -1)
    assert near(own.scores(everyone(own), items), composed.scores(everyone(own), items), within=1e-9)
