"""The one count of verdicts: every row falls into one part, and what does not count is counted by itself."""

import csv
import re
from collections import Counter

import pytest

from fedrec.audit.verdict_summary import (
    ALL,
    UNTUNED,
    VerdictSummary,
    deciding_rows,
    is_counted,
    summarise_verdicts,
    summary_sentences,
)
from fedrec.audit.verdicts import NOT_FOUND, OPEN, TOO_FEW, VERDICTS
from fedrec.config.conditions import CONDITIONS, MAIN
from fedrec.config.document import Document
from fedrec.config.found_file import with_findings
from fedrec.config.methods import Methods, load_methods, resolve
from fedrec.config.tuning import has_tuned, load_tuning
from fedrec.plan.runs import papers_in
from tests.conftest import ROOT

FIVE, ONE = "0 1 2 3 4", "0"


def row(verdict, seeds=FIVE, **changes):
    about = {"paper": "pfedrec", "claim": "pfedrec-beats-federated", "kind": "beats"}
    about |= {"metric": "hr@10", "dataset": "ml-100k", "not_counted": "", "clean_decides": "yes"}
    about |= {"published_verdict": "not found", "clean_verdict": verdict, "clean_seeds": seeds}
    return about | changes


@pytest.mark.parametrize("verdict", VERDICTS)
def test_each_row_falls_into_one_part(verdict):
    summary = summarise_verdicts([row(verdict)])
    assert summary == VerdictSummary({verdict: 1})
    assert (summary.rows, summary.judged) == (1, verdict not in OPEN)


def test_what_the_judged_rest_on_is_counted():
    rows = [row("reversed", ONE), row("holds", metric="exact_hr@10"), row("not reproduced", ONE)]
    summary = summarise_verdicts(rows)
    assert (summary.rows, summary.judged) == (3, 2)
    assert (summary.with_one_seed, summary.by_exact_ranks) == (1, 1)


def test_datasets_that_do_not_count_are_counted_by_themselves():
    rows = [row("reversed"), row("reversed", dataset="filmtrust", not_counted="popularity finds all")]
    assert summarise_verdicts(rows) == VerdictSummary({"reversed": 1}, not_counted=1)
    first, rest = summary_sentences(rows)
    assert "fedrec judges 1 of 1 claims" in first
    assert "Not among the 1: 1 on filmtrust." in rest


def test_what_holds_with_other_numbers_is_counted_among_what_is_not_reproduced():
    rows = [
        *(row("not reproduced", published_verdict=one) for one in ("holds", "smaller", "reversed")),
        row("holds", published_verdict="holds"),
    ]
    assert summarise_verdicts(rows).found_published == 2
    _, rest = summary_sentences(rows)
    assert (
        "Not judged: not reproduced 3. Of the 3 not reproduced, 2 show the printed effect under the paper's own "
        "protocol, but other numbers."
    ) in rest
    _, rest = summary_sentences(rows[-1:])
    assert "show the printed effect" not in rest


def test_what_repeats_another_claim_is_counted_by_itself():
    rows = [
        row("reversed"),
        row("diverges", clean_repeats="pfedrec-one"),
        row("holds", clean_repeats="pfedrec-one", dataset="filmtrust", not_counted="popularity finds all"),
    ]
    assert summarise_verdicts(rows) == VerdictSummary({"reversed": 1}, not_counted=1, repeated=1)
    assert "Not among the 1: 1 on filmtrust, 1 that repeat another claim." in summary_sentences(rows)[1]


def test_rows_that_do_not_decide_are_not_counted():
    rows = [
        row("reversed", metric="ndcg@10", clean_decides=""),
        row("holds 1", dataset=ALL, clean_decides=None),
    ]
    assert summarise_verdicts(rows) == VerdictSummary({})
    assert summary_sentences(rows) == []
    assert summary_sentences([row("not testable here")]) == []


def test_the_sentences_name_every_part_and_leave_out_empty_ones():
    numbers = dict(zip(VERDICTS, range(11, 11 + len(VERDICTS)), strict=True))
    rows = [row(verdict) for verdict, number in numbers.items() for _ in range(number)]
    first, rest = summary_sentences(rows)
    judged = sum(number for verdict, number in numbers.items() if verdict not in OPEN)
    assert first.startswith(f"fedrec judges {judged} of {sum(numbers.values())} claims")
    for verdict, number in numbers.items():
        assert f"{verdict} {number}" in (rest if verdict in OPEN else first)
    assert UNTUNED in rest
    first, rest = summary_sentences([row("reversed")])
    assert first.endswith("Under the clean protocol: 1 says that a method is better (reversed 1).")
    assert "Not judged" not in rest
    assert "Not counted" not in rest


