"""The coverage: what agrees with print, and which causes explain what does not; each of them can fail."""

from dataclasses import replace

import numpy as np
import pytest

from fedrec.audit.agreement import tolerance
from fedrec.audit.printed_contradictions import contradictions, printed_gains
from fedrec.config.papers import load_papers
from fedrec.config.printed import printed_numbers
from fedrec.evaluation.metrics import per_user
from fedrec.plan.runs import RunId
from fedrec.reporting.tables.audit.coverage import (
    AGAINST_ITSELF,
    AGREES,
    COPIED,
    DIVERGES,
    GAIN_ALONE,
    NOT_RUN,
    ONE_SEED,
    TAKEN_OVER,
    UNEXPLAINED,
    UNSTATED,
    Explanations,
    coverage_rows,
    coverage_tables,
)
from fedrec.reporting.tables.our_numbers import Ours, Tried, tried_run
from tests.conftest import ROOT
from tests.made_results import ALL_METHODS
from tests.made_runs import RULES, write_run

PAPERS = load_papers(ROOT / "config/papers")
GAINS = printed_gains(PAPERS, ALL_METHODS, printed_numbers())
CONTRADICTIONS = contradictions(PAPERS, ALL_METHODS, printed_numbers())
NOTHING = Explanations()
KEY = ("pfedclr", "Table 3", "ml-100k", "PFedCLR", "w/o LDP", "hr@10")
WITH = (*KEY[:4], "w/ LDP (lambda=0.5)", "hr@10")
LOSS = (*KEY[:4], "degradation", "hr@10 relative loss")
VALUE = printed_numbers()[KEY].value


def told(key, ours, explanations=NOTHING):
    """The standing of one printed number, and why."""
    rows = coverage_rows(ours if isinstance(ours, dict) else {key: ours}, explanations)
    return next((row["standing"], row["why"]) for row in rows if tuple(row.values())[:6] == key)


def standing(key, ours, explanations=NOTHING):
    return told(key, ours, explanations)[0]


def caused(cause="fits with another code's setting", **bound):
    return Explanations(causes=[{"cause": cause, "why": "so", "paper": ["pfedclr"], **bound}])


def test_a_number_agrees_within_its_tolerance():
    assert standing(KEY, {}) == NOT_RUN
    assert standing(KEY, Ours(clean=0.3)) == NOT_RUN
    assert standing(KEY, Ours(published=VALUE - 0.019)) == AGREES
    assert standing(KEY, Ours(published=VALUE - 0.021)) == UNEXPLAINED
    assert standing(KEY, Ours(published=VALUE - 0.039, tolerance=0.04)) == AGREES
    assert standing(KEY, Ours(published=VALUE - 0.041, tolerance=0.04)) == UNEXPLAINED


def test_gains_agree_within_points_of_percent_and_counts_within_a_share():
    wide = {"tolerance": 0.5}
    loss = printed_numbers()[LOSS].value
    assert standing(LOSS, Ours(published=loss + 1.9, **wide)) == AGREES
    assert standing(LOSS, Ours(published=loss + 2.1, **wide)) == UNEXPLAINED
    size = next(key for key, number in printed_numbers().items() if number.unit == "count")
    users = printed_numbers()[size].value
    assert standing(size, Ours(published=1.019 * users, **wide)) == AGREES
    assert standing(size, Ours(published=1.021 * users, **wide)) == UNEXPLAINED


def test_a_number_says_its_tolerance_and_what_it_rests_on():
    rows = coverage_rows({KEY: Ours(published=0.9, tolerance=0.03, basis="checked")}, NOTHING)
    (row,) = (row for row in rows if tuple(row.values())[:6] == KEY)
    (other,) = (row for row in rows if tuple(row.values())[:6] == WITH)
    assert (row["tolerance"], row["rests_on"]) == (0.03, "checked")
    assert "tolerance" not in other
    assert "rests_on" not in other


def test_a_number_of_another_paper_is_none_of_this_ones_settings():
    key, number = next((key, one) for key, one in printed_numbers().items() if one.taken_from)
    for ours in ({}, {key: Ours(published=number.value)}, {key: Ours(published=0.1)}):
        found, why = told(key, ours)
        assert found == TAKEN_OVER
        assert number.taken_from in why


