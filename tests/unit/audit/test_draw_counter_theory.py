"""What counting one's own draws is expected to give, by hand and against draws that were made."""

import math

import numpy as np
import pytest
from scipy import stats

from fedrec.audit.draw_counter_theory import SamplingScheme, _chances, draw_counter_metrics
from fedrec.audit.exposure import DrawCounts, draw_counter_hits
from fedrec.data.split import PARTS
from fedrec.methods.draw_counter import DrawCounter
from fedrec.runs.sampling_counts import SamplingCounts
from tests.federations import clients_of, uniform_noise


def users(*rows_pool_seen):
    rows, pool, seen = (np.array(column) for column in zip(*rows_pool_seen, strict=True))
    return SamplingCounts(rows, pool, seen)


def test_one_candidate_by_hand():
    """With one candidate the rank is 1 if it was drawn, and else 1 or 2 alike."""
    never = math.exp(-3 * 2 * 5 / 40)
    expected = draw_counter_metrics(users((3, 40, False)), SamplingScheme(5, 2, 1), [1, 2])
    assert expected["hr@1"] == pytest.approx(1 - never + never / 2)
    assert expected["hr@2"] == pytest.approx(1)
    assert expected["ndcg@2"] == pytest.approx(1 - never + never * (1 + 1 / math.log2(3)) / 2)


def test_without_draws_it_is_chance_and_a_known_item_comes_first():
    nothing = SamplingScheme(rounds=0, negatives=4, candidates=99)
    assert draw_counter_metrics(users((7, 50, False)), nothing, [10])["hr@10"] == pytest.approx(0.1)
    assert draw_counter_metrics(users((7, 50, True)), nothing, [10])["ndcg@10"] == pytest.approx(1)
    both = users((7, 50, False), (7, 50, True))
    assert draw_counter_metrics(both, nothing, [10])["hr@10"] == pytest.approx((0.1 + 1) / 2)


def test_histories_of_a_split():
    user = np.array([4, 4, 4, 4, 9, 9, 9], dtype=np.int32)
    item = np.array([0, 1, 2, 1, 3, 4, 5], dtype=np.int32)
    part = np.array(["train", "train", "validation", "test", "train", "validation", "test"])
    found = SamplingCounts.of_split(user, item, part, items=10)
    assert found.rows.tolist() == [2, 1]
    assert found.pool.tolist() == [7, 7]
    assert found.seen.tolist() == [True, False]


def test_it_is_what_counting_draws_that_were_made_gives():
    split = uniform_noise(protocol="published-pfedrec", candidates=49)
    clients = clients_of(split)
    counter = DrawCounter(clients, {"negatives": 2, "rounds": 6}, seed=0)
    for round_ in range(1, 7):
        counter.train_round(round_)
    histories = SamplingCounts.of_split(split.user, split.item, np.array(PARTS)[split.part], split.items)
    expected = draw_counter_metrics(histories, SamplingScheme(6, 2, 49), [10])["hr@10"]
    everyone = clients.everyone
    drawn = counter.drawn.get(everyone.unsqueeze(1), clients.catalogue)
    counted = draw_counter_hits(DrawCounts.of(clients, everyone, drawn))["hr@10"]
    # 400 users: chance moves the mean by less than half of this.
    assert expected == pytest.approx(counted, abs=0.02)
    assert 0.4 < expected < 0.9


def test_chances_are_those_of_a_binomial_however_small():
    shares = np.array([0.0, 5e-324, 1e-310, 1e-20, 1e-3, 0.3, 1.0])
    found = _chances(shares, 99)

    assert np.allclose(found.sum(axis=1), 1.0)
    assert np.allclose(found[3:], stats.binom.pmf(np.arange(100), 99, shares[3:, None]))
    assert np.array_equal(found[:3, 0], [1.0, 1.0, 1.0])
