import numpy as np
import pytest

from fedrec.audit import draws
from fedrec.audit.draws import CountDraws

TIMES = {
    "one value": [7],
    "few users": [1, 2, 1],
    "most do not differ": [*[1] * 40, 300, *[2, 1, 1] * 20],
    "many of each": [144, 680, 119],
    "as many as can be, and one": [900, 1],
    "steps of every kind": [31, 1, 62, 400, 3, 250, 1, 1, 61],
    "very many users": [40_000, 3, 9_000, 60_000],
}


def by_numpy(seed):
    """Draws that numpy itself makes."""
    made = CountDraws(seed)
    made._kernel = None
    return made


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
@pytest.mark.parametrize("kind", ["resampled", "halved"])
def test_a_kernel_draws_what_numpy_draws(times, kind):
    for seed in (0, 5):
        ours, numpys = CountDraws(seed), by_numpy(seed)
        assert ours._kernel is not None, "tests need a C compiler"
        for rows in (300, 1, 700):
            found = getattr(ours, kind)(np.array(times), rows)
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found, getattr(numpys, kind)(np.array(times), rows))


def test_a_resample_has_as_many_users_and_coins_show_no_more_faces_than_there_are():
    times = np.array(TIMES["steps of every kind"])
    assert (CountDraws(1).resampled(times, 50).sum(axis=1) == times.sum()).all()
    faces = CountDraws(1).halved(times, 2000)
    assert ((faces >= 0) & (faces <= times)).all()
    assert faces.mean(axis=0) == pytest.approx(times / 2, rel=0.06)


def test_without_a_compiler_numpy_draws(monkeypatch):
    expected = CountDraws(3).resampled(np.array([5, 1, 2]), 20)

    def none(*_):
        raise draws.NoCompilerError("there is none")

    monkeypatch.setattr(draws, "Kernel", none)
    draws._kernel.cache_clear()
    try:
        without = CountDraws(3)
        assert without._kernel is None
        np.testing.assert_array_equal(without.resampled(np.array([5, 1, 2]), 20), expected)
    finally:
        draws._kernel.cache_clear()
