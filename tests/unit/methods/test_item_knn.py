"""item-knn: likenesses by hand, and a plain implementation by sets of users."""

import math

import numpy as np
import pytest

from tests.by_hand import clients_with
from tests.federations import all_scores, learner_of, met_by

pytestmark = pytest.mark.usefixtures("double_precision")


def trained(clients, **settings):
    learner = learner_of("item-knn", clients, *(f"{key}={value}" for key, value in settings.items()))
    learner.train_round(1)
    return learner


# Items 0, 1, 2 were met by 3, 2 and 1 users, item 3 by nobody.
FEW = clients_with([[0, 1, 2], [0, 1], [0]], items=4)


@pytest.mark.parametrize("shrinkage", [0, 0.5, 10])
def test_likenesses_by_hand(shrinkage):
    weights = trained(FEW, neighbours=4, shrinkage=shrinkage).weights
    expected = {(0, 1): 2 / (math.sqrt(6) + shrinkage), (0, 2): 1 / (math.sqrt(3) + shrinkage),
                (1, 2): 1 / (math.sqrt(2) + shrinkage)}  # fmt: skip
    for i in range(4):
        for j in range(4):
            assert float(weights[i, j]) == pytest.approx(expected.get((min(i, j), max(i, j)), 0.0))


def test_an_item_is_scored_by_its_own_nearest():
    # The nearest of 0 and of 2 is 1 (2/sqrt 6, 1/sqrt 2), the nearest of 1 is 0.
    weights = trained(FEW, neighbours=1, shrinkage=0).weights
    assert {tuple(pair) for pair in weights.nonzero().tolist()} == {(1, 0), (0, 1), (1, 2)}
    assert all_scores(trained(FEW, neighbours=1, shrinkage=0), FEW)[2] == pytest.approx(
        np.array([0, 2 / math.sqrt(6), 0, 0])
    )


def test_of_equal_ones_none_is_left_out():
    # Item 0 is as like 1 as 2.
    weights = trained(clients_with([[0, 1], [0, 2]], items=3), neighbours=1, shrinkage=0).weights
    assert float(weights[1, 0]) == float(weights[2, 0]) == pytest.approx(1 / math.sqrt(2))


def plain(met, neighbours, shrinkage):
    """Scores by sets of users, one pair of items after the other."""
    users = [set(np.flatnonzero(column)) for column in met.T]
    likeness = [
        [
            len(mine & others) / (math.sqrt(len(mine)) * math.sqrt(len(others)) + shrinkage)
            if mine & others and mine is not others
            else 0.0
            for others in users
        ]
        for mine in users
    ]
    scores = np.zeros(met.shape)
    for item, row in enumerate(likeness):
        last = sorted(row, reverse=True)[neighbours - 1]
        for user, own in enumerate(met):
            scores[user, item] = sum(row[other] for other in np.flatnonzero(own) if row[other] >= last)
    return scores


@pytest.mark.parametrize(("neighbours", "shrinkage"), [(5, 0), (20, 3), (315, 10)])
def test_it_is_the_plain_one(demo, neighbours, shrinkage):
    learner = trained(demo, neighbours=neighbours, shrinkage=shrinkage)
    assert all_scores(learner, demo) == pytest.approx(plain(met_by(demo), neighbours, shrinkage), abs=1e-12)


def test_more_neighbours_than_items_are_all_items(demo):
    whole, more = (trained(demo, neighbours=count, shrinkage=1).weights for count in (315, 1000))
    assert whole.equal(more)
