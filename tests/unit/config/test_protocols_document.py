"""The examples of docs/protocols.md, computed; each docstring names the section whose numbers it checks."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from benchmarks.cuts import cut_row
from benchmarks.row_orders import order_row, orders_of
from benchmarks.times import times_row
from fedrec.config.catalogue import load_catalogue
from fedrec.config.protocol_file import load_protocols
from fedrec.data.prepare import prepare
from fedrec.data.split import TEST, TRAIN, VALIDATION, make_split
from fedrec.evaluation.ranking import rank_of_target
from fedrec.evaluation.scoring import candidate_ranks
from fedrec.federation.learner import Report
from fedrec.methods.draw_counter import DrawCounter
from fedrec.runs.record import REPORTED
from fedrec.runs.training import Training
from tests.conftest import ROOT, entry
from tests.federations import clients_of, split_of, uniform_noise
from tests.made_data import made_interactions

DOCUMENT = (ROOT / "docs/protocols.md").read_text(encoding="utf-8")
A, B, C, D, E, F, G = range(7)
PUBLISHED = "published-fedrap"


def history(*items):
    """One user who met the items in this order."""
    return [(0, item, time) for time, item in enumerate(items, start=1)]


def parts(split, user=0):
    """Training, validation and test items of a user."""
    found = (split.pairs_of(part) for part in (TRAIN, VALIDATION, TEST))
    return [items[users == user].tolist() for users, items in found]


def counted_draws(split, rounds):
    counter = DrawCounter(clients_of(split), {"negatives": 2}, seed=0)
    for round_ in range(1, rounds + 1):
        counter.train_round(round_)
    return counter


def pool(split):
    """What the first user may draw."""
    clients = clients_of(split)
    return (~clients.forbidden.holds(torch.tensor(0), torch.arange(split.items))).nonzero().flatten().tolist()


def drawn_by_first(counter):
    return counter.drawn.get(torch.tensor(0), torch.arange(counter.clients.items))


def switches():
    """The rows of the table of switches: name, settings, published and clean values."""
    rows = [line.split("|")[1:5] for line in DOCUMENT.splitlines() if re.match(r"\| `\w+` \| `\w+`", line)]
    return {name.strip(" `"): [re.findall(r"`(\w+)`", cell) for cell in cells] for name, *cells in rows}


def test_every_switch_of_the_table_has_its_heading_in_the_same_order():
    """The switches."""
    headings = re.findall(r"^### `(\w+)`: ", DOCUMENT, re.M)
    assert headings == ["pool", "repeats", "lists", "round", "ties", "order"] == list(switches())


def test_the_table_of_switches_tells_all_that_published_and_clean_differ_in(protocols):
    """The switches."""
    told = {name: pair for row in switches().values() for name, *pair in zip(*row, strict=True)}
    for name in ("published-fedrap", "published-fedem"):
        published, clean = protocols[name].as_dict(), protocols["clean"].as_dict()
        differing = [key for key in clean if key != "name" and published[key] != clean[key]]
        assert told == {key: [published[key], clean[key]] for key in differing}
    assert protocols["published-pfedrec"].candidate_lists == "separate"
    by_validation = [
        name
        for name, one in protocols.items()
        if one.round_rule == "best_validation" and (one.paper or name == "clean")
    ]
    assert by_validation == ["published-pfedrec", "published-plgc", "clean"]


def test_the_published_pool_lacks_the_held_out_items_and_draws_every_candidate():
    """pool."""
    split = split_of(history(A, B, C, D), 6, PUBLISHED, candidates=2)
    assert parts(split) == [[A, B], [C], [D]]
    assert sorted(split.candidates.test[0].tolist()) == [E, F]
    assert pool(split) == [E, F]
    for rounds in (1, 3):
        counter = counted_draws(split, rounds)
        assert drawn_by_first(counter).tolist() == [0, 0, 0, 0, 2 * rounds, 2 * rounds]
        assert candidate_ranks(counter, counter.clients, "test").tolist() == [1]


def test_the_clean_pool_draws_held_out_items_as_often_as_candidates():
    """pool."""
    split = split_of(history(A, B, C, D), 6, PUBLISHED, candidates=2, negative_pool="exclude_train")
    assert pool(split) == [C, D, E, F]
    rounds = 200
    drawn = drawn_by_first(counted_draws(split, rounds)) / rounds
    assert drawn[:2].tolist() == [0, 0]
    # Each of two rows draws an item with probability 1/2: the mean's standard error is 0.05.
    assert drawn[2:].numpy() == pytest.approx(1, abs=0.2)
    assert float(drawn.sum()) == pytest.approx(4)


def test_the_clean_pool_leaves_the_held_out_item_at_chance():
    """pool: the mean rank is 2 of 3, here over many users."""
    rows = [(user, item, item) for user in range(400) for item in (A, B, C, D)]
    split = split_of(rows, 6, "clean", candidates=2, candidate_lists="shared")
    counter = counted_draws(split, 5)
    # A rank's deviation is at most 1, so the mean's standard error at most 0.05.
    assert float(candidate_ranks(counter, counter.clients, "test").mean()) == pytest.approx(2, abs=0.2)


def test_draws_on_movielens():
    """pool: 943 users, 1,682 items and 100,000 rows, two rows of each user held out."""
    rows = 100_000 / 943
    unseen = 1_682 - rows
    assert (round(rows - 2), round(4 * round(rows - 2)), round(unseen)) == (104, 416, 1_576)
    assert round(1 - (1 - 4 / unseen) ** (rows - 2), 2) == 0.23


def test_kept_repeats_leave_the_test_item_in_training():
    """repeats."""
    rows = history(A, C, B, C)
    assert parts(split_of(rows, 5, PUBLISHED, candidates=1)) == [[A, C], [B], [C]]
    assert parts(split_of(rows, 5, PUBLISHED, candidates=1, repeated_pairs="drop")) == [[A], [C], [B]]
    assert parts(split_of(history(A, B, C, C), 5, PUBLISHED, candidates=1)) == [[A, B], [C], [C]]


def test_lists_are_one_or_have_nothing_in_common():
    """lists."""
    shared = split_of(history(A, B, C), 7, PUBLISHED, candidates=2).candidates
    assert shared.validation.tolist() == shared.test.tolist()
    separate = split_of(history(A, B, C), 7, candidates=2).candidates
    assert sorted([*separate.validation[0].tolist(), *separate.test[0].tolist()]) == [D, E, F, G]


def test_a_round_chosen_against_a_list_is_good_against_that_list():
    """lists."""
    scores = torch.tensor([[9.0, 8.0, 1.0, 2.0], [1.0, 2.0, 9.0, 8.0]])
    held_out = torch.tensor([5.0, 5.0])
    assert rank_of_target(held_out, scores[:, :2], "target_mean").tolist() == [3, 1]
    assert rank_of_target(held_out, scores[:, 2:], "target_mean").tolist() == [1, 3]


HITS = {"validation": [(1, 1), (1, 0), (0, 1)], "test": [(1, 0), (1, 1), (0, 1)]}
"""For each round, whether each of two users is hit."""


class Scripted:
    """Puts a held-out item above all others in the rounds it is told to, and below them in the others."""

    logits = True

    def __init__(self, clients):
        self.clients = clients

    def train_round(self, round_):
        self.round = round_
        return Report(0.0, len(self.clients), 0, 0, 0.0, 0.0)

    def scores(self, who, items):
        found = torch.zeros(items.shape)
        for part, hits in HITS.items():
            target = items == self.clients.held_out[part][who].unsqueeze(1)
            up = torch.tensor(hits[self.round - 1])[who].unsqueeze(1).expand_as(target)
            found[target] = torch.where(up == 1, 1.0, -1.0)[target]
        return found

    def tensors(self):
        return {}

    def notes(self, rounds):
        return {"rounds_done": rounds}


def test_the_three_rules_report_three_rounds(tmp_path):
    """round."""
    split = split_of([(user, item, item) for user in (0, 1) for item in (A, B, C)], 40, candidates=15)
    clients = clients_of(split)
    run = Training(clients, Scripted(clients), rounds=3, out=tmp_path, identity={"method": "scripted"})
    found = run.train()
    assert [[sum(hits) / 2 for hits in curve] for curve in HITS.values()] == [
        [1.0, 0.5, 0.5],
        [0.5, 1.0, 0.5],
    ]
    assert [found["rounds"][rule] for rule in REPORTED] == [1, 2, 3]
    assert [found["metrics"][rule]["test"]["hr@10"] for rule in REPORTED] == [0.5, 1.0, 0.5]


def test_a_saturated_sigmoid_ties_and_the_tie_costs_the_target():
    """ties."""
    logits = torch.tensor([[40.0, 30.0, 20.0]])
    probability = torch.sigmoid(logits)
    assert probability.tolist() == [[1, 1, 1]]
    assert torch.sigmoid(torch.tensor([16.0, 17.0])).eq(1).tolist() == [False, True]
    for scores, last, mean in ((logits, 1, 1), (probability, 3, 2)):
        assert rank_of_target(scores[:, 0], scores[:, 1:], "target_last").tolist() == [last]
        assert rank_of_target(scores[:, 0], scores[:, 1:], "target_mean").tolist() == [mean]


@pytest.mark.parametrize("k", [0, 1, 99])
def test_the_rank_among_k_equals(k):
    """ties."""
    target, others = torch.zeros(1), torch.zeros(1, k)
    assert rank_of_target(target, others, "target_last").tolist() == [1 + k]
    assert rank_of_target(target, others, "target_mean").tolist() == [1 + k / 2]
    assert rank_of_target(target * torch.nan, others, "target_mean").tolist() == [1 + k]


@pytest.fixture
def without_times(tmp_path, write_catalogue):
    """The file of the section, prepared: users u and v, items A to D, and unseen items of another user."""
    pairs = [*zip("uuuvvv", "ABCCDA", strict=True), *(("w", item) for item in "EFG")]
    (tmp_path / "made.csv").write_text("".join(f"{user},{item},1,0\n" for user, item in pairs))
    made = entry("made.csv", time="first_appearance")
    made["interactions"]["format"]["ids"] = "text"
    return prepare(load_catalogue(write_catalogue(made=made))["made"], tmp_path).interactions


def test_by_first_appearance_the_last_item_of_the_file_is_held_out_and_cold(without_times, protocols):
    """order."""
    first = dict(zip(without_times.item.tolist(), without_times.time.tolist(), strict=True))
    assert [first[item] for item in (A, B, C, D)] == [0, 1, 2, 4]
    split = make_split(without_times, replace(protocols[PUBLISHED], candidates=1))
    assert parts(split, user=0) == [[A], [B], [C]]
    assert parts(split, user=1) == [[A], [C], [D]]
    trained = split.pairs_of(TRAIN)[1].tolist()
    assert C not in trained
    assert D not in trained


def test_clean_holds_out_any_item_where_there_are_no_times(without_times, protocols):
    """order."""
    found = Counter()
    for seed in range(150):
        split = make_split(without_times, replace(protocols["clean"], candidates=1, seed=seed))
        found[parts(split, user=1)[2][0]] += 1
    # A third each, with a standard error of 0.04.
    assert sorted(found) == [A, C, D]
    assert np.array([*found.values()]) / 150 == pytest.approx(1 / 3, abs=0.15)


def test_of_equal_times_the_first_row_is_held_out(protocols):
    """order."""
    rows = [(0, item, 7) for item in (A, B, C, D)]
    assert parts(split_of(rows, 6, PUBLISHED, candidates=1)) == [[C, D], [B], [A]]
    interactions = made_interactions(rows, items=6)
    seeded = [replace(protocols["clean"], candidates=1, seed=seed) for seed in range(40)]
    assert {parts(make_split(interactions, one))[2][0] for one in seeded} == {A, B, C, D}


@pytest.mark.parametrize(("protocol", "low", "high"), [(PUBLISHED, 1.0, 1.0), ("clean", 0.05, 0.15)])
def test_the_draw_counter_on_random_data(protocol, low, high):
    """Three references: 400 users, so the standard error of chance is 0.015."""
    counter = DrawCounter(clients_of(uniform_noise(protocol=protocol)), {"negatives": 4}, seed=0)
    for round_ in range(1, 31):
        counter.train_round(round_)
    ranks = candidate_ranks(counter, counter.clients, "test")
    assert low <= float((ranks <= 10).float().mean()) <= high


@pytest.mark.parametrize("reference", ["popularity", "local-only", "draw-counter"])
def test_the_references_have_the_numbers_of_the_results(reference):
    """Three references."""
    results = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    published, clean = re.search(rf"\| `{reference}` .*\| ([\d.]+) / .*\| ([\d.]+) / ", results).groups()
    assert re.search(rf"\| `{reference}` \|.*\| {published} \| {clean} \|", DOCUMENT)


def test_the_area_of_the_attackers():
    """How to read the audit, uploads: training items A and B; A, B, E, F moved, the last two the other way."""
    trained = [1, 1, 0, 0, 0, 0]
    moved = np.array([1, 1, 0, 0, -1, -1])
    assert roc_auc_score(trained, np.abs(moved)) == 0.75
    assert roc_auc_score(trained, moved) == 1.0


def test_the_least_number_of_seeds():
    """How to read the audit, significance."""
    assert [2 / 2**seeds for seeds in (5, 6)] == [0.0625, 0.03125]


def test_the_granularity_of_a_hit_rate():
    """How to read the audit, granularity."""
    reachable = {round(hits / 943, 4) for hits in range(944)}
    assert round(942 / 943, 4) == 0.9989
    assert round(len(reachable) / 10_001, 2) == 0.09


def test_the_protocol_of_the_example_can_be_used(tmp_path):
    """Your own protocol: `clean` with more candidates."""
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT, re.S)
    (tmp_path / "protocols.yaml").write_text(text)
    many = load_protocols(tmp_path / "protocols.yaml")["many"]
    clean = load_protocols(ROOT / "config/protocols.yaml")["clean"]
    assert many.candidates > clean.candidates
    assert replace(many, name="clean", candidates=clean.candidates) == clean


def test_the_pool_of_neutral_has_neither_held_out_items_nor_candidates():
    """Two neutral pools."""
    neutral = replace(load_protocols(ROOT / "config/protocols.yaml")["neutral"], candidates=2)
    changes = {key: value for key, value in neutral.as_dict().items() if key != "name"}
    split = split_of(history(A, B, C, D), 10, **changes)
    listed = {*split.candidates.validation[0].tolist(), *split.candidates.test[0].tolist()}
    drawn = set(pool(split))
    assert drawn == set(range(10)) - {A, B, C, D} - listed
    assert len(drawn) == 2


def test_the_columns_of_neutral_are_those_of_clean_but_for_the_pool():
    """What differs."""
    lines = re.findall(r"^\| ([a-z(][^|]*) \| [^|]+ \| [^|]+ \| ([^|]+) \|$", DOCUMENT, re.M)
    told = [other for choice, other in lines if choice != "choice"]
    assert len(told) == 8
    assert [other == "as `clean`" for other in told] == [False, *[True] * 7]


def test_an_order_of_rows_decides_which_test_items_are_cold(without_times, protocols):
    """`order`, the file: u has A, B, C; v has C, D, A; w has items of its own, which are always cold."""
    rules = replace(protocols["published-fedrap"], candidates=1)
    rows = {name: order_row(make_split(one, rules)) for name, one in orders_of(without_times).items()}
    assert {name: row["cold"] for name, row in rows.items()} == {
        "an item's first appearance": 1.0,
        # u's and v's test items, A and C in some order, are for training of the other.
        "first row the latest": 1 / 3,
        "last row the latest": 1 / 3,
    }
    assert all((row["users"], row["own"]) == (3, 0.0) for row in rows.values())


def test_times_of_histories_are_counted_by_hand():
    """Time: two users of three rows; of the other's rows, those after one's last are later."""
    user, day = np.array([0, 0, 0, 1, 1, 1]), 24 * 3600
    time = np.array([0, 10, 20, 0, 3600, day + 1])
    assert times_row(user, time) == {
        "users": 2,
        "within_hour_percent": 50.0,
        "within_day_percent": 50.0,
        # After second 20 there are two of the three rows of the other user, after the day none.
        "later_rows_of_others_percent": 100 * (2 / 3 + 0) / 2,
    }


def test_whom_a_split_at_one_time_leaves_is_counted_by_hand(protocols):
    """One time for all users: of ten rows five lie before the time 5."""
    stays = [(0, A, 1), (0, B, 2), (0, C, 5), (0, D, 6), (0, E, 7)]
    left, joined, met_one = [(1, A, 3), (1, B, 4)], [(2, A, 8)], [(3, A, 4), (3, F, 9)]
    interactions = made_interactions([*stays, *left, *joined, *met_one], items=12)
    assert cut_row(interactions, replace(protocols["temporal"], candidates=1), 0.5) == {
        "users": 4,
        "stay": 1,
        "stay_percent": 25.0,
        "left": 1,
        "joined": 2,
        "rows_percent": 40.0,
        "median_rows": 5.0,
        # Of 5, 2, 1 and 2 rows.
        "median_rows_of_all": 2.0,
        # D and E, of the nine items besides A, B and C.
        "later_percent": pytest.approx(100 * 2 / 9),
        # Nobody is trained on C.
        "cold_percent": 100.0,
    }
