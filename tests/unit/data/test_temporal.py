"""Splits at one time for all users, on tables small enough to split by hand and on made ones of every kind."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fedrec.config.protocol_file import load_protocols
from fedrec.data.interactions import write_interactions
from fedrec.data.split import TEST, TRAIN, VALIDATION, make_split, read_split, write_split
from fedrec.data.statistics import describe_split
from fedrec.data.temporal import interactions_split_by, split_by, split_in
from fedrec.errors import SplitError
from tests.conftest import ROOT
from tests.made_data import made_interactions
from tests.unit.data.test_split import ITEMS, held_out, histories, shuffled

TEMPORAL = replace(load_protocols(ROOT / "config/protocols.yaml")["temporal"], candidates=5, cut=0.5)
CLEAN = replace(TEMPORAL, name="clean", cut=None)
A, B, C, D, E, F, G, H, K = range(9)
BOTH, BEFORE, AFTER, TOO_FEW, AT_THE_CUT = range(5)
BY_HAND = [
    *((BOTH, item, time) for item, time in ((A, 1), (B, 2), (C, 3), (D, 6), (E, 7))),
    *((BEFORE, item, time) for item, time in ((A, 1), (B, 2), (C, 4))),
    *((AFTER, item, time) for item, time in ((A, 6), (B, 7), (C, 8))),
    *((TOO_FEW, item, time) for item, time in ((F, 5), (G, 6))),
    *((AT_THE_CUT, item, time) for item, time in ((G, 3), (H, 4), (K, 5))),
]
"""Of these 16 rows the times are 1 1 2 2 3 3 4 4 | 5 5 6 6 6 7 7 8: half of them lie before the time 5."""


def made(rows, **more):
    return made_interactions(rows, items=ITEMS, **more)


def parts_of(split, user):
    found = (split.pairs_of(part) for part in (TRAIN, VALIDATION, TEST))
    return [items[users == user].tolist() for users, items in found]


def test_users_with_rows_on_both_sides_are_split_at_the_time_and_others_take_no_part():
    split = split_by(made(BY_HAND), TEMPORAL)
    assert parts_of(split, BOTH) == [[A, B], [C], [D]]
    # A row at the very time of the cut is the first from it on.
    assert parts_of(split, AT_THE_CUT) == [[G], [H], [K]]
    assert np.unique(split.user).tolist() == [BOTH, AT_THE_CUT]
    assert split.dropped.tolist() == [BEFORE, AFTER, TOO_FEW]
    assert (split.users, split.items) == (5, ITEMS)
    described = describe_split(split)
    assert (described["users"], described["dropped_users"], described["train_rows"]) == (2, 3, 3)


@pytest.mark.parametrize(("repeated", "test"), [("drop", D), ("keep", B)])
def test_an_item_met_before_the_cut_is_no_test_item_where_repeated_pairs_are_dropped(repeated, test):
    rows = [*BY_HAND, (BOTH, B, 5)]
    split = split_by(made(rows), replace(TEMPORAL, repeated_pairs=repeated))
    assert parts_of(split, BOTH) == [[A, B], [C], [test]]


def test_dropped_repeats_do_not_move_the_time_of_the_cut():
    rows = [*BY_HAND, *((BOTH, A, time) for time in range(9, 30))]
    first, second = (split_by(made(some), TEMPORAL) for some in (BY_HAND, rows))
    assert first.content_hash() == second.content_hash()


def test_of_rows_with_equal_times_behind_the_cut_the_last_of_the_file_counts_as_the_first():
    """As the first row of the file counts as the latest, where a protocol asks for it."""
    rows = [*BY_HAND, (BOTH, F, 6), (BOTH, G, 6)]
    split = split_by(made(rows), replace(TEMPORAL, equal_times="first_row"))
    assert parts_of(split, BOTH)[2] == [G]


def test_seeds_of_the_protocol_draw_other_test_items_of_equal_times():
    rows = [*BY_HAND, (BOTH, F, 6), (BOTH, G, 6)]
    tests = {held_out(split_by(made(rows), replace(TEMPORAL, seed=seed)), TEST)[BOTH] for seed in range(30)}
    assert tests == {D, F, G}


def first_times(rows):
    """When each user first met each item."""
    first = {}
    for user, item, time in rows:
        first[user, item] = min(time, first.get((user, item), time))
    return first


@given(rows=histories(), cut=st.sampled_from([0.2, 0.5, 0.8]))
def test_training_and_validation_lie_before_the_time_and_test_from_it_on(rows, cut):
    times = first_times(rows)
    moment = sorted(times.values())[int(cut * len(times))]
    before = {
        user: [item for (who, item), time in times.items() if who == user and time < moment]
        for user, _, _ in rows
    }
    after = {user for (user, _), time in times.items() if time >= moment}
    stays = {user for user in after if len(before[user]) >= 2}
    interactions, protocol = made(rows), replace(TEMPORAL, cut=cut)
    if not stays:
        with pytest.raises(
            SplitError, match=r"of all rows\) and one after it\. Change `cut` in the protocol\."
        ):
            split_by(interactions, protocol)
        return

    split = split_by(interactions, protocol)
    assert {*split.user.tolist()} == stays == {*split.candidates.user.tolist()}
    assert split.dropped.tolist() == sorted({user for user, _, _ in rows} - stays)
    test, validation = held_out(split, TEST), held_out(split, VALIDATION)
    assert len(split.pairs_of(TEST)[0]) == len(split.pairs_of(VALIDATION)[0]) == len(stays)
    for user in stays:
        (training, _, _) = parts_of(split, user)
        assert sorted([*training, validation[user]]) == sorted(before[user])
        assert times[user, validation[user]] == max(times[user, item] for item in before[user])
        assert times[user, test[user]] == min(
            time for (who, _), time in times.items() if who == user and time >= moment
        )


@given(rows=histories())
def test_ties_are_those_of_the_split_without_a_cut(rows):
    """Each user's rows are the oldest of the order that all of them have under `clean`."""
    interactions = made(rows)
    try:
        split = split_by(interactions, TEMPORAL)
    except SplitError:
        assume(False)
    whole = make_split(interactions, CLEAN)
    for user in {*split.user.tolist()}:
        oldest_first = whole.item[whole.user == user][np.argsort(whole.turns()[whole.user == user])].tolist()
        own = split.item[split.user == user][np.argsort(split.turns()[split.user == user])].tolist()
        assert own == oldest_first[: len(own)]
        assert own[-1] == held_out(split, TEST)[user]
        assert own[-2] == held_out(split, VALIDATION)[user]


