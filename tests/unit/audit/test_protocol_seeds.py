"""Means over users, training seeds and protocol seeds, and how far they move with each."""

import numpy as np
import pytest

from fedrec.audit.protocol_seeds import over_protocol_seeds
from fedrec.audit.significance import bootstrap_interval
from fedrec.errors import ComparisonError

USERS = 200
HALF = np.arange(USERS) % 2.0
NOBODY, EVERYBODY = np.zeros((1, USERS)), np.ones((1, USERS))


def test_the_mean_weighs_protocol_seeds_alike_however_many_runs_they_have():
    found = over_protocol_seeds([np.zeros((4, USERS)), EVERYBODY])
    assert (found.value, found.users, found.protocols, found.runs) == (0.5, USERS, 2, 5)


def test_an_interval_grows_with_what_differs_between_protocol_seeds():
    """Users alone would have an interval of no width."""
    found = over_protocol_seeds([NOBODY, EVERYBODY])
    assert (found.low, found.high) == (0.0, 1.0)
    same = over_protocol_seeds([EVERYBODY, EVERYBODY])
    assert (same.low, same.high) == (1.0, 1.0)


def test_an_interval_grows_with_what_differs_between_training_seeds():
    found = over_protocol_seeds([np.concatenate([NOBODY, EVERYBODY])] * 2)
    assert 0.0 <= found.low < 0.2 < found.value < 0.8 < found.high <= 1.0


def test_where_seeds_change_nothing_the_interval_is_that_over_users():
    found, (low, high) = over_protocol_seeds([np.stack([HALF, HALF])] * 3), bootstrap_interval(HALF)
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.01)
    assert found.high - found.low > 0.1


def test_other_users_are_refused():
    with pytest.raises(ComparisonError, match="users differ between protocol seeds"):
        over_protocol_seeds([NOBODY, NOBODY[:, :-1]])
