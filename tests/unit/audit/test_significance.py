import itertools

import numpy as np
import pytest
from scipy import stats

from fedrec.audit.significance import (
    EXACT_PAIRS,
    LEAST_P,
    bootstrap_interval,
    compare,
    holm,
    interval_of,
    least_seeds,
    over_seeds,
    p_of,
    resampled_means,
)
from fedrec.errors import ComparisonError
from fedrec.evaluation.metrics import per_user


def made(users, seed=0, metric="ndcg@10", shift=3):
    """Values of users under two methods, the first of them better the larger `shift` is."""
    draw = np.random.default_rng(seed)
    ranks = draw.integers(1, 40, users)
    other = np.clip(ranks + draw.integers(-8, 9, users) + shift, 1, None)
    return per_user(ranks.astype(np.float32), metric), per_user(other.astype(np.float32), metric)


@pytest.fixture(params=[64, 0], ids=["few values", "many values"])
def _drawn_either_way(request, monkeypatch):
    """Draws how often each of few values comes, or for each user."""
    monkeypatch.setattr("fedrec.audit.significance._FEW", request.param)


def flipped_by_hand(differences):
    """The exact p of the randomisation test, by going through every choice of signs."""
    seen = abs(sum(differences)) - 1e-9
    sums = [
        abs(sum(s * d for s, d in zip(signs, differences, strict=True)))
        for signs in itertools.product((-1, 1), repeat=len(differences))
    ]
    return sum(one >= seen for one in sums) / len(sums)


def test_a_comparison_by_hand():
    found = compare([3.0, 5.0, 2.0, 7.0], [1.0, 6.0, 2.0, 3.0])
    # Differences 2, -1, 0, 4: ranks of magnitudes 2, 1, none, 3; of 8 sums only 7 and -7 are as far as 5,
    # and 5 and -5 themselves.
    assert (found.difference, found.users) == (1.25, 4)
    assert found.effect == pytest.approx((2 - 1 + 3) / 6)
    assert found.randomisation == 4 / 8
    assert found.low <= found.difference <= found.high


def test_the_signed_rank_test_is_scipys_without_users_that_do_not_differ():
    for metric in ("hr@10", "ndcg@10"):
        a, b = made(400, metric=metric)
        assert (a == b).sum() > 50
        expected = stats.wilcoxon(a, b, zero_method="wilcox").pvalue
        assert compare(a, b, resamples=10).wilcoxon == pytest.approx(expected, rel=1e-12)


def test_the_randomisation_test_goes_through_all_signs_of_few_pairs():
    draw = np.random.default_rng(1)
    for users in range(1, 11):
        differences = draw.integers(-3, 6, users) / 7
        expected = flipped_by_hand(differences.tolist())
        assert compare(differences, np.zeros(users), resamples=1).randomisation == expected


def test_the_randomisation_test_is_scipys_permutation_test():
    a, b = made(14, shift=6)
    expected = stats.permutation_test(
        (a, b), lambda x, y: np.mean(x - y), permutation_type="samples", n_resamples=2**14
    ).pvalue
    assert compare(a, b, resamples=1).randomisation == pytest.approx(expected, abs=1e-12)


@pytest.mark.usefixtures("_drawn_either_way")
def test_drawn_signs_come_near_to_all_signs(monkeypatch):
    a, b = made(EXACT_PAIRS, seed=4, metric="ndcg@20", shift=4)
    exact = compare(a, b).randomisation
    assert 0.01 < exact < 0.9
    monkeypatch.setattr("fedrec.audit.significance.EXACT_PAIRS", 0)
    drawn = compare(a, b, resamples=40_000).randomisation
    assert drawn == pytest.approx(exact, abs=5 * (exact * (1 - exact) / 40_000) ** 0.5)
    assert drawn != exact


@pytest.mark.usefixtures("_drawn_either_way")
def test_drawn_signs_never_give_a_p_of_zero():
    assert compare(np.ones(1000), np.zeros(1000), resamples=99).randomisation == 1 / 100


@pytest.mark.usefixtures("_drawn_either_way")
def test_equal_methods_do_not_differ():
    found = compare(np.full(30, 0.1), np.full(30, 0.1))
    assert (found.difference, found.low, found.high, found.effect) == (0, 0, 0, 0)
    assert (found.wilcoxon, found.randomisation) == (1, 1)


