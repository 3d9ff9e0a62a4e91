import numpy as np
import pytest

from fedrec.random.with_numpy import Purpose, below, draw_at, draws, philox

# The known answers its authors publish for Philox4x32-10 (Random123).
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        0x299F31D0A4093822,
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "seed", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter, seed, expected):
    assert tuple(philox(counter, seed).tolist()) == expected


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
