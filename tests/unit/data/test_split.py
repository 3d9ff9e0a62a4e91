"""Invariants of splits, on made interactions of every awkward kind."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec.data.interactions import Interactions
from fedrec.data.split import PARTS, TEST, TRAIN, VALIDATION, make_split, read_split, write_split
from fedrec.errors import SplitError, StorageError
from fedrec.files.parquet import read_table
from tests.conftest import ROOT
from tests.made_data import made_interactions

ITEMS = 40
FEW = {"candidates": 5}
NAMES = ["clean", "published-pfedrec", "published-fedrap", "published-plgc"]


def loaded(name):
    from fedrec.config.protocol_file import load_protocols

    return replace(load_protocols(ROOT / "config/protocols.yaml")[name], **FEW)


PROTOCOLS = {name: loaded(name) for name in NAMES}


@st.composite
def histories(draw, repeats=True):
    """Interactions of a few users with ties in time and, if asked, repeated pairs; at least 3 distinct items."""
    rows = []
    for user in range(draw(st.integers(1, 5))):
        items = draw(st.lists(st.integers(0, ITEMS - 1), min_size=3, max_size=12, unique=True))
        if repeats:
            items += draw(st.lists(st.sampled_from(items), max_size=4))
        rows += [(user, item, draw(st.integers(0, 4))) for item in items]
    return draw(st.permutations(rows))


def shuffled(interactions, order):
    """The same interactions, as if the file's rows stood in another order."""
    columns = {name: getattr(interactions, name)[order] for name in ("user", "item", "rating", "time")}
    return replace(interactions, **columns, row=np.arange(len(order), dtype=np.int64))


def held_out(split, part):
    return dict(zip(*(column.tolist() for column in split.pairs_of(part)), strict=True))


@pytest.mark.parametrize("name", NAMES)
@given(rows=histories())
def test_every_row_has_one_part_and_every_user_one_test_and_one_validation_row(name, rows):
    protocol = PROTOCOLS[name]
    split = make_split(made_interactions(rows, items=ITEMS), protocol)
    pairs = [(user, item) for user, item, _ in rows]
    expected = sorted(set(pairs) if protocol.repeated_pairs == "drop" else pairs)
    assert sorted(zip(split.user.tolist(), split.item.tolist(), strict=True)) == expected
    users = {user for user, _ in pairs}
    for part in (VALIDATION, TEST):
        assert sorted(split.pairs_of(part)[0].tolist()) == sorted(users)
    assert set(split.pairs_of(TRAIN)[0].tolist()) == users


@pytest.mark.parametrize("name", NAMES)
@given(rows=histories())
def test_the_latest_is_held_out(name, rows):
    protocol = PROTOCOLS[name]
    split = make_split(made_interactions(rows, items=ITEMS), protocol)
    test, validation = held_out(split, TEST), held_out(split, VALIDATION)
    for user in test:
        own = [(item, time) for who, item, time in rows if who == user]
        if protocol.repeated_pairs == "drop":
            own = [(item, min(t for i, t in own if i == item)) for item in {item for item, _ in own}]
        times = sorted((time for _, time in own), reverse=True)
        assert (test[user], times[0]) in own
        assert (validation[user], times[1]) in own


@given(rows=histories())
def test_of_equal_times_the_first_row_of_the_file_counts_as_latest(rows):
    split = make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["published-pfedrec"])
    test, validation = held_out(split, TEST), held_out(split, VALIDATION)
    for user in test:
        own = [(-time, row, item) for row, (who, item, time) in enumerate(rows) if who == user]
        first, second = sorted(own)[:2]
        assert (test[user], validation[user]) == (first[2], second[2])


@given(rows=histories(), seed=st.integers(0, 2**32))
def test_a_clean_split_does_not_depend_on_the_order_of_rows(rows, seed):
    interactions = made_interactions(rows, items=ITEMS)
    other = shuffled(interactions, np.random.default_rng(seed).permutation(len(rows)))
    assert (
        make_split(other, PROTOCOLS["clean"]).content_hash()
        == make_split(interactions, PROTOCOLS["clean"]).content_hash()
    )


@pytest.mark.parametrize("name", NAMES)
@given(
    items=st.lists(st.integers(0, ITEMS - 1), min_size=3, max_size=20, unique=True),
    seed=st.integers(0, 2**32),
)
def test_the_order_of_rows_is_irrelevant_where_time_decides(name, items, seed):
    interactions = made_interactions([(0, item, time) for time, item in enumerate(items)], items=ITEMS)
    other = shuffled(interactions, np.random.default_rng(seed).permutation(len(items)))
    first, second = (make_split(one, PROTOCOLS[name]) for one in (interactions, other))
    assert first.content_hash() == second.content_hash()
    assert held_out(first, TEST) == {0: items[-1]}
    assert held_out(first, VALIDATION) == {0: items[-2]}


