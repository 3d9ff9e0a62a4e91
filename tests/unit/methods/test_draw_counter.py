"""The draw counter counts alike, whether it holds every number or only those above zero."""

import torch

from fedrec.methods._math.all_counts import AllCounts
from fedrec.methods.draw_counter import DrawCounter
from tests.federations import clients_of, uniform_noise

SETTINGS = {"negatives": 3, "rounds": 4}


def counter_after(clients, rounds):
    counter = DrawCounter(clients, SETTINGS, seed=1)
    for round_ in range(1, 1 + rounds):
        counter.train_round(round_)
    return counter


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_many_clients_are_counted_as_few(monkeypatch):
    clients = clients_of(uniform_noise(users=20, items=50, per_user=6, candidates=9))
    few = counter_after(clients, 4)
    monkeypatch.setattr("fedrec.methods.draw_counter._DENSE_PAIRS", 20 * 50 - 1)
    many = counter_after(clients, 4)
    assert isinstance(few.drawn, AllCounts)
    assert not isinstance(many.drawn, AllCounts)
    items = clients.candidates["test"]
    assert torch.equal(few.scores(clients.everyone, items), many.scores(clients.everyone, items))
    assert same(few.tensors(), many.tensors())
    assert len(few.tensors()["kept/drawn/key"]) < 20 * 50


def test_what_was_counted_is_taken_up_again():
    clients = clients_of(uniform_noise(users=20, items=50, per_user=6, candidates=9))
    resumed = counter_after(clients, 1)
    resumed.load(counter_after(clients, 3).tensors())
    resumed.train_round(4)
    assert same(resumed.tensors(), counter_after(clients, 4).tensors())