def test_what_was_copied_from_print_does_not_agree_with_it():
    key = next(key for key in printed_numbers() if key[5] == "learning_rate")
    value = printed_numbers()[key].value
    assert standing(key, Ours(published=value, is_copied=True)) == COPIED
    assert standing(key, Ours(published=value)) == AGREES


def test_a_cause_explains_no_more_than_its_bound():
    bounded = caused("our choice of split", at_most=0.15)
    assert standing(KEY, Ours(published=VALUE - 0.14), bounded) == "our choice of split"
    assert standing(KEY, Ours(published=VALUE - 0.16), bounded) == UNEXPLAINED
    assert standing(KEY, Ours(published=VALUE), bounded) == AGREES
    assert standing(KEY, {}, bounded) == NOT_RUN
    loss = printed_numbers()[LOSS].value
    assert standing(LOSS, Ours(published=loss + 14), bounded) == "our choice of split"
    assert standing(LOSS, Ours(published=loss + 16), bounded) == UNEXPLAINED
    size = next(
        key for key, number in printed_numbers().items() if number.unit == "count" and key[0] == "pfedclr"
    )
    users = printed_numbers()[size].value
    assert standing(size, Ours(published=0.86 * users), bounded) == "our choice of split"
    assert standing(size, Ours(published=0.84 * users), bounded) == UNEXPLAINED


def test_a_cause_of_what_nothing_can_stand_beside_explains_any_difference():
    assert standing(KEY, Ours(published=0.1), caused("counted otherwise", always=True)) == "counted otherwise"
    gone = caused("dataset not to be had", always=True)
    assert standing(KEY, {}, gone) == "dataset not to be had"


def test_a_cause_that_names_a_run_holds_where_the_run_agrees_with_print():
    named = caused(fits="pfedclr[rank=5]")
    far = Ours(published=VALUE - 0.3)

    def with_run(found):
        return replace(named, fits={("pfedclr[rank=5]", KEY): found})

    near = Tried("pfedclr[rank=5]", VALUE - 0.019, 0.02)
    assert told(KEY, far, with_run(near)) == ("fits with another code's setting", "so")
    assert standing(KEY, far, with_run(replace(near, value=VALUE - 0.021))) == UNEXPLAINED
    assert told(KEY, far, with_run(replace(near, value=0.5))) == (UNEXPLAINED, "pfedclr[rank=5] gives 0.5000")
    assert told(KEY, far, named) == (UNEXPLAINED, "pfedclr[rank=5] is not run yet")
    assert told(KEY, far, with_run(None)) == (UNEXPLAINED, "pfedclr[rank=5] diverges")
    # It is of one number: another one of the same run may be off.
    assert standing(WITH, Ours(published=0.1), with_run(near)) == UNEXPLAINED


def test_the_first_cause_whose_bound_holds_is_named():
    several = Explanations(
        causes=[
            {"cause": "our choice of split", "why": "first", "at_most": 0.1},
            {"cause": "counted otherwise", "why": "second", "always": True},
            {"cause": "another machine", "why": "third", "always": True},
        ]
    )
    assert told(KEY, Ours(published=VALUE - 0.05), several) == ("our choice of split", "first")
    assert told(KEY, Ours(published=VALUE - 0.2), several) == ("counted otherwise", "second")


def test_a_searched_setting_is_unstated_only_where_a_trial_reaches_print():
    trials = (Tried("mf[rate=1]", VALUE - 0.2, 0.02), Tried("mf[rate=2]", VALUE + 0.001, 0.02))
    searched = Ours(published=VALUE - 0.3, searched=("rate", "spread"), tried=trials)

    found, why = told(KEY, searched)
    assert found == UNSTATED
    assert why == (
        "the paper does not state rate, spread; of 2 settings that were tried 1 reach print, "
        f"mf[rate=2] with {VALUE + 0.001:.4f}"
    )
    far = replace(searched, tried=trials[:1])
    assert told(KEY, far) == (
        UNEXPLAINED,
        f"no setting that was tried reaches print (nearest of 1: {VALUE - 0.2:.4f})",
    )
    alone = replace(searched, tried=())
    assert told(KEY, alone) == (UNEXPLAINED, "no trial of a search for rate, spread is there")
    assert standing(KEY, replace(searched, published=VALUE)) == AGREES
    assert standing(KEY, replace(searched, published=None)) == NOT_RUN