@pytest.mark.parametrize("name", NAMES)
@given(rows=histories())
def test_candidates_are_distinct_and_never_interacted(name, rows):
    protocol = PROTOCOLS[name]
    split = make_split(made_interactions(rows, items=ITEMS), protocol)
    for user, validation, test in zip(
        split.candidates.user.tolist(),
        split.candidates.validation.tolist(),
        split.candidates.test.tolist(),
        strict=True,
    ):
        own = {item for who, item, _ in rows if who == user}
        assert len(set(validation)) == len(set(test)) == protocol.candidates
        assert not own & {*validation, *test}
        if protocol.candidate_lists == "separate":
            assert not set(validation) & set(test)
        else:
            assert validation == test


@given(rows=histories())
def test_a_users_candidates_do_not_depend_on_other_users(rows):
    whole = made_interactions(rows, items=ITEMS)
    last = [row for row in rows if row[0] == whole.users - 1]
    alone = make_split(made_interactions(last, items=ITEMS), PROTOCOLS["clean"])
    together = make_split(whole, PROTOCOLS["clean"])
    assert np.array_equal(alone.candidates.test[0], together.candidates.test[-1])


def test_blocks_do_not_change_candidates(monkeypatch, protocols):
    rng = np.random.default_rng(0)
    rows = [(user, item, 0) for user in range(30) for item in rng.permutation(300)[:20].tolist()]
    interactions = made_interactions(rows, items=300)
    whole = make_split(interactions, protocols["clean"])
    monkeypatch.setattr("fedrec.data.candidates._BITMAP_BYTES", 900)
    for users in (1, 7, 30):
        monkeypatch.setattr("fedrec.data.candidates._FEWEST_AT_ONCE", users)
        assert make_split(interactions, protocols["clean"]).content_hash() == whole.content_hash()


def test_candidates_are_drawn_uniformly(protocols):
    rows = [(user, item, item) for user in range(2000) for item in (0, 1, 2)]
    split = make_split(made_interactions(rows, items=50), replace(protocols["clean"], candidates=10))
    counts = np.bincount(split.candidates.test.ravel(), minlength=50)[3:]
    expected = 2000 * 10 / 47
    # Chi-square with 46 degrees of freedom, its 0.1 % point; sampling without replacement varies less.
    assert float(((counts - expected) ** 2 / expected).sum()) < 81.4


def test_a_repeated_pair_can_be_test_and_training_when_kept_and_cannot_when_dropped():
    rows = [(0, 1, 0), (0, 2, 1), (0, 3, 2), (0, 1, 9)]
    kept = make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["published-fedrap"])
    assert held_out(kept, TEST) == {0: 1}
    assert 1 in kept.pairs_of(TRAIN)[1]
    dropped = make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["clean"])
    assert held_out(dropped, TEST) == {0: 3}
    assert dropped.pairs_of(TRAIN)[1].tolist() == [1]


def test_a_papers_row_order_decides_its_ties_and_no_one_elses():
    rows = [(0, 1, 0), (0, 2, 5), (0, 3, 5), (0, 4, 1)]
    interactions = made_interactions(rows, items=ITEMS, pfedrec=[3, 2, 1, 0])
    assert held_out(make_split(interactions, PROTOCOLS["published-pfedrec"]), TEST) == {0: 3}
    assert held_out(make_split(interactions, PROTOCOLS["published-fedrap"]), TEST) == {0: 2}


def test_without_times_published_holds_out_the_newest_item_and_clean_a_random_one():
    rows = [(user, item, item) for user in range(400) for item in range(8)]
    interactions = made_interactions(rows, items=ITEMS, timed=False)
    assert set(held_out(make_split(interactions, PROTOCOLS["published-fedrap"]), TEST).values()) == {7}
    drawn = np.bincount(make_split(interactions, PROTOCOLS["clean"]).pairs_of(TEST)[1], minlength=8)
    # Chi-square with 7 degrees of freedom, its 0.1 % point.
    assert float(((drawn - 50) ** 2 / 50).sum()) < 24.3


def test_random_ties_are_settled_evenly():
    rows = [(user, item, 0 if item < 3 else 1) for user in range(900) for item in range(6)]
    drawn = np.bincount(
        make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["clean"]).pairs_of(TEST)[1]
    )
    assert drawn[:3].sum() == 0
    assert float(((drawn[3:] - 300) ** 2 / 300).sum()) < 13.8


def test_users_with_too_few_rows_are_dropped_and_listed(tmp_path):
    rows = [(0, 1, 0), (0, 2, 1), (0, 3, 2), (1, 1, 0), (1, 2, 0), (2, 5, 1), (2, 5, 2), (2, 5, 3)]
    clean = make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["clean"])
    assert clean.dropped.tolist() == [1, 2]
    assert set(clean.user.tolist()) == {0}
    published = make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["published-fedrap"])
    assert published.dropped.tolist() == [1]
    write_split(clean, tmp_path)
    assert read_table(tmp_path / "split.parquet")[1]["dropped_users"] == [1, 2]