@given(rows=histories(), seed=st.integers(0, 2**32))
def test_the_split_does_not_depend_on_the_order_of_rows(rows, seed):
    interactions = made(rows)
    other = shuffled(interactions, np.random.default_rng(seed).permutation(len(rows)))
    try:
        expected = split_by(interactions, TEMPORAL).content_hash()
    except SplitError:
        assume(False)
    assert split_by(other, TEMPORAL).content_hash() == expected


def test_without_a_cut_the_split_is_the_ordinary_one():
    interactions = made(BY_HAND)
    first, second = split_by(interactions, CLEAN), make_split(interactions, CLEAN)
    assert (first.content_hash(), first.interactions) == (second.content_hash(), second.interactions)
    assert interactions_split_by(interactions, CLEAN) is interactions


def test_without_times_there_is_no_time_to_split_at():
    with pytest.raises(
        SplitError,
        match=r"made, temporal: the interactions have no times, so no cut time exists\. Use a protocol without `cut`",
    ):
        split_by(made(BY_HAND, timed=False), TEMPORAL)


@pytest.fixture
def folder(tmp_path):
    """A split at one time, beside the interactions it was made from."""
    interactions = made(BY_HAND)
    write_interactions(tmp_path / "interactions.parquet", interactions, {})
    (tmp_path / "temporal").mkdir()
    write_split(split_by(interactions, TEMPORAL), tmp_path / "temporal")
    return tmp_path / "temporal"


def test_a_split_that_was_read_knows_its_cut_and_its_order(folder):
    split, read = split_by(made(BY_HAND), TEMPORAL), split_in(folder)
    assert (read.content_hash(), read.protocol, read.dropped.tolist()) == (
        split.content_hash(),
        TEMPORAL,
        split.dropped.tolist(),
    )
    assert read.turns().tolist() == split.turns().tolist() == [0, 1, 2, 3, 0, 1, 2]


def test_the_order_of_a_split_is_never_that_of_other_interactions(folder):
    changed = made([*BY_HAND, (TOO_FEW, A, 1), (TOO_FEW, B, 2)])
    write_interactions(folder.parent / "interactions.parquet", changed, {})
    with pytest.raises(SplitError, match=r"does not belong to the split beside it\. Make the split again\."):
        split_in(folder).turns()


def test_a_reader_that_knows_no_cuts_refuses_the_order(folder):
    with pytest.raises(SplitError, match=r"does not belong to the split beside it\. Make the split again\."):
        read_split(folder).turns()