def test_the_judged_are_counted_by_what_they_say():
    """Of those that something costs little the name begins with it; others are of no such group."""
    noise = {"kind": "costs_little", "claim": "pfedrec-noise-costs-little"}
    federation = {"kind": "costs_little", "claim": "fedrap-federation-costs-little", "paper": "fedrap"}
    rows = [
        row("reversed"),
        row("not found", kind="gain"),
        *(row(verdict, **noise) for verdict in ("holds", "too few users", "too few users")),
        row("holds", **federation),
        *(row(verdict) for verdict in OPEN),
        row("holds", **noise, not_counted="popularity finds all", dataset="filmtrust"),
    ]
    first, _ = summary_sentences(rows)
    assert first.endswith(
        "Under the clean protocol: 3 say that noise costs little (holds 1, too few users 2); 2 say that a "
        "method is better (not found 1, reversed 1); 1 says that federation costs little (holds 1)."
    )


def test_every_condition_that_judges_has_its_sentence():
    other = {
        "neutral_decides": "yes",
        "neutral_repeats": "",
        "neutral_verdict": "not found",
        "neutral_seeds": ONE,
    }
    other |= {name.replace("neutral", "neutral_tuned"): value for name, value in other.items()}
    rows = [row("reversed", **other)]
    first, others, _ = summary_sentences(rows)
    assert first.endswith("Under the clean protocol: 1 says that a method is better (reversed 1).")
    assert (
        others == "Under the neutral protocol: not found 1. Under the neutral protocol, tuned: not found 1."
    )
    neutral = next(one for one in CONDITIONS if one.key == "neutral")
    assert summarise_verdicts(rows, neutral) == VerdictSummary({"not found": 1}, with_one_seed=1)


def comparison(row):
    """What the clean runs of both sides of a row gave: the same runs give the same numbers."""
    keys = ("dataset", "metric", "clean", "clean_low", "clean_high", "clean_compared_value")
    return tuple(row[key] for key in keys)


def test_the_reference_is_counted_as_by_hand():
    with (ROOT / "results/reference/tables/verdicts.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    summary = summarise_verdicts(rows)
    deciding = deciding_rows(rows)
    # Each claim on each dataset once.
    pairs = Counter((one["claim"], one["dataset"]) for one in deciding)
    assert set(pairs.values()) == {1}
    assert set(pairs) == {(one["claim"], one["dataset"]) for one in rows if one["dataset"] != ALL}
    assert summary.not_counted == sum(one["dataset"] in ("filmtrust", "tafeng") for one in deciding)
    compared = Counter(comparison(one) for one in deciding if is_counted(one) and one["clean"])
    assert set(compared.values()) == {1}
    assert summary.repeated > 0
    assert all(comparison(one) in compared for one in deciding if one["clean_repeats"])
    assert summary.rows + summary.not_counted + summary.repeated == len(deciding)
    judged = [one for one in deciding if is_counted(one) and one["clean_verdict"] not in OPEN]
    assert summary.judged == len(judged) > 0
    for one in judged:
        # Runs with tuned settings are under the same protocol.
        seeds = sum(len(one[f"{key}_seeds"].split()) for key in ("clean", "tuned"))
        clean = [run for key in ("runs", "runs_against") for run in one[key].split() if "/clean/" in run]
        assert len(clean) == 2 * seeds, "every run behind it has its seeds: line and rival"
        assert float(one["clean_p_holm"]) < 0.05 or one["clean_verdict"] in (NOT_FOUND, TOO_FEW)
        assert one["clean_gate"]
    for one in deciding:
        if one["clean_verdict"] == "not reproduced":
            assert re.search(r"print \d\.\d+ ± |diverges|not found under", one["clean_reason"])


def test_what_searches_find_under_the_clean_protocol_reaches_no_run_of_the_headline():
    """So it is stated, where claims are counted: such a run has it by its name alone."""
    assert not MAIN.tuned
    methods = load_methods(ROOT / "config/methods.yaml")
    alike = load_tuning(ROOT / "config/tuning.yaml", methods).under_shared_protocol
    found: dict[str, dict[str, object]] = {}
    for search in alike:
        part = search.ranges[0]
        value = int(part.choices[-1]) if part.bounds is None else part.bounds[0]
        value = int(value) if part.whole else value
        one = {"trials": 1, "settings": {part.setting: value}, "held": {}}
        found.setdefault(search.key, {})[search.dataset] = one
    tuned = Methods(with_findings(methods.unsearched, Document("what was found", found)))
    assert has_tuned(tuned)
    for search in alike:
        for paper in papers_in(methods):
            asked = search.method, paper, search.dataset
            assert resolve(tuned, *asked) == resolve(methods.unsearched, *asked), search.target
