"""The one count of verdicts: every row falls into one part, and only what was reproduced makes the headline."""

import csv
from dataclasses import replace

import pytest

from fedrec.audit.verdict_summary import (
    ALL,
    UNTUNED,
    VerdictSummary,
    is_reproduced,
    summarise_verdicts,
    summary_sentences,
)
from fedrec.config.methods import load_methods
from fedrec.config.tuning import load_tuning
from fedrec.plan.trials import stages
from tests.conftest import ROOT

FIVE, ONE = "0 1 2 3 4", "0"
NOTHING = VerdictSummary(0, 0, 0, 0, 0, 0, 0, 0, 0)


def row(published, clean, seeds=FIVE, **changes):
    about = {"metric": "hr@10", "dataset": "ml-100k", "published_verdict": published, "verdict": clean}
    return about | {"published_seeds": seeds, "clean_seeds": seeds} | changes


@pytest.mark.parametrize(
    ("one", "part"),
    [
        (row("holds", "reversed"), {"reproduced": 1, "reproduced_reversed": 1}),
        (row("holds", "reversed", ONE), {"few_seeds_reversed": 1}),
        (row("holds", "reversed", published_seeds=ONE), {"few_seeds_reversed": 1}),
        (row("holds", "reversed", clean_seeds=ONE), {"few_seeds_reversed": 1}),
        (row("weaker", "reversed"), {"unfound_reversed": 1}),
        (row("reversed", "reversed", ONE), {"unfound_reversed": 1}),
        (row("diverges", "reversed"), {"unfound_reversed": 1, "unfound_diverged": 1}),
        (row("holds", "weaker"), {"reproduced": 1, "weaker": 1}),
        (row("weaker", "weaker"), {"weaker": 1}),
        (row("holds", "holds"), {"reproduced": 1, "holds": 1}),
        (row("holds", "holds", ONE), {"holds": 1}),
        (row("holds", "diverges"), {"diverges": 1}),
        (row("not testable here", "not testable here", None), {"untested": 1}),
    ],
)
def test_each_row_falls_into_one_part(one, part):
    summary = summarise_verdicts([one])
    assert summary == replace(NOTHING, **part)
    assert summary.rows == 1
    assert summary.decided == (one["verdict"] in ("holds", "weaker", "reversed"))


def test_other_metrics_and_claims_as_a_whole_are_not_counted():
    rows = [row("holds", "reversed", metric="ndcg@10"), row("holds", "holds 1", dataset=ALL)]
    assert summarise_verdicts(rows) == NOTHING
    assert summary_sentences(NOTHING) == []


def test_the_sentences_name_every_part_and_leave_out_empty_ones():
    every = VerdictSummary(33, 33, 18, 53, 10, 19, 11, 12, 16)
    first, rest = summary_sentences(every)
    assert first.startswith(f"Of {every.decided} decided claims")
    assert " 33 are reproduced" in first
    for words in ("53 reversed but not found", "(10 diverge there)", "18 reversed with fewer", "19 weaker"):
        assert words in rest
    for words in ("11 that hold", "12 with runs that diverge", "16 that lack data", UNTUNED):
        assert words in rest
    _, alone = summary_sentences(replace(NOTHING, reproduced=1, reproduced_reversed=1))
    assert alone == UNTUNED


def test_the_reference_is_counted_as_by_hand():
    with (ROOT / "results/reference/tables/verdicts.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    summary = summarise_verdicts(rows)
    by_hand = [
        one
        for one in rows
        if (one["metric"], one["verdict"], one["published_verdict"]) == ("hr@10", "reversed", "holds")
        and one["published_seeds"] == one["clean_seeds"] == FIVE
    ]
    assert summary.reproduced_reversed == len(by_hand)
    # Every run behind these has its five seeds: lines and rivals, under both protocols.
    assert all(len(one[key].split()) == 10 for one in by_hand for key in ("runs", "runs_against"))
    assert all(map(is_reproduced, by_hand))
    single = [one for one in rows if one["metric"] == "hr@10" and one["dataset"] != ALL]
    assert summary.rows == len(single)


def test_no_search_is_made_under_the_clean_protocol():
    """So it is stated, where claims are counted."""
    methods = load_methods(ROOT / "config/methods.yaml")
    tuning = load_tuning(ROOT / "config/tuning.yaml", methods)
    protocols = {
        run.protocol
        for search in tuning.searches.values()
        for stage in stages(search, tuning, methods, lambda _: None)
        for run in stage.runs.values()
    }
    assert protocols
    assert all(protocol.startswith("published-") for protocol in protocols)