def test_what_diverged_is_explained_by_runs_alone():
    diverged = Ours(published=VALUE - 0.3, diverged={"published": "in round 3"})
    trials = (Tried("mf[rate=2]", VALUE, 0.02),)

    assert told(KEY, diverged) == (DIVERGES, "a run behind it diverged in round 3")
    assert standing(KEY, diverged, caused("our choice of split", at_most=1)) == DIVERGES
    assert standing(KEY, diverged, caused("counted otherwise", always=True)) == DIVERGES
    found, why = told(KEY, replace(diverged, searched=("rate",), tried=trials))
    assert found == UNSTATED
    assert why.endswith("; a run behind it diverged in round 3")
    assert standing(KEY, replace(diverged, searched=("rate",))) == DIVERGES
    fits = replace(caused(fits="mf[rate=2]"), fits={("mf[rate=2]", KEY): trials[0]})
    assert told(KEY, diverged, fits) == (
        "fits with another code's setting",
        "so; a run behind it diverged in round 3",
    )


def test_a_printed_number_whose_run_diverged_neither_agrees_nor_is_unexplained():
    def counted(ours):
        rows = coverage_rows({KEY: ours}, NOTHING)
        counts, _, numbers = coverage_tables(rows)
        (whole,) = (row for row in counts.rows if row["paper"] == "all")
        return whole, numbers

    for number in (VALUE, VALUE - 0.3, None):
        ours = Ours(published=number, diverged={"published": "in round 7"})
        whole, numbers = counted(ours)
        near = "; the number from before would agree" if number == VALUE else ""
        assert told(KEY, ours) == (DIVERGES, f"a run behind it diverged in round 7{near}")
        assert (whole["ours"], whole[DIVERGES], whole.get(AGREES, 0)) == (number is not None, 1, 0)
        assert "†" in numbers.markdown()
    clean_alone = Ours(published=VALUE, clean=0.1, diverged={"clean": "in round 7"})
    assert standing(KEY, clean_alone) == AGREES, "what is printed stands beside the published protocol"
    assert "0.1000†" in counted(clean_alone)[1].markdown()
    whole, numbers = counted(Ours(published=VALUE))
    assert DIVERGES not in whole
    assert "†" not in numbers.markdown()


def test_a_printed_gain_that_its_own_numbers_do_not_give_is_against_itself():
    gain = ("plgc", "Table II", "lastfm-2k-b", "FedMF", "improvement", "hr@10 relative gain")
    explanations = Explanations(contradictions=CONTRADICTIONS, gains=GAINS)
    for ours in (printed_numbers()[gain].value, 200.0):
        assert told(gain, Ours(published=ours), explanations) == (
            AGAINST_ITSELF,
            "the printed numbers that it compares give 37.74",
        )
    assert standing(gain, Ours(published=200.0)) == UNEXPLAINED
    assert standing(gain, {}, explanations) == NOT_RUN


def test_a_number_printed_twice_is_against_itself_where_ours_is_the_other_one():
    first = ("fedrap", "Table 4", "qb-article-a", "FedRAP", "federated", "ndcg@10")
    other = printed_numbers()["fedrap", "Table 1", "qb-article-a", "FedRAP", "w/o DP", "ndcg@10"].value
    printed = printed_numbers()[first].value
    assert other > printed
    explanations = Explanations(contradictions=CONTRADICTIONS)
    assert told(first, Ours(published=other + 0.019), explanations) == (
        AGAINST_ITSELF,
        f"the paper also prints {other:g} in Table 1",
    )
    assert standing(first, Ours(published=other + 0.021), explanations) == UNEXPLAINED
    assert standing(first, Ours(published=printed), explanations) == AGREES


def test_a_gain_has_the_cause_of_the_numbers_that_it_compares():
    gains = Explanations(gains=GAINS)
    off = Ours(published=printed_numbers()[LOSS].value + 30)
    near = {KEY: Ours(published=VALUE), WITH: Ours(published=printed_numbers()[WITH].value)}

    assert told(LOSS, {**near, LOSS: off}, gains) == (GAIN_ALONE, "the numbers that it compares agree")
    missed = {**near, KEY: Ours(published=0.5), LOSS: off}
    assert told(LOSS, missed, gains) == (UNEXPLAINED, "follows from PFedCLR w/o LDP hr@10")
    of_split = replace(
        gains, causes=[{"cause": "our choice of split", "why": "so", "at_most": 0.6, "variant": ["w/o LDP"]}]
    )
    assert told(LOSS, missed, of_split) == ("our choice of split", "follows from PFedCLR w/o LDP hr@10")
    # Where one of both is unexplained, so is what is made of them.
    both = {**missed, WITH: Ours(published=0.1)}
    assert told(LOSS, both, of_split) == (UNEXPLAINED, "follows from PFedCLR w/ LDP (lambda=0.5) hr@10")
    fine = {**missed, LOSS: Ours(published=printed_numbers()[LOSS].value)}
    assert standing(LOSS, fine, gains) == AGREES


