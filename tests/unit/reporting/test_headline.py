"""The finding in words: true for whatever runs there are."""

from dataclasses import replace

import pytest

from fedrec.config.methods import resolve
from fedrec.errors import ResultError
from fedrec.plan.runs import RunId
from fedrec.reporting.headline import headline, largest_group, rounds_sentence, seeds_sentence
from fedrec.reporting.method_scores import MethodScore, method_scores, read_method_scores, rows_of
from fedrec.reporting.tables.table import csv_text
from tests.federations import METHODS
from tests.made_runs import write_run

KINDS = {
    "popularity": "reference", "draw-counter": "reference", "pfedclr": "personalised", "fedem": "personalised",
    "fedmf": "federated", "mf": "centralised",
}  # fmt: skip
HITS = {
    "popularity": (0.41, 0.40), "draw-counter": (1.0, 0.0997), "pfedclr": (0.99, 0.27), "fedem": (0.97, 0.11),
    "fedmf": (0.51, 0.46), "mf": (0.68, 0.64),
}  # fmt: skip


def standing(method, protocol, **changes):
    value = HITS[method][protocol == "clean"]
    about = {
        "dataset": "ml-100k", "protocol": protocol, "method": method, "title": method.upper(),
        "kind": KINDS[method], "value": value, "low": value - 0.03, "high": value + 0.03, "users": 943, "seeds": 1,
        "chance": 0.1, "above": value - 0.4, "above_low": value - 0.43, "above_high": value - 0.37, "rounds": 100,
        "own_rounds": 100, "paper": "pfedclr", "runs": "runs/x",
    }  # fmt: skip
    return MethodScore(**(about | changes))


def stand(*methods, protocols=("published", "clean"), **changes):
    return [standing(method, protocol, **changes) for method in methods for protocol in protocols]


def test_with_everything_it_says_everything():
    assert headline(stand(*HITS)) == [
        "On ml-100k, a counter without any model reaches HR@10 1.00 under the published protocol and 0.10 under "
        "the clean one; chance is 0.10.",
        "The counter ranks items by how rarely the client sampled them as negatives. Under the published protocol "
        "no client ever samples its held-out item.",
        "Mean HR@10, from the published protocol to the clean one: 0.98 to 0.19 for 2 methods whose clients keep "
        "item tables; 0.51 to 0.46 for 1 federated method with the server's item table alone (FEDMF); 0.68 to "
        "0.64 for 1 centralised method (MF).",
        "Under the clean protocol 1 of 3 federated methods beats popularity (HR@10 0.40); its 95 % interval over "
        "943 users excludes zero. Basis: 12 runs, one seed each.",
    ]


def test_without_the_counter_it_speaks_of_the_methods():
    first, *_ = headline(stand("pfedclr", "fedem", "fedmf"))
    assert first == (
        "On ml-100k, the mean HR@10 of 2 methods whose clients keep item tables falls from 0.98 to 0.19 from the "
        "published protocol to the clean one; chance is 0.10."
    )


@pytest.mark.parametrize(
    ("clean", "words"),
    [(0.512, "stays at 0.51"), (0.6, "rises from 0.51 to 0.60"), (0.3, "falls from 0.51 to")],
)
def test_what_does_not_fall_is_not_said_to_fall(clean, words):
    found = [standing("fedmf", "published"), standing("fedmf", "clean", value=clean)]
    assert f"(FEDMF) {words}" in headline(found)[0]


def test_with_the_clean_protocol_alone_it_says_nothing_of_the_leak():
    (first, last) = headline(stand(*HITS, protocols=("clean",)))
    assert first == (
        "On ml-100k, under the clean protocol alone, MF has the highest HR@10, 0.64; chance is 0.10. There are no "
        "runs under the published protocol."
    )
    assert last.startswith("Under the clean protocol 1 of 3 federated methods")


def test_from_the_published_protocol_alone_nothing_follows():
    first, last = headline(stand("pfedclr", "fedmf", protocols=("published",)))
    assert first == (
        "On ml-100k there are runs under published alone. Without runs under the clean protocol, nothing follows "
        "from them."
    )
    assert last == "Basis: 2 runs, one seed each."


def test_without_runs_there_is_no_finding():
    assert headline([]) == []
    assert largest_group([]) == []


def test_it_speaks_of_the_dataset_with_the_most_methods_as_one_paper_sets_them():
    few, many = stand("fedmf", dataset="filmtrust"), stand("fedmf", "pfedclr", dataset="ml-1m")
    assert headline(largest_group([*few, *many]))[0].startswith("On ml-1m, the HR@10 of 1 method")
    # As many methods, and more seeds; not fewer methods, whatever their seeds.
    often = [replace(one, seeds=5) for one in stand("fedmf", dataset="ml-1m")]
    assert {one.dataset for one in largest_group([*few, *often])} == {"ml-1m"}
    more = stand("fedmf", "pfedclr", dataset="filmtrust")
    assert {one.dataset for one in largest_group([*more, *often])} == {"filmtrust"}
    # The first of equals, and one paper's settings alone.
    assert {one.dataset for one in largest_group([*few, *stand("fedmf", dataset="ml-1m")])} == {"filmtrust"}
    assert {
        one.paper for one in largest_group([*few, *stand("fedmf", paper="fedem", dataset="filmtrust")])
    } == {"pfedclr"}


