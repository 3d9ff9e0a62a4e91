"""DualPer: a private score function, and item tables that step after it."""

import pytest
import torch

from tests.by_hand import ENGINES, asked_of_a_client, clients_with, everyone, federation_of, kept, near

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
SMALL = ("d=2", "layers=3", "participation=1", "local_epochs=1", "optimiser=sgd")
TOWER = {"mlp.0", "mlp.0.bias", "mlp.1", "mlp.1.bias"}


@pytest.fixture
def clients():
    return clients_with([[0], [1, 2]], items=6)


def test_everything_else_steps_before_the_item_table(clients):
    federation = federation_of("fedncf+dualper", clients, *SMALL)
    assert asked_of_a_client(federation).events == [("fit", {"p", *TOWER}, {"Q"}), ("upload", "Q", "Q")]


def test_the_other_reading_shares_the_tower_as_before(clients):
    federation = federation_of("fedncf+dualper", clients, *SMALL, "score_part=shared")
    fit, *uploads = asked_of_a_client(federation).events
    assert fit == ("fit", {"p", *TOWER}, {"Q"})
    assert {(name, into) for _, name, into in uploads} == {(name, name) for name in {"Q", *TOWER}}


@both_engines
def test_what_is_private_is_neither_sent_nor_replaced(clients, engine):
    # The tower: 4 x 3 + 3 and 3 x 1 + 1 numbers.
    private = federation_of("fedncf+dualper", clients, *SMALL, "rate=0.5", engine=engine)
    shared = federation_of("fedncf+dualper", clients, *SMALL, "rate=0.5", "score_part=shared", engine=engine)
    assert private.train_round(1).up == 6 * 2
    assert shared.train_round(1).up == 6 * 2 + 19
    assert private.state.shared.keys() == {"Q"}
    assert not near(kept(private, "mlp.0")[0], kept(private, "mlp.0")[1])
    assert shared.state.shared.keys() == {"Q", *TOWER}
    assert "mlp.0" not in shared.state.client_tensors


@both_engines
@pytest.mark.parametrize("part", ["private", "shared"])
def test_users_are_scored_with_their_own_item_table(clients, engine, part):
    federation = federation_of("fedncf+dualper", clients, *SMALL, f"score_part={part}", engine=engine)
    federation.train_round(1)
    state = federation.state
    items = torch.arange(6)
    for user in (0, 1):
        model = {
            name: state.shared[name] if name in state.shared and name != "Q" else kept(federation, name)[user]
            for name in state.parameters
        }
        hidden = torch.cat((model["p"].expand(6, -1), model["Q"]), dim=1) @ model["mlp.0"]
        expected = (hidden + model["mlp.0.bias"]).relu() @ model["mlp.1"] + model["mlp.1.bias"]
        found = federation.scores(torch.tensor([user]), items.unsqueeze(0))
        assert near(found[0], expected[:, 0])


def test_only_a_backbone_that_scores_by_a_product_gets_a_bias(clients):
    assert "b" in federation_of("fedmf+dualper", clients).state.parameters
    assert "b" not in federation_of("fedncf+dualper", clients).state.parameters


def test_the_bias_counts_in_the_score(clients):
    federation = federation_of("fedmf+dualper", clients, "d=2")
    federation.train_round(1)
    items = torch.arange(6).expand(2, -1)
    expected = (kept(federation, "Q") * kept(federation, "p")).sum(-1) + kept(federation, "b")[:, 0]
    assert near(federation.scores(everyone(federation), items), expected)
