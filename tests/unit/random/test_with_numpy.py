import numpy as np
import pytest

from fedrec.random.purpose import Purpose
from fedrec.random.with_numpy import below, draw_at, draws


def test_a_draw_depends_on_its_place_alone():
    users = np.arange(50)
    together = draws(7, Purpose.CANDIDATES, user=users, first=0, count=40)
    alone = draws(7, Purpose.CANDIDATES, user=users[31], first=0, count=40)
    later = draws(7, Purpose.CANDIDATES, user=users, first=20, count=20)
    single = draw_at(7, Purpose.CANDIDATES, user=users, index=np.full(50, 23))
    assert np.array_equal(together[31], alone)
    assert np.array_equal(together[:, 20:], later)
    assert np.array_equal(together[:, 23], single)


def test_seed_purpose_round_and_user_all_matter():
    def first(seed=1, purpose=Purpose.TIES, user=1, round_=1):
        return tuple(draws(seed, purpose, user=user, first=0, count=4, round_=round_).tolist())

    drawn = [
        first(),
        first(seed=2),
        first(seed=1 + 2**32),
        first(purpose=Purpose.CANDIDATES),
        first(user=2),
        first(round_=2),
    ]
    assert len(set(drawn)) == len(drawn)


def test_below_is_uniform():
    words = draws(3, Purpose.TIES, user=np.arange(1000), first=0, count=200)
    counts = np.bincount(below(words, 7).ravel(), minlength=7)
    expected = words.size / 7
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    # 22.46 is the 0.1 % point of chi-square with 6 degrees of freedom; the draws are fixed.
    assert chi_square < 22.46


def test_below_covers_its_range_and_no_more():
    words = np.array([0, 2**32 - 1], dtype=np.uint64)
    assert below(words, 10).tolist() == [0, 9]
    with pytest.raises(ValueError, match="bound"):
        below(words, 0)


def test_draws_refuse_broken_blocks():
    with pytest.raises(ValueError, match="blocks of 4"):
        draws(0, Purpose.TIES, user=0, first=0, count=6)