def test_nobody_above_popularity_is_said_so_and_one_user_more_is_not_sure():
    found = [*stand("popularity", "fedem"), *stand("fedmf", above_low=-0.01)]
    assert (
        "1 of 2 federated methods beats popularity (HR@10 0.40); its 95 % interval over 943 users includes zero."
        in headline(found)[-1]
    )
    assert (
        "none of 1 federated methods beat popularity (HR@10 0.40). Basis"
        in headline(stand("popularity", "fedem"))[-1]
    )
    two = [*stand("popularity", "fedmf"), standing("pfedclr", "clean", value=0.5, above_low=-0.01)]
    assert (
        "2 of 2 federated methods beat popularity (HR@10 0.40); for 1 of them the 95 % interval"
        in headline(two)[-1]
    )


def test_without_popularity_nothing_is_said_of_it():
    assert not any("popularity" in sentence for sentence in headline(stand("fedmf", "draw-counter")))


def test_unlike_levels_of_chance_are_not_one():
    found = [standing("draw-counter", "published", chance=0.5), standing("draw-counter", "clean")]
    assert "chance" not in headline(found)[0]
    assert "chance" not in headline(stand("draw-counter", chance=None))[0]


def test_fewer_rounds_than_the_papers_are_said():
    found = [*stand("popularity", rounds=1, own_rounds=1), *stand("fedmf", "fedem", rounds=20)]
    assert headline(found)[-1].endswith(
        "Basis: 6 runs, one seed each; after 20 rounds, where the papers train 100."
    )
    assert rounds_sentence(found).startswith(
        "4 of 6 numbers are after 20 rounds, where the papers train 100."
    )
    found = [replace(one, rounds=5) if one.method == "fedem" else one for one in found]
    assert "after 5 to 20 rounds" in rounds_sentence(found)
    assert rounds_sentence(stand("fedmf")) == ""


def test_seeds_are_counted():
    assert seeds_sentence(stand("fedmf", seeds=3)) == "6 runs, 3 seeds each; numbers are means."
    assert seeds_sentence([standing("fedmf", "clean")]) == "1 run, one seed each."


@pytest.fixture
def found(tmp_path):
    ranks = {
        "popularity": [1] * 20 + [50] * 30,
        "fedmf[rounds=20]": [1] * 40 + [50] * 10,
        "fedrap": [50] * 50,
    }
    records = [
        write_run(
            tmp_path, RunId("pfedclr", "ml-100k", protocol, method, seed), METHODS, ranks=of_method,
            final_at=dict.fromkeys(("best_validation", "best_test"), of_method.count(1) / 50),
        )
        for method, of_method in ranks.items()
        for protocol in ("published-pfedclr", "clean")
        for seed in (0, 1)
    ]  # fmt: skip
    return method_scores(records, METHODS)


def test_standings_come_from_runs_over_seeds_with_intervals_over_users(found):
    by = {(one.title, one.protocol): one for one in found}
    assert len(by) == len(found) == 6
    fedmf = by["FedMF", "clean"]
    assert (fedmf.kind, fedmf.users, fedmf.seeds) == ("federated", 50, 2)
    assert fedmf.value == pytest.approx(0.8)
    assert 0.6 < fedmf.low < 0.8 < fedmf.high < 1.0
    assert fedmf.above == pytest.approx(0.4)
    assert 0.2 < fedmf.above_low < 0.4 < fedmf.above_high < 0.6
    assert (fedmf.rounds, fedmf.own_rounds) == (
        20,
        resolve(METHODS, "fedmf", "pfedclr", "ml-100k")[0]["rounds"],
    )
    assert fedmf.runs.split() == [f"runs/pfedclr/ml-100k/clean/fedmf@rounds-20/seed{seed}" for seed in (0, 1)]
    assert (by["FedRAP", "clean"].low, by["FedRAP", "clean"].high) == (0.0, 0.0)
    assert by["FedRAP", "clean"].kind == "personalised"


def test_standings_are_read_back_from_their_csv(found, tmp_path):
    path = tmp_path / "found.csv"
    path.write_text(csv_text(rows_of(found)))
    assert read_method_scores(path) == found
    path.write_text(csv_text([{**row, "kind": "other"} for row in rows_of(found)]))
    with pytest.raises(ResultError, match=r"found\.csv: the file is damaged"):
        read_method_scores(path)


def test_the_one_seed_of_all_runs_is_named():
    assert seeds_sentence(stand("fedmf", runs="runs/x/seed0")) == "2 runs, seed 0."
    apart = [standing("fedmf", "clean", seeds=5), standing("fedmf", "published")]
    assert (
        seeds_sentence(apart)
        == "6 runs. Seeds of each number: clean: 5; published: 1. Numbers of several seeds are means."
    )