def test_the_few_who_know_nearly_all_items_are_dropped_and_listed(protocols):
    # User 100 knows 8 of 205 items, one more than leaves 198 for two lists; user 0 has too few rows.
    rows = [(user, item, item) for user in range(1, 100) for item in range(4)]
    rows += [(0, 1, 0), *((100, item, item) for item in range(8))]
    made = made_interactions(rows, items=205)
    with_it = make_split(made, replace(protocols["clean"], candidates=98))
    assert with_it.dropped.tolist() == [0]
    without = make_split(made, protocols["clean"])
    assert without.dropped.tolist() == [0, 100]
    assert without.candidates.user.tolist() == list(range(1, 100))


def test_repeated_rows_of_an_item_do_not_make_a_user_know_more(protocols):
    rows = [(0, 1, time) for time in range(150)] + [(0, 2, 0), (0, 3, 1)]
    split = make_split(made_interactions(rows, items=102), protocols["published-fedrap"])
    assert not len(split.dropped)


def test_nobody_to_split_is_an_error():
    with pytest.raises(SplitError, match="no user has 3 rows"):
        make_split(made_interactions([(0, 1, 0), (0, 2, 1)], items=ITEMS), PROTOCOLS["clean"])


def test_a_catalogue_too_small_for_the_candidates_is_an_error(protocols):
    rows = [(user, item, item) for user in range(2) for item in range(3 + 7 * user)]
    with pytest.raises(SplitError) as error:
        make_split(made_interactions(rows, items=205), protocols["clean"])
    assert "1 users have too few unrated items for 198 candidates. User 1 has 195 of 205" in str(error.value)
    make_split(made_interactions(rows, items=208), protocols["clean"])


def test_items_met_twice_leave_as_many_candidates_as_if_met_once(protocols):
    kept = replace(protocols["clean"], repeated_pairs="keep")
    rows = [(user, item, item) for user in range(2) for item in range(7)]
    make_split(made_interactions(rows * 2, items=205), kept)
    with pytest.raises(SplitError, match="2 users have too few unrated items for 198 candidates"):
        make_split(made_interactions(rows * 2, items=204), kept)


@pytest.mark.parametrize("name", NAMES)
def test_a_split_is_written_and_read_back_with_the_same_hash_and_bytes(tmp_path, name):
    rng = np.random.default_rng(1)
    rows = [
        (user, item, int(rng.integers(5)))
        for user in range(20)
        for item in rng.permutation(ITEMS)[:9].tolist()
    ]
    interactions = made_interactions(rows, items=ITEMS)
    for folder in ("first", "second"):
        write_split(make_split(interactions, PROTOCOLS[name]), tmp_path / folder)
    for file in ("split.parquet", "candidates.parquet"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()
    again = read_split(tmp_path / "first")
    assert again.content_hash() == make_split(interactions, PROTOCOLS[name]).content_hash()
    assert again.protocol == PROTOCOLS[name]
    table, about = read_table(tmp_path / "first/split.parquet")
    assert about["split"] == again.content_hash()
    assert about["interactions"] == interactions.content_hash()
    assert set(table["part"].to_pylist()) == set(PARTS)


def test_the_hash_is_fixed_for_ever(protocols):
    # A change here means that every split changed: note it in the changelog.
    rows = [(user, (user * 7 + step * step) % 300, step // 2) for user in range(5) for step in range(12)]
    interactions = made_interactions(rows, items=300)
    assert (
        make_split(interactions, protocols["clean"]).content_hash()
        == "ba5cbaa29330e1fa86b1b7d30f4196af1b609f8a2bd378778c7822155f3c07e8"
    )
    assert (
        make_split(interactions, protocols["published-pfedrec"]).content_hash()
        == "0024c5bdd74e13686472319170faedf111e2ac60938738629679060a0b4b01cf"
    )


def test_a_damaged_file_is_refused(tmp_path):
    rows = [(0, item, item) for item in range(5)]
    write_split(make_split(made_interactions(rows, items=ITEMS), PROTOCOLS["clean"]), tmp_path)
    path = tmp_path / "split.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(StorageError, match="cannot be read"):
        read_split(tmp_path)
    path.unlink()
    with pytest.raises(StorageError, match="no such file"):
        read_split(tmp_path)


@pytest.mark.parametrize("protocol", ["clean", "published-pfedrec"])
def test_no_time_is_too_early(protocols, protocol):
    earliest, latest = (int(bound) for bound in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
    rows = [(0, item, earliest) for item in range(4)] + [(1, item, latest - item) for item in range(4)]
    split = make_split(made_interactions(rows, items=300), protocols[protocol])
    for part in (TEST, VALIDATION):
        assert split.pairs_of(part)[0].tolist() == [0, 1]


def test_interactions_are_a_value(protocols):
    """Splitting must not change what it splits."""
    interactions: Interactions = made_interactions([(0, item, 5) for item in range(6)], items=300)
    before = interactions.content_hash()
    make_split(interactions, protocols["clean"])
    make_split(interactions, protocols["published-pfedrec"])
    assert interactions.content_hash() == before