def test_turning_the_methods_round_turns_the_signs_alone():
    a, b = made(300)
    one, other = compare(a, b), compare(b, a)
    assert (one.difference, one.effect) == (-other.difference, pytest.approx(-other.effect))
    assert one.wilcoxon == pytest.approx(other.wilcoxon)
    assert one.effect > 0.1


def test_the_same_seed_gives_the_same_and_another_seed_another():
    a, b = made(300, shift=1)
    assert compare(a, b, seed=1) == compare(a, b, seed=1)
    assert compare(a, b, seed=1).randomisation != compare(a, b, seed=2).randomisation


@pytest.mark.usefixtures("_drawn_either_way")
def test_the_interval_is_that_of_resampled_users():
    a, b = made(200)
    differences = a - b
    draw = np.random.default_rng(0)
    means = differences[draw.integers(0, 200, (20_000, 200))].mean(axis=1)
    for level in (0.5, 0.95):
        expected = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
        found = bootstrap_interval(differences, resamples=20_000, level=level)
        assert found == pytest.approx(expected, abs=0.05 * means.std())


@pytest.mark.usefixtures("_drawn_either_way")
def test_the_interval_does_not_depend_on_how_much_is_drawn_at_once(monkeypatch):
    differences = np.random.default_rng(0).normal(size=50)
    whole = bootstrap_interval(differences, resamples=500)
    monkeypatch.setattr("fedrec.audit.significance._AT_ONCE", 50 * 7)
    # A matrix product of other shape may add in another order: some units in the last place.
    assert bootstrap_interval(differences, resamples=500) == pytest.approx(whole, rel=1e-12, abs=1e-14)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    draw = np.random.default_rng(7)
    trials, truth = 400, 0.5 * 0.3 - 0.2
    covered = 0
    for trial in range(trials):
        differences = draw.choice([-1.0, 0.0, 0.5], size=200, p=[0.2, 0.5, 0.3])
        low, high = bootstrap_interval(differences, seed=trial, resamples=500, level=0.9)
        covered += low <= truth <= high
    assert 0.85 < covered / trials < 0.95


def test_chance_alone_is_rarely_significant():
    draw = np.random.default_rng(3)
    found = [
        compare(draw.normal(size=60), draw.normal(size=60), resamples=200).randomisation for _ in range(300)
    ]
    assert 0.02 < np.mean(np.array(found) <= 0.05) < 0.09


@pytest.mark.parametrize(
    ("p_values", "adjusted"),
    [
        ([], []),
        ([0.03], [0.03]),
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.4, 0.5, 0.9], [1.0, 1.0, 1.0]),
        # The second is held up by the first: 2 x 0.02 is less than 3 x 0.015.
        ([0.015, 0.02, 0.9], [0.045, 0.045, 0.9]),
    ],
)
def test_holm_by_hand(p_values, adjusted):
    assert holm(p_values) == pytest.approx(adjusted)


def test_seeds_by_hand():
    found = over_seeds([0.5, 0.6, 0.7, 0.55, 0.65], [0.4, 0.5, 0.6, 0.45, 0.55])
    # Five seeds that agree: of 32 choices of signs, two are as far from 0.
    assert found.difference == pytest.approx(0.1)
    assert found.randomisation == found.smallest == 2 / 32
    assert (found.seeds, found.enough, found.needed) == (5, False, 6)
    assert over_seeds(np.arange(1, 7), np.zeros(6)).enough
    assert over_seeds([1.0], [0.0]).randomisation == 1
    assert over_seeds([1.0, 0.0, 2.0], [0.0, 1.0, 0.0]).randomisation == flipped_by_hand([1, -1, 2])


def test_least_seeds():
    assert least_seeds() == 6
    assert least_seeds(0.0625) == 5
    assert least_seeds(0.001) == 11
    assert least_seeds(1) == 1


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        ([1.0, 2.0], [1.0], "2 users cannot be paired with 1"),
        ([], [], "not empty"),
        ([[1.0]], [[1.0]], r"shape \(1, 1\)"),
        ([1.0, np.nan], [1.0, 1.0], "first values have nan at place 1"),
    ],
)
def test_values_that_cannot_be_compared_are_an_error(a, b, said):
    with pytest.raises(ComparisonError, match=said):
        compare(a, b)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_holm_takes_p_values_alone(p):
    with pytest.raises(ComparisonError, match="is no p-value"):
        holm([0.5, p])


