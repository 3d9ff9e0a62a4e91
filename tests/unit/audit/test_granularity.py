from fractions import Fraction

import numpy as np
import pytest

from fedrec.audit.granularity import ALL_TABLES, granularity_rows
from fedrec.config.catalogue import load_catalogue
from fedrec.config.printed import Printed
from fedrec.reporting.tables.audit.granularity import granularity_table, users_of
from tests.conftest import entry


def fraction(value):
    return Printed(float(f"{value:.4f}"), None, "fraction", 4)


def numbers(values, table="Table 1", variant="", metric="hr@10", spelt=fraction):
    return {
        ("paper", table, "data", f"method {place}", variant, metric): spelt(value)
        for place, value in enumerate(values)
    }


def rows_of(users, *groups):
    merged = {key: number for group in groups for key, number in group.items()}
    return granularity_rows({("paper", "data"): users}, merged)


def single_runs(users, count, seed=0):
    return np.random.default_rng(seed).integers(users // 4, users, count) / users


def averages(users, count, seed=0):
    return np.mean([single_runs(users, count, (seed, run)) for run in range(5)], axis=0)


def test_single_runs_are_found():
    (row,) = rows_of(943, numbers(single_runs(943, 10)))
    assert (row["users"], row["values"], row["single_matches"], row["average_matches"]) == (943, 10, 10, 10)
    assert row["single_p"] == pytest.approx(row["single_chance"] ** 10)
    assert row["finding"] == "single runs"


def test_averages_of_five_are_found():
    (row,) = rows_of(943, numbers(averages(943, 40)))
    assert row["average_matches"] == row["values"]
    assert row["single_matches"] < 16
    assert row["finding"] == "averages"


def test_true_averages_are_never_taken_for_single_runs():
    found = [
        rows_of(users, numbers(averages(users, count, seed)))[0]["finding"]
        for users in (120, 943, 1874)
        for count in (4, 12, 60)
        for seed in range(30)
    ]
    assert not {"single runs", "some single runs", "neither"} & set(found)
    assert found.count("averages") > 150


def test_nothing_can_be_told_of_many_users_or_few_numbers():
    (row,) = rows_of(24516, numbers(single_runs(24516, 60)))
    assert (row["single_chance"], row["single_p"], row["finding"]) == (1, 1, "cannot tell")
    (row,) = rows_of(943, numbers(single_runs(943, 2)))
    assert (row["single_matches"], row["finding"]) == (2, "cannot tell")


def test_numbers_of_other_users_are_neither():
    (row,) = rows_of(120, numbers(averages(943, 12)))
    assert row["finding"] == "neither"


def test_a_misprint_does_not_hide_single_runs_and_many_averages_do():
    singles = single_runs(943, 12)
    off = 0.5 + 0.5 / 943
    assert rows_of(943, numbers([*singles, off]))[0]["finding"] == "single runs"
    (mixed,) = rows_of(943, numbers([*singles, *averages(943, 12)]))
    assert mixed["finding"] == "some single runs"


def test_chance_is_the_share_of_the_grid_that_rounded_multiples_cover():
    (row,) = rows_of(120, numbers([0.5]))
    for name, parts in (("single", 120), ("average", 600)):
        cells = {round(Fraction(k, parts) * 10_000) for k in range(parts + 1)}
        assert row[f"{name}_chance"] == len(cells) / 10_001
    # Every fifth multiple of 1/600 is one of 1/120, and no other rounds to one.
    assert row["single_claimed"] == 121 / 601


def test_a_half_may_be_rounded_either_way():
    def percent(value):
        return Printed(value, None, "percent", 0)

    found = [rows_of(8, numbers([value], spelt=percent))[0]["single_matches"] for value in (12, 13, 14, 50)]
    assert found == [1, 1, 0, 1]


def test_the_tail_by_hand():
    def one_digit(value):
        return Printed(value, None, "fraction", 1)

    # Of the 11 numbers with one digit, 0, 0.5 and 1 are multiples of 1/2.
    (row,) = rows_of(2, numbers([0.5, 0.3, 0.2], spelt=one_digit))
    share = 3 / 11
    assert row["single_chance"] == share
    assert row["single_p"] == pytest.approx(1 - (1 - share) ** 3)


def test_percent_and_lost_zeros_count_as_the_paper_prints():
    singles = single_runs(943, 12)

    def percent(value):
        text = f"{100 * value:.2f}".rstrip("0")
        return Printed(float(text), None, "percent", len(text.partition(".")[2]))

    (row,) = rows_of(943, numbers(singles, spelt=percent))
    (plain,) = rows_of(943, numbers(singles))
    assert row == plain


def test_repeated_numbers_count_once_and_all_tables_are_taken_together():
    singles = single_runs(943, 6)
    rows = rows_of(
        943,
        numbers(singles[[0, 1, 2, 2]]),
        numbers(singles[2:], table="Table 2", metric="hr@5"),
        numbers(singles, metric="ndcg@10"),
        numbers([3.5], metric="hr@10 relative gain"),
    )
    assert [(row["table"], row["values"]) for row in rows] == [
        ("Table 1", 3), ("Table 2", 4), (ALL_TABLES, 6),
    ]  # fmt: skip
    assert [row["finding"] for row in rows] == ["cannot tell", "cannot tell", "single runs"]


def test_hit_ratios_over_part_of_the_users_are_left_out_and_said():
    (row,) = rows_of(
        943,
        numbers(single_runs(943, 6)),
        numbers([0.9], variant="inactive users"),
        numbers([0.9, 0.8], variant="ML-1M subset 500 users #1"),
    )
    assert (row["values"], row["left_out"]) == (6, 3)
    assert "paper, data, Table 1: hit ratios over part of the users, left out: 3." in (
        granularity_table([row]).markdown()
    )


def test_unknown_users_are_said():
    (row,) = granularity_rows({}, numbers([0.5, 0.6]))
    assert (row["users"], row["values"], row["finding"]) == (None, 2, "users unknown")
    line = granularity_table([row]).markdown().splitlines()[4]
    assert line.split("|")[4].strip() == "–"
    assert "users unknown" in line


def test_what_the_papers_print_on_movielens_100k():
    papers = ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap")
    rows = granularity_rows({(paper, "ml-100k"): 943 for paper in papers})
    found = {(row["paper"], row["table"]): row for row in rows if row["dataset"] == "ml-100k"}
    for paper in ("pfedclr", "fedem"):
        whole = found[paper, ALL_TABLES]
        assert whole["single_matches"] == whole["values"] >= 20
        assert whole["finding"] == "single runs"
    assert found["pfedrec", ALL_TABLES]["finding"] == "averages"
    assert found["pfedrec", "Table 10"]["left_out"] == 1


def test_users_are_those_of_our_split_or_else_those_printed(write_catalogue):
    printed = {"table": "Table 3", "users": 10, "items": 20, "interactions": 50, "sparsity": 75.0}
    catalogue = load_catalogue(
        write_catalogue(
            alpha=entry("alpha.csv", papers=["pfedrec", "fedrap"], published={"pfedrec": printed}),
            beta=entry("beta.csv", papers=["pfedrec"], published={"pfedrec": printed}),
            gamma=entry("gamma.csv", papers=["pfedrec"]),
        )
    )
    described = {"alpha": {"users": 9, "splits": {"published-pfedrec": {"users": 8}}}}
    assert users_of(catalogue, described) == {
        ("pfedrec", "alpha"): 8,
        ("fedrap", "alpha"): 9,
        ("pfedrec", "beta"): 10,
    }
