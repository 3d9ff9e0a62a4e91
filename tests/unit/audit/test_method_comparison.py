"""Methods compared on one split: the best on validation, numbers by hand, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedrec
from fedrec.audit.method_comparison import comparison_rows
from fedrec.audit.significance import compare, holm
from fedrec.errors import ComparisonError
from fedrec.evaluation.metrics import per_user
from tests.federations import planted_blocks
from tests.trained_runs import finished, shared_results

SEEDS = (0, 1)
METHODS = ("popularity", "draw-counter", "ease")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return shared_results(tmp_path_factory, "compared runs", planted_blocks, users=12, items=60)


@pytest.fixture
def runs(folder):
    return [finished(folder, method, "clean", "rounds=1", seed=seed) for method in METHODS for seed in SEEDS]


def of_method(runs, method, metric):
    own = [run for run in runs if run.id.method.startswith(method)]
    ranks = [run.user_ranks(catalogue=metric.startswith("exact")).rank for run in own]
    return np.mean([per_user(rank, metric.removeprefix("exact_")) for rank in ranks], axis=0)


def test_the_table_has_the_numbers_of_the_runs(runs):
    with pytest.warns(UserWarning, match="2 seeds of a method.*needs 6"):
        table = fedrec.compare(runs)
    metrics = ["hr@10", "ndcg@10", "exact_hr@10", "exact_ndcg@10"]
    assert table["metric"].unique(maintain_order=True).to_list() == metrics
    assert set(table["seeds"]) == {2}
    for metric in metrics:
        best, *others = table.filter(pl.col("metric") == metric).to_dicts()
        values = of_method(runs, best["method"].partition("[")[0], metric)
        assert (best["value"], best["difference"]) == (pytest.approx(values.mean()), None)
        tested = [compare(of_method(runs, row["method"].partition("[")[0], metric), values) for row in others]
        assert [row["difference"] for row in others] == [one.difference for one in tested]
        assert [row["wilcoxon_holm"] for row in others] == holm([one.wilcoxon for one in tested])
        assert {row["against"] for row in others} == {best["method"]}


def test_validation_chooses_and_test_does_not(runs):
    """Ranks of test items are turned round: the order of methods stays."""
    rows = comparison_rows(runs)
    turned = comparison_rows(
        [
            type("Turned", (type(run),), {"user_ranks": _turned})(run.folder, run.data, run.device)
            for run in runs
        ]
    )
    validation = [row["validation"] for row in rows[: len(METHODS)]]
    assert validation == sorted(validation, reverse=True)
    assert [row["method"] for row in turned] == [row["method"] for row in rows]
    assert [row["value"] for row in turned] != [row["value"] for row in rows]


def _turned(self, rule=None, *, catalogue=False):
    ranks = super(type(self), self).user_ranks(rule, catalogue=catalogue)
    return replace(ranks, rank=61 - ranks.rank)


def test_seeds_are_tested_where_there_are_enough(folder, recwarn):
    runs = [
        finished(folder, method, "clean", "rounds=1", seed=seed)
        for method in METHODS[:2]
        for seed in range(6)
    ]
    table = fedrec.compare(runs)
    assert not len(recwarn)
    assert table["over_seeds"].drop_nulls().len() == 4
    # A method that trains nothing is the same with every seed; the other is better or worse with each.
    assert all(math.isclose(p, 2 / 2**6) or p > 2 / 2**6 for p in table["over_seeds"].drop_nulls())


def test_runs_that_do_not_belong_together_are_refused(folder, runs):
    for wrong, said in (
        ([], "No runs to compare"),
        ([*runs, runs[0]], "second run of popularity"),
        (
            [*runs, finished(folder, "popularity", "published", "rounds=1")],
            "not on the split|Compare runs of one",
        ),
    ):
        with pytest.raises(ComparisonError, match=said):
            fedrec.compare(wrong)


def test_a_method_whose_runs_diverged_has_a_row_without_numbers(runs):
    lost = runs[2:4]
    for run in lost:
        run.__dict__["summary"] = {**run.summary, "diverged": {"round": 1, "why": "it is told to."}}
    with pytest.warns(UserWarning, match="seeds"):
        table = fedrec.compare([*runs[:2], *lost])
    (row,) = table.filter(pl.col("method") == lost[0].id.method, pl.col("metric") == "hr@10").to_dicts()
    assert (row["seeds"], row["diverged"], row["value"], row["difference"]) == (0, 2, None, None)