def test_a_mean_of_gains_follows_from_them():
    mean = ("plgc", "Table II", "ml-100k", "average", "improvement", "hr@10 relative gain")
    parts = GAINS[mean].mean
    assert len(parts) == 6
    ours = {key: Ours(published=printed_numbers()[key].value) for key in parts}
    ours |= {
        part: Ours(published=printed_numbers()[part].value) for key in parts for part in GAINS[key].parts
    }
    off = {**ours, mean: Ours(published=300.0)}
    gains = Explanations(gains=GAINS)
    assert standing(mean, off, gains) == GAIN_ALONE
    base = GAINS[parts[0]].below[0]
    assert printed_numbers()[base].taken_from is None
    both = {**off, base: Ours(published=0.1), parts[0]: Ours(published=900.0)}
    assert told(mean, both, gains) == (UNEXPLAINED, "follows from FedMF improvement hr@10 relative gain")


def test_a_number_of_one_seed_that_agrees_in_the_mean_elsewhere_is_named_as_that():
    first = ("fedem", "Table 1", "filmtrust", "FedEM", "federated", "hr@10")
    again = ("fedem", "Table 7", "filmtrust", "FedEM", "LDP delta=0", "hr@10")
    value = printed_numbers()[first].value
    assert printed_numbers()[again].value == value
    folder = "runs/fedem/filmtrust/published-fedem/fedem"
    five = Ours(published=value - 0.01, runs=tuple(f"{folder}/seed{seed}" for seed in range(5)))
    one = Ours(published=value - 0.05, runs=(f"{folder}/seed0",))

    why = "ours is of one seed; in Table 1, the mean over 5 seeds, it agrees"
    assert told(again, {first: five, again: one}) == (ONE_SEED, why)
    # Neither where the mean is off as well, nor where it is one of other runs.
    off = replace(five, published=value - 0.03)
    assert standing(again, {first: off, again: one}) == UNEXPLAINED
    other = replace(one, runs=(f"{folder}@ldp-0.1/seed0",))
    assert standing(again, {first: five, again: other}) == UNEXPLAINED


def test_agreements_are_counted_by_what_they_rest_on():
    keys = [key for key in printed_numbers() if key[:2] == ("pfedclr", "Table 1") and key[5] == "hr@10"][:4]
    ours = {
        keys[0]: Ours(published=printed_numbers()[keys[0]].value, basis="checked"),
        keys[1]: Ours(published=printed_numbers()[keys[1]].value, basis="searched"),
        keys[2]: Ours(published=printed_numbers()[keys[2]].value),
        keys[3]: Ours(published=0.0),
    }
    _, rests, _ = coverage_tables(coverage_rows(ours, NOTHING))
    expected = {"ours": 4, AGREES: 3, "checked": 1, "searched": 1, "neither": 1}
    assert rests.rows == [{"paper": "pfedclr", **expected}, {"paper": "all", **expected}]


def test_a_run_that_explains_is_as_far_from_print_as_its_users_allow(tmp_path):
    run = RunId("pfedclr", "ml-100k", "published-pfedclr", "fedmf", 0)
    final = dict.fromkeys(RULES, 0.6)
    few = write_run(tmp_path / "few", run, ALL_METHODS, ranks=(1, 99) * 50, final_at=final)
    many = write_run(tmp_path / "many", run, ALL_METHODS, ranks=(1, 99) * 5000, final_at=final)
    lost = write_run(tmp_path / "lost", run, ALL_METHODS, diverged=7)

    values = per_user(np.array([1, 99] * 50, dtype=np.float32), "hr@10")
    assert tried_run(few, "hr@10") == Tried("fedmf", pytest.approx(0.6), tolerance(values))
    assert tolerance(values) == pytest.approx(0.098)
    assert tried_run(many, "hr@10").tolerance == 0.02
    assert tried_run(lost, "hr@10") is None
