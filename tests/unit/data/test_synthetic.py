import hashlib

import numpy as np
import pytest

from fedrec.config.catalogue import Synthetic
from fedrec.data.prepare import prepare
from fedrec.data.split import TEST, TRAIN, make_split
from fedrec.data.synthetic import synthetic_interactions, synthetic_titles


@pytest.fixture(scope="module")
def demo(catalogue, tmp_path_factory):
    return prepare(catalogue["demo"], tmp_path_factory.mktemp("none"))


def hit_ratio(split, scores, cutoff=10):
    """Share of users whose test item is among the best `cutoff` of it and its candidates; ties at mean rank."""
    users, target = split.pairs_of(TEST)
    target_score = scores[users, target][:, None]
    candidate_scores = scores[users[:, None], split.candidates.test]
    rank = 1 + (candidate_scores > target_score).sum(1) + 0.5 * (candidate_scores == target_score).sum(1)
    return float((rank <= cutoff).mean())


def test_the_demo_is_of_the_size_it_says(demo):
    assert (demo.interactions.users, demo.interactions.items) == (240, 315)
    assert np.bincount(demo.interactions.user).min() >= 10
    assert demo.items["title"].null_count() == 0


def test_a_user_never_repeats_an_item(demo):
    pairs = demo.interactions.user.astype(np.int64) * 315 + demo.interactions.item
    assert len(np.unique(pairs)) == len(pairs)


def test_popularity_is_skewed(demo):
    counts = np.sort(np.bincount(demo.interactions.item, minlength=315))[::-1]
    assert counts[:31].sum() > 0.2 * counts.sum()


def test_collaboration_beats_popularity_under_the_clean_protocol(demo, protocols):
    split = make_split(demo.interactions, protocols["clean"])
    user, item = split.pairs_of(TRAIN)
    seen = np.zeros((split.users, split.items))
    seen[user, item] = 1
    popularity = seen.sum(0)
    norm = np.sqrt(np.maximum(popularity, 1))
    similar = seen.T @ seen / norm / norm[:, None]
    np.fill_diagonal(similar, 0)
    neighbours = hit_ratio(split, seen @ similar)
    popular = hit_ratio(split, np.broadcast_to(popularity, seen.shape))
    chance = 0.10
    assert popular > chance + 0.03
    assert neighbours > popular + 0.2


def test_the_rows_are_fixed_for_ever():
    # A change here changes every result on `demo`: note it in the changelog.
    rows = synthetic_interactions(Synthetic(seed=2026, users=240, items=315, tastes=3))
    text = "\n".join(",".join(map(str, row)) for row in rows.rows())
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "25648cc1fa82a996ac1a45c26e9008c8a0b28c1d8114c45a27a72782c82d2b04"
    )


def test_the_seed_matters():
    first, second = (synthetic_interactions(Synthetic(seed, 20, 60, 4)) for seed in (1, 2))
    assert not first.equals(second)


def test_small_settings_work():
    rows = synthetic_interactions(Synthetic(seed=0, users=3, items=4, tastes=4))
    assert rows["item"].max() <= 4
    assert synthetic_titles(Synthetic(0, 3, 4, 4))["title"].to_list()[0] == "Taste 1, No. 1"
