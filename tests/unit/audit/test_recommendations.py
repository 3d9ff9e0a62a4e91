"""What a model recommends: counted by hand from its scores."""

from types import SimpleNamespace

import pytest
import torch

from fedrec.audit.recommendations import recommended
from tests.federations import clients_of, planted_blocks


class Scores:
    """A model that scores every user alike."""

    logits = True

    def __init__(self, of_items):
        self.of_items = of_items

    def scores(self, who, items):
        return self.of_items[items].expand(len(who), -1)


@pytest.mark.parametrize("seed", [0, 1])
def test_coverage_and_popularity_are_those_of_the_ten_best_that_are_new_to_a_user(seed):
    clients = clients_of(planted_blocks())
    of_items = torch.rand(clients.items, generator=torch.Generator().manual_seed(seed))
    training = [set(clients.training(torch.tensor([who]))[0].tolist()) for who in range(len(clients))]
    held_out = clients.held_out["validation"].tolist()
    order = of_items.argsort(descending=True).tolist()
    shown = [
        [item for item in order if item not in own and item != validation][:10]
        for own, validation in zip(training, held_out, strict=True)
    ]
    every = [item for items in shown for item in items]
    holders = [sum(item in own for own in training) / len(clients) for item in every]
    found = recommended(SimpleNamespace(clients=clients, learner=Scores(of_items)))
    assert found["coverage"] == pytest.approx(len({*every}) / clients.items)
    assert found["popularity"] == pytest.approx(sum(holders) / len(holders))
