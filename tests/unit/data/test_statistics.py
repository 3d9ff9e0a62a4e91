from dataclasses import replace

import pytest

from fedrec.data.split import make_split
from fedrec.data.statistics import describe_interactions, describe_split
from tests.made_data import made_interactions

# User 0 ends with two rows at time 5; user 1 meets item 1 twice; item 9 is in nobody's training.
ROWS = [(0, 1, 1), (0, 2, 2), (0, 3, 5), (0, 9, 5), (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 1, 4)]


def test_interactions_are_described_by_hand():
    described = describe_interactions(made_interactions(ROWS, items=20))
    assert (described["users"], described["items"], described["interactions"]) == (2, 20, 8)
    assert described["sparsity_percent"] == pytest.approx(80.0)
    assert (described["repeated_pairs"], described["tied_last_users"]) == (1, 1)
    assert describe_interactions(made_interactions(ROWS, items=20, timed=False))["tied_last_users"] is None


def test_splits_are_described_by_hand(protocols):
    # First row first: user 0 is tested on 3 and validated on 9; user 1 on 1 (again) and 3.
    published = replace(protocols["published-pfedrec"], candidates=2)
    described = describe_split(make_split(made_interactions(ROWS, items=20), published))
    assert described["users"] == 2
    assert described["train_rows"] == 4
    assert described["cold_test_users"] == 1  # item 3: user 1 has it for validation only
    assert described["test_in_train_users"] == 1
    assert described["test_is_validation_users"] == 0


def test_a_pair_can_be_both_validation_and_test(protocols):
    rows = [(0, 1, 1), (0, 2, 2), (0, 2, 2)]
    published = replace(protocols["published-fedrap"], candidates=2)
    assert (
        describe_split(make_split(made_interactions(rows, items=9), published))["test_is_validation_users"]
        == 1
    )
