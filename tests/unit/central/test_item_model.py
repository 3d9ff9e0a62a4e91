"""Weights between items: when they are learnt, and how users are scored by them."""

import pytest
import torch

from fedrec.central import item_model
from fedrec.central.item_model import ItemModel, co_occurrences
from tests.by_hand import clients_with

pytestmark = pytest.mark.usefixtures("double_precision")


class Doubled(ItemModel):
    """Weights that are easy to follow: an item's own count, and twice that of pairs."""

    solved = 0

    def between(self, met):
        self.solved += 1
        return 2 * met - torch.diag(met.diagonal())


CLIENTS = clients_with([[0, 1], [1], [0, 1, 2]], items=3)


def test_pairs_are_counted_by_users(monkeypatch):
    expected = [[2, 2, 1], [2, 3, 1], [1, 1, 1]]
    assert co_occurrences(CLIENTS).tolist() == expected
    monkeypatch.setattr(item_model, "_USERS_AT_ONCE", 1)
    assert co_occurrences(CLIENTS).tolist() == expected


def test_the_first_round_learns_everything():
    learner = Doubled(CLIENTS, {}, 0)
    assert not learner.weights.any()
    for round_ in (1, 2):
        learner.train_round(round_)
    assert learner.solved == 1
    assert learner.weights.tolist() == [[2, 4, 2], [4, 3, 2], [2, 2, 1]]
    resumed = Doubled(CLIENTS, {}, 0)
    resumed.load(learner.tensors())
    resumed.train_round(3)
    assert resumed.solved == 0
    assert resumed.weights.equal(learner.weights)


def test_a_score_is_a_sum_over_the_items_of_a_user():
    learner = Doubled(CLIENTS, {}, 0)
    learner.train_round(1)
    everything = CLIENTS.catalogue.expand(3, -1)
    expected = torch.tensor([[6.0, 7, 4], [4, 3, 2], [8, 9, 5]])
    assert learner.scores(CLIENTS.everyone, everything).equal(expected)
    assert learner.scores(torch.tensor([2, 0]), torch.tensor([[1], [2]])).tolist() == [[9], [4]]
