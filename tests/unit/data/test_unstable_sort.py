"""The order that numpy 1.24 leaves equal values in: its own answers, on any machine."""

import numpy as np
import pytest

from fedrec.data.unstable_sort import rows_sorted_by_time, unstable_order


@pytest.mark.parametrize(
    ("values", "order"),
    [
        ([], []),
        ([5], [0]),
        # Up to 16 values are sorted by insertion, which is stable.
        ([1] * 16, list(range(16))),
        ([1] * 17, [0, 14, 13, 12, 11, 10, 9, 15, 8, 6, 5, 4, 3, 2, 1, 7, 16]),
        ([1] * 20, [0, *range(17, 0, -1), 18, 19]),
        ([1, 0] * 10, [9, 17, 15, 13, 11, 7, 19, 5, 3, 1, 8, 18, 10, 4, 12, 14, 2, 16, 6, 0]),
        (
            [3, 1, 2, 2] * 6,
            [1, 21, 5, 17, 9, 13, 11, 19, 18, 15, 14, 23, 10, 7, 6, 3, 2, 22, 12, 8, 16, 4, 20, 0],
        ),
    ],
)
def test_it_is_the_answer_of_numpy(values, order):
    assert unstable_order(values) == order


def test_it_sorts():
    values = np.random.default_rng(0).integers(0, 50, 3000).tolist()
    order = unstable_order(values)
    assert sorted(order) == list(range(3000))
    assert [values[place] for place in order] == sorted(values)


def test_rows_are_sorted_user_by_user_as_they_stand_in_the_file():
    # User 1 has 20 rows of one time, in the file behind those of user 0 and from its end to its start.
    user = np.array([1] * 20 + [0, 0], dtype=np.int32)
    time = np.array([7] * 20 + [9, 8])
    row = np.array([*range(21, 1, -1), 0, 1])
    found = rows_sorted_by_time(user, time, row)
    # User 0: the row of time 8 comes before that of 9.
    assert found[20:].tolist() == [1, 0]
    expected = {place: 2 + new for new, place in enumerate(unstable_order([7] * 20))}
    assert found[:20].tolist() == [expected[19 - place] for place in range(20)]