def test_draws_that_are_too_many_to_be_kept_give_the_same_interval(monkeypatch):
    differences = np.random.default_rng(3).normal(size=200)
    kept = bootstrap_interval(differences, resamples=500)
    flipped = compare(differences, np.zeros(200), resamples=500).randomisation
    monkeypatch.setattr("fedrec.audit.significance._CACHED_BYTES", 0)
    monkeypatch.setattr("fedrec.audit.significance._AT_ONCE", 200 * 7)

    assert bootstrap_interval(differences, resamples=500) == pytest.approx(kept, rel=1e-12)
    # Signs are drawn in bytes, which parts of other lengths cut elsewhere: as good, and not the same.
    again = compare(differences, np.zeros(200), resamples=500).randomisation
    assert abs(again - flipped) < 0.1


def two_way(users, seeds, of_user, of_seed, of_both, draw):
    """Differences of users under seeds: what is a user's, what is a seed's, and what is neither's."""
    parts = [
        of_user * draw.normal(size=(1, users)),
        of_seed * draw.normal(size=(seeds, 1)),
        of_both * draw.normal(size=(seeds, users)),
    ]
    return sum(parts)


@pytest.mark.usefixtures("_drawn_either_way")
def test_means_over_users_and_seeds_are_those_of_both_resampled():
    draw = np.random.default_rng(0)
    differences = two_way(100, 4, 1, 0.3, 0.5, draw)
    users, seeds = draw.integers(0, 100, (20_000, 100)), draw.integers(0, 4, (20_000, 4))
    expected = np.array([differences[np.ix_(s, u)].mean() for s, u in zip(seeds, users, strict=True)])
    found = resampled_means(differences, resamples=20_000)
    assert found.mean() == pytest.approx(differences.mean(), abs=0.01)
    assert found.std() == pytest.approx(expected.std(), rel=0.03)
    assert interval_of(found, 0.95) == pytest.approx(np.quantile(expected, [0.025, 0.975]), abs=0.02)


def test_of_one_seed_users_alone_are_resampled():
    differences = np.random.default_rng(0).normal(size=(1, 200))
    found = resampled_means(differences)
    assert interval_of(found, 0.95) == bootstrap_interval(differences[0])
    assert found.std() == pytest.approx(differences.std() / np.sqrt(200), rel=0.03)


def test_seeds_that_differ_are_not_averaged_away():
    """With many users nearly all that is left to chance is the seed."""
    draw = np.random.default_rng(1)
    alike, apart = (two_way(5000, 5, 1, spread, 0, draw) for spread in (0, 0.5))
    assert resampled_means(alike).std() < 0.02
    seeds = apart.mean(axis=1)
    assert resampled_means(apart).std() == pytest.approx(seeds.std() / np.sqrt(5), rel=0.05)


def test_few_values_of_users_under_seeds_are_drawn_as_often():
    """They are drawn together: 100 users who differ in three ways, as one by one."""
    few = np.repeat([[1.0, 0.0, -1.0], [1.0, 1.0, 0.0]], (20, 50, 30), axis=1)
    many = few + 1e-9 * np.random.default_rng(0).normal(size=few.shape)
    assert interval_of(resampled_means(few), 0.95) == pytest.approx(
        interval_of(resampled_means(many), 0.95), abs=0.015
    )


def test_the_same_differences_give_the_same_means():
    differences = two_way(300, 3, 1, 1, 1, np.random.default_rng(5))
    assert np.array_equal(resampled_means(differences), resampled_means(differences))


@pytest.mark.parametrize(
    ("means", "value", "p"),
    [
        # Of 99 means 4 are at most 0: twice 5 of 100.
        (np.arange(-3, 96), 0, 0.1),
        (-np.arange(-3, 96), 0, 0.1),
        (np.arange(1, 100), 0, 0.02),
        (np.arange(1, 100), 50, 1.0),
        (np.zeros(99), 0, 1.0),
    ],
)
def test_a_p_of_resampled_means_by_hand(means, value, p):
    assert p_of(means, value) == pytest.approx(p)


def test_the_least_p_is_that_of_means_that_all_lie_on_one_side():
    assert p_of(resampled_means(np.ones((1, 5))), 0) == LEAST_P


def test_the_p_is_below_a_level_where_the_interval_leaves_the_value_out():
    means = np.random.default_rng(2).normal(0.1, 0.05, 10_000)
    low, high = interval_of(means, 0.95)
    for value in (low, high):
        assert p_of(means, value - 0.002 * np.sign(value - 0.1)) > 0.05
        assert p_of(means, value + 0.002 * np.sign(value - 0.1)) < 0.05
