from dataclasses import replace

import numpy as np
import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.config.population import Population
from fedrec.data.population import history_sizes, population_interactions
from fedrec.data.prepare import prepare
from fedrec.data.split import make_split
from fedrec.errors import ConfigurationError

SMALL = Population(seed=1, users=300, items=1000, interactions=9000)


@pytest.fixture(scope="module")
def made():
    return population_interactions(SMALL, "made")


def test_a_population_is_of_the_size_asked_for(made):
    assert len(made) == 9000
    assert (made.users, made.items) == (300, 1000)
    assert made.item.max() < 1000
    assert np.unique(made.user).tolist() == list(range(300))


def test_a_user_meets_an_item_once_and_one_item_at_a_time(made):
    pairs = made.user.astype(np.int64) * 1000 + made.item
    assert len(np.unique(pairs)) == len(pairs)
    moments = made.user.astype(np.int64) << 40 | made.time
    assert (np.diff(moments) > 0).all()


def test_activity_and_popularity_are_unequal():
    made = population_interactions(Population(seed=0, users=3000, items=1000, interactions=120_000), "made")
    sizes = np.bincount(made.user)
    assert np.median(sizes) < 0.7 * sizes.mean()
    assert sizes.max() > 8 * sizes.mean()
    counts = np.sort(np.bincount(made.item, minlength=1000))[::-1]
    assert 0.35 < counts[:100].sum() / len(made) < 0.5


@pytest.mark.parametrize("at_once", [1, 100, 2000])
def test_how_many_users_are_made_together_decides_nothing(monkeypatch, made, at_once):
    monkeypatch.setattr("fedrec.data.population._AT_ONCE", at_once)
    again = population_interactions(SMALL, "made")
    assert again.content_hash() == made.content_hash()


def test_the_seed_matters(made):
    other = population_interactions(Population(seed=2, users=300, items=1000, interactions=9000), "made")
    assert other.content_hash() != made.content_hash()


def test_the_interactions_are_fixed_for_ever(made):
    # A change here changes what is measured on such datasets: note it in the changelog.
    assert made.content_hash() == "24ae7beca2e5716ba1df2257f2f60e023576f9c67a499b72eb0b23c5ee1e18ba"


def test_nobody_has_too_few_interactions_or_more_than_half_of_the_items():
    sizes = history_sizes(Population(seed=0, users=2000, items=100, interactions=20_000))
    assert sizes.min() >= 3
    assert sizes.max() == 50


@pytest.mark.parametrize("interactions", [99, 401])
def test_a_size_that_no_users_can_have_is_refused(interactions):
    with pytest.raises(
        ConfigurationError,
        match=r"give at least 100 \(10 per user\) and at most 400 \(one in 10 of all pairs\)\.$",
    ):
        Population(seed=0, users=10, items=400, interactions=interactions)


def test_an_entry_of_the_catalogue_makes_one(tmp_path, write_catalogue, protocols, made):
    sizes = {"seed": 1, "users": 300, "items": 1000, "interactions": 9000}
    dataset = load_catalogue(write_catalogue(big={"synthetic": sizes}))["big"]
    prepared = prepare(dataset, tmp_path)
    named = prepared.items["original_id"].to_numpy()[prepared.interactions.item].astype(np.int64)
    assert np.array_equal(named - 1, made.item)
    assert prepared.items["title"][0] == f"No. {prepared.items['original_id'][0]}"
    split = make_split(prepared.interactions, replace(protocols["clean"], candidates=20))
    assert len(split.candidates.user) == 300
