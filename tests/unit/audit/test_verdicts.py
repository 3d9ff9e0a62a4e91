"""Verdicts on claims whose truth is known, because the runs behind them are made so."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from fedrec.audit.verdicts import (
    DIVERGES,
    HOLDS,
    REVERSED,
    UNTESTED,
    WEAKER,
    Divergence,
    Effect,
    Evidence,
    PrintedEffect,
    judge,
    printed_effect,
    verdict_counts,
    verdict_on,
)
from fedrec.config.claims import load_claims, named_lines
from fedrec.config.papers import load_papers
from fedrec.config.protocol import full_name, short_name
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import METRICS, metrics_of, per_user
from fedrec.files.parquet import read_table, write_table
from fedrec.files.sealed import read_sealed, write_sealed
from fedrec.plan.selection import runs_by_line
from fedrec.runs.record import UserRanks
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_runs import runs_below, write_run

CLAIMS = {
    one.id: one for one in load_claims(ROOT / "config/claims.yaml", load_papers(ROOT / "config/papers"))
}


def narrow(name):
    """A claim on one dataset in one metric."""
    claim = CLAIMS[name]
    artefacts = tuple(replace(one, metrics=("hr@10",)) for one in claim.artefacts)
    return replace(claim, datasets=("ml-100k",), artefacts=artefacts)


GAIN = narrow("pfedclr-calibration-helps")
NOISE = narrow("pfedclr-noise-costs-little")
HIT, MISS = 1, 20


def users(hits, count=100):
    """Ranks of users of whom the first `hits` are hit."""
    return [HIT] * hits + [MISS] * (count - hits)


def train(results, claim, ranks, kinds=("published", "clean"), seeds=(0,)):
    """Made runs of a claim's lines; `ranks` by the line's name."""
    (artefact,) = claim.artefacts
    for (name, _, kind), runs in runs_by_line(claim, artefact, METHODS, seeds, None, ()).items():
        if short_name(kind) in kinds and name in ranks:
            for run in runs:
                write_run(results, run, METHODS, ranks=ranks[name])


def evidence(results, **changes):
    given = {"seeds": (0,), "rounds": None, "unavailable": {}, "runs": runs_below(results)} | changes
    return Evidence(results, METHODS, **given)


def judged(results, claim, **changes):
    (found,) = judge([claim], evidence(results, **changes))
    return found


@pytest.mark.parametrize(
    ("below", "above", "verdict"),
    [
        (20, 80, HOLDS),
        # Half of the printed 0.2301 is not reached, though chance alone does not explain 0.08.
        (20, 28, WEAKER),
        (50, 50, WEAKER),
        (80, 20, REVERSED),
    ],
)
def test_a_claim_to_be_better(tmp_path, below, above, verdict):
    train(tmp_path, GAIN, {"w/ AF": users(below), "w/ CF": users(above)})
    found = judged(tmp_path, GAIN)
    assert found.printed == pytest.approx(0.8452 - 0.6151)
    assert found.clean.value == pytest.approx((above - below) / 100)
    assert found.clean.low <= found.clean.value <= found.clean.high
    assert (found.clean.users, found.clean.rival, found.clean.base) == (100, "w/ AF", below / 100)
    assert (found.verdict, found.reason, found.command) == (verdict, "", "")
    assert {run.method for run in found.runs} == {
        "pfedclr[correction=full]", "pfedclr[correction=full][training=joint]",
    }  # fmt: skip


@pytest.mark.parametrize(("lost", "verdict"), [(8, HOLDS), (20, WEAKER), (60, REVERSED)])
def test_a_claim_to_cost_little_may_lose_a_twentieth(tmp_path, lost, verdict):
    # The printed loss, 0.001, is less than a twentieth of 1.
    train(tmp_path, NOISE, {"w/o LDP": users(400, 400), "w/ LDP": users(400 - lost, 400)})
    found = judged(tmp_path, NOISE)
    assert found.clean.value == pytest.approx(-lost / 400)
    assert found.verdict == verdict


@pytest.mark.parametrize(
    ("kind", "expected", "effect", "verdict"),
    [
        ("gain", 0.2, (0.10, 0.01, 0.19), HOLDS),
        ("gain", 0.2, (0.099, 0.01, 0.19), WEAKER),
        # A figure prints nothing that there could be half of.
        ("beats", None, (0.001, 0.0001, 0.002), HOLDS),
        ("beats", None, (0.001, -0.001, 0.003), WEAKER),
        ("beats", 0.2, (-0.1, -0.2, 0.01), WEAKER),
        ("beats", 0.2, (-0.1, -0.2, -0.01), REVERSED),
        # The margin is what is lost in print, 0.1 of 0.5, then 0.05 x 0.5.
        ("costs_little", -0.1, (-0.05, -0.09, -0.01), HOLDS),
        ("costs_little", -0.01, (-0.02, -0.024, -0.016), HOLDS),
        ("costs_little", -0.01, (-0.02, -0.026, -0.014), WEAKER),
        ("costs_little", 0.3, (-0.03, -0.034, -0.026), REVERSED),
        ("costs_little", None, (-0.03, -0.034, -0.024), WEAKER),
    ],
)
def test_the_rule(kind, expected, effect, verdict):
    in_print = None if expected is None else PrintedEffect(expected, base=0.5)
    assert verdict_on(kind, in_print, Effect(*effect, rival="other", base=0.5, users=9)) == verdict
    assert verdict_on(kind, in_print, None) == UNTESTED


def test_what_may_be_lost_is_a_share_of_what_there_is():
    """A tenth is lost in print: of a metric a quarter as large no more than a tenth may be lost, either."""
    in_print = PrintedEffect(-0.04, base=0.4)
    quarter = Effect(-0.02, -0.025, -0.015, rival="other", base=0.1, users=9)
    assert verdict_on("costs_little", in_print, quarter) == REVERSED
    assert verdict_on("costs_little", in_print, replace(quarter, base=0.4)) == HOLDS


def test_the_best_of_the_others_is_another_under_another_protocol(tmp_path):
    claim = narrow("pfedclr-low-rank-helps")
    best = {"w/ CLR": users(90), "FedMF": users(10), "w/ AF": users(20), "w/ CF": users(30)}
    train(tmp_path, claim, best, kinds=("published",))
    train(tmp_path, claim, best | {"w/ CLR": users(15), "FedMF": users(40)}, kinds=("clean",))
    found = judged(tmp_path, claim)
    assert (found.published.rival, found.clean.rival) == ("w/ CF", "FedMF")
    assert found.published.value == pytest.approx(0.6)
    assert found.clean.value == pytest.approx(-0.25)
    assert found.printed == pytest.approx(0.9989 - 0.8452)
    assert (found.verdict, found.published_verdict) == (REVERSED, HOLDS)


@pytest.mark.parametrize(("own", "verdict"), [(10, REVERSED), (90, UNTESTED), (58, UNTESTED)])
def test_a_claim_over_lines_some_of_which_were_not_run_is_reversed_or_left_open(tmp_path, own, verdict):
    """What was not run could only lower an effect over the best."""
    claim = narrow("pfedclr-low-rank-helps")
    train(tmp_path, claim, {"w/ CLR": users(own), "w/ AF": users(20), "w/ CF": users(60)})
    found = judged(tmp_path, claim)
    assert (found.verdict, found.published_verdict) == (verdict, verdict)
    assert (found.clean.rival, found.clean.not_run) == ("w/ CF", ("FedMF",))
    assert found.clean.value == pytest.approx((own - 60) / 100), "shown all the same"
    assert "fedmf" in found.command


def test_a_claim_over_one_line_that_was_not_run_is_left_open(tmp_path):
    train(tmp_path, GAIN, {"w/ CF": users(20)})
    found = judged(tmp_path, GAIN)
    assert (found.verdict, found.clean) == (UNTESTED, None)


def test_users_are_averaged_over_seeds_before_they_are_paired(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": [MISS, MISS], "w/ CF": [HIT, MISS]}, seeds=(0,))
    train(tmp_path, GAIN, {"w/ AF": [MISS, MISS], "w/ CF": [MISS, HIT]}, seeds=(1,))
    found = judged(tmp_path, GAIN, seeds=(0, 1))
    # Each user gains one half in the mean of the seeds: no user is unlike another.
    assert (found.clean.value, found.clean.low, found.clean.high) == (0.5, 0.5, 0.5)
    assert found.clean.users == 2
    assert {run.seed for run in found.runs} == {0, 1}
    assert found.clean.seeds == [0, 1]


def rewrite(results, claim, name, kind, change):
    """Change the table of ranks of a made run."""
    (run,) = runs_by_line(claim, claim.artefacts[0], METHODS, (0,), None, ())[name, "ml-100k", kind]
    path = results / run.folder / "ranks.parquet"
    write_table(path, change(read_table(path)[0]), {})


def test_users_are_paired_by_their_number_and_not_by_their_place(tmp_path):
    alike = users(50)
    train(tmp_path, GAIN, {"w/ AF": alike, "w/ CF": alike})
    rewrite(tmp_path, GAIN, "w/ CF", "clean", lambda table: table.take(list(range(table.num_rows))[::-1]))
    found = judged(tmp_path, GAIN).clean
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_runs_on_other_users_are_refused(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(5, 10), "w/ CF": users(5, 11)})
    with pytest.raises(ResultError, match=r"its users are not those of .* train it again"):
        judged(tmp_path, GAIN)


def test_ranks_are_those_of_the_round_the_protocol_reports(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(0), "w/ CF": users(0)})

    def only_validation(table):
        at = np.array(table["at"].to_pylist())
        rank = pa.array(np.where(at == "best_validation", HIT, MISS).astype(np.float32))
        return table.set_column(table.schema.get_field_index("test_rank"), "test_rank", rank)

    for kind in ("published-pfedclr", "clean"):
        rewrite(tmp_path, GAIN, "w/ CF", kind, only_validation)
    found = judged(tmp_path, GAIN)
    # The papers' protocol reports the best round on test, the clean one on validation.
    assert (found.published.value, found.clean.value) == (0, 1)


def test_a_claim_about_the_catalogue_is_judged_by_ranks_in_it(tmp_path, monkeypatch):
    claim = narrow("pfedrec-beats-all-in-catalogue")

    def ranks(_self, run, *, catalogue):
        hit = run.method == "pfedrec" and catalogue
        return UserRanks(np.arange(5), np.full(5, HIT if hit else MISS, dtype=np.float32))

    monkeypatch.setattr(Evidence, "ranks", ranks)
    assert judged(tmp_path, claim).clean.value == 1


def test_an_effect_names_the_runs_of_both_sides(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)}, seeds=(0, 1))
    found = judged(tmp_path, GAIN, seeds=(0, 1)).clean
    by_line = runs_by_line(GAIN, GAIN.artefacts[0], METHODS, (0, 1), None, ())
    assert list(found.runs) == by_line[GAIN.line, "ml-100k", "clean"]
    assert list(found.runs_against) == by_line[found.rival, "ml-100k", "clean"]
    assert len(found.runs) == 2


def test_with_runs_given_no_other_run_is_read(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    both = judged(tmp_path, GAIN)
    published = {run for run in both.runs if run.protocol != "clean"}
    found = judged(tmp_path, GAIN, runs=published)
    assert (found.verdict, found.clean) == (UNTESTED, None)
    assert found.published == both.published


def test_what_is_not_trained_is_not_testable_and_the_command_trains_it(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20)})
    train(tmp_path, GAIN, {"w/ CF": users(80)}, kinds=("published",))
    found = judged(tmp_path, GAIN)
    assert (found.verdict, found.clean) == (UNTESTED, None)
    assert found.published.value == pytest.approx(0.6)
    assert found.reason == "ml-100k: not all lines are trained here (clean, seed 0)"
    folder = "runs/pfedclr/ml-100k/clean/pfedclr@correction-full/seed0"
    assert found.command == f"snakemake --cores 2 {tmp_path}/{folder}/run.json"


def test_a_run_without_its_summary_is_not_finished(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    (run,) = runs_by_line(GAIN, GAIN.artefacts[0], METHODS, (0,), None, ())["w/ CF", "ml-100k", "clean"]
    (tmp_path / run.folder / "run.json").unlink()
    assert judged(tmp_path, GAIN).verdict == UNTESTED


def test_data_that_cannot_be_had_is_the_reason(tmp_path):
    found = judged(tmp_path, GAIN, unavailable={"ml-100k": "no file"})
    assert (found.verdict, found.reason, found.command) == (UNTESTED, "ml-100k: no file", "")
    assert found.printed is not None
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)}, kinds=("clean",))
    found = judged(tmp_path, GAIN, unavailable={"ml-100k/published-pfedclr": "no order"})
    assert (found.verdict, found.published) == (HOLDS, None)
    assert found.reason == "ml-100k/published-pfedclr: no order"


def test_shortened_runs_are_runs_of_their_own(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    found = judged(tmp_path, GAIN, rounds=15)
    assert found.verdict == UNTESTED
    assert "@rounds-15" in found.command


def test_a_printed_effect_needs_every_printed_number():
    (table,) = GAIN.artefacts
    effect = printed_effect(GAIN, table, "ml-100k", "hr@10")
    assert (effect.value, effect.base) == (pytest.approx(0.2301), 0.6151)
    assert printed_effect(GAIN, table, "ml-100k", "mrr@10") is None
    drawn = CLAIMS["fedrap-both-tables-help"]
    assert printed_effect(drawn, drawn.artefacts[0], "ml-100k", "hr@10") is None
    best = CLAIMS["pfedclr-beats-federated"]
    assert len(named_lines(best.artefacts[0])) > len(best.lines)
    assert printed_effect(best, best.artefacts[0], "ml-100k", "hr@10").value == pytest.approx(0.9989 - 0.8823)


@pytest.mark.parametrize("metric", METRICS)
def test_users_add_up_to_the_metric(metric):
    ranks = np.array([1, 2, 2.5, 5, 9.5, 10, 10.5, 20, 21, 99, 2], dtype=np.float32)
    found = per_user(ranks, metric)
    assert found.shape == ranks.shape
    assert found.mean() == pytest.approx(metrics_of(ranks)[metric])
    assert (found[1], found[-2]) == (found[-1], 0)


def test_verdicts_are_counted_in_their_order():
    assert verdict_counts([REVERSED, HOLDS, REVERSED, UNTESTED]) == "holds 1, reversed 2, not testable here 1"


def test_every_claim_of_the_project_can_be_judged_without_any_run(tmp_path):
    found = judge(CLAIMS.values(), evidence(tmp_path, rounds=15))
    assert {one.claim.id for one in found} == set(CLAIMS)
    assert {one.verdict for one in found} == {UNTESTED}
    assert all(one.command for one in found)
    # HR and NDCG are in tables of their own here, and stand side by side all the same.
    shown = [(one.dataset, one.metric) for one in found if one.claim.id == "fedrap-beats-federated"]
    assert shown[:3] == [("tafeng", "hr@10"), ("tafeng", "ndcg@10"), ("ml-100k", "hr@10")]


def diverge(results, claim, name, round_, kind="clean", seed=0):
    """Let the made run of a line be one that diverged."""
    (artefact,) = claim.artefacts
    runs = runs_by_line(claim, artefact, METHODS, (seed,), None, ())[
        name, "ml-100k", full_name(kind, "pfedclr")
    ]
    path = results / runs[0].folder / "run.json"
    best = round_ - 1 if round_ > 1 else 10
    rounds = {"best_validation": best, "best_test": best, "last": 10}
    said = read_sealed(path) | {"rounds": rounds, "diverged": {"round": round_, "why": "so"}}
    write_sealed(path, said)


@pytest.mark.parametrize(
    ("below", "above", "line", "rival"),
    [
        (20, 80, HOLDS, DIVERGES),
        (50, 50, DIVERGES, DIVERGES),
        (80, 20, DIVERGES, REVERSED),
    ],
)
def test_where_a_line_diverged_only_what_more_could_not_change_is_said(tmp_path, below, above, line, rival):
    for name, expected in (("w/ CF", line), ("w/ AF", rival)):
        results = tmp_path / name.replace("/", "")
        train(results, GAIN, {"w/ AF": users(below), "w/ CF": users(above)})
        diverge(results, GAIN, name, 7)
        found = judged(results, GAIN)
        assert found.verdict == expected
        assert found.clean.value == pytest.approx((above - below) / 100), "shown all the same"
        assert found.diverged == (Divergence(name, "clean", ("0:7",), 1),)


def test_where_both_sides_diverged_nothing_is_said(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    for name in ("w/ AF", "w/ CF"):
        diverge(tmp_path, GAIN, name, 7)
    assert judged(tmp_path, GAIN).verdict == DIVERGES


def test_what_diverged_under_the_published_protocol_is_told_and_decides_nothing(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(80), "w/ CF": users(20)})
    diverge(tmp_path, GAIN, "w/ CF", 7, kind="published")
    found = judged(tmp_path, GAIN)
    assert (found.verdict, [one.protocol for one in found.diverged]) == (REVERSED, ["published"])


def test_a_claim_whose_own_line_has_no_number_is_not_reversed_by_that(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(0)})
    diverge(tmp_path, GAIN, "w/ CF", 1)
    found = judged(tmp_path, GAIN)
    assert (found.verdict, found.clean, found.command) == (DIVERGES, None, "")


def test_a_rival_without_a_number_leaves_the_comparison_with_the_others(tmp_path):
    claim = narrow("pfedclr-low-rank-helps")
    lines = {"w/ CLR": users(15), "FedMF": users(40), "w/ AF": users(20), "w/ CF": users(30)}
    train(tmp_path, claim, lines)
    diverge(tmp_path, claim, "w/ AF", 1)
    found = judged(tmp_path, claim)
    assert (found.verdict, found.clean.rival) == (REVERSED, "FedMF")
    train(tmp_path, claim, {"w/ CLR": users(90)})
    assert judged(tmp_path, claim).verdict == DIVERGES
    for name in ("FedMF", "w/ CF"):
        diverge(tmp_path, claim, name, 1)
    found = judged(tmp_path, claim)
    assert (found.verdict, found.clean) == (DIVERGES, None)


def test_a_claim_that_lacks_runs_besides_is_not_testable(tmp_path):
    train(tmp_path, GAIN, {"w/ CF": users(80)})
    diverge(tmp_path, GAIN, "w/ CF", 7)
    found = judged(tmp_path, GAIN)
    assert found.verdict == UNTESTED
    assert "pfedclr@correction-full" in found.command


def test_seeds_without_a_number_are_left_out_of_all_lines(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)}, seeds=(0,))
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(0)}, seeds=(1,))
    diverge(tmp_path, GAIN, "w/ CF", 1, seed=1)
    found = judged(tmp_path, GAIN, seeds=(0, 1))
    assert {run.seed for run in found.clean.runs} == {0}
    assert (found.verdict, found.diverged[0].seeds) == (HOLDS, 2)


def test_seeds_that_are_not_trained_yet_change_nothing_of_that(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(80), "w/ CF": users(20)})
    diverge(tmp_path, GAIN, "w/ CF", 7)
    assert judged(tmp_path, GAIN, seeds=(0, 1)).verdict == DIVERGES
    diverge(tmp_path, GAIN, "w/ CF", 1)
    found = judged(tmp_path, GAIN, seeds=(0, 1))
    assert (found.verdict, found.clean) == (DIVERGES, None)
    assert "seed1" in found.command
