"""Tables of verdicts: their layout against a file, what the csv holds, what captions and notes say."""

import csv
from dataclasses import replace

import pytest

from fedrec.audit.effects import Evidence
from fedrec.config.conditions import CONDITIONS, MAIN, Condition
from fedrec.config.papers import load_papers
from fedrec.plan.selection import runs_by_line
from fedrec.reporting.tables.audit.verdicts import write_verdicts
from fedrec.reporting.tables.table import read_shown
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_claims import CLAIMS, diverge, reproduce, train, users
from tests.made_runs import runs_below, write_run

GOLDEN = ROOT / "tests/unit/reporting/golden"
PAPERS = load_papers(ROOT / "config/papers")


def one_of(name, *datasets):
    return replace(CLAIMS[f"pfedclr-{name}"], datasets=datasets or ("ml-100k",))


def found_under_clean(results, claim, best, **more):
    """A claim that is reproduced, and of which one line alone hits everyone under the clean protocol."""
    reproduce(results, claim)
    ranks = {name: users(100 if name == best else 0) for name in claim.lines}
    train(results, claim, ranks, keys=("clean",), **more)
    return claim


def four(results):
    """A claim that holds, one not reproduced, one reversed and one not testable; one dataset is missing."""
    names = ["calibration-helps", "beats-centralised", "low-rank-helps", "beats-federated-under-noise"]
    holds, not_reproduced, reversed_, untested = map(one_of, names)
    train(results, not_reproduced, dict.fromkeys(not_reproduced.lines, users(50)))
    found_under_clean(results, reversed_, best="w/ CF")
    train(results, holds, {"w/ CF": users(100), "w/ AF": users(0)}, keys=("clean",))
    return [one_of(names[0], "ml-100k", "hetrec2011"), not_reproduced, reversed_, untested]


def written(results, claims, rounds=None, seeds=(0,), conditions=(MAIN,), **unavailable):
    evidence = Evidence(
        results, METHODS, seeds, rounds, unavailable, runs_below(results), conditions=conditions
    )
    write_verdicts(results / "tables/verdicts", claims, evidence, PAPERS)
    return {form: (results / f"tables/verdicts.{form}").read_text() for form in ("csv", "md", "tex")}


def rows(text):
    return {(row["claim"], row["dataset"], row["metric"]): row for row in csv.DictReader(text.splitlines())}


@pytest.mark.parametrize("form", ["md", "tex"])
def test_a_table_of_verdicts_looks_like_this(tmp_path, form):
    """The whole layout against a file: run with new numbers, it is to be read before it is replaced."""
    found = written(tmp_path, four(tmp_path), hetrec2011="no file")
    assert found[form] == (GOLDEN / f"pfedclr_verdicts.{form}").read_text()


def test_the_csv_says_everything(tmp_path):
    found = rows(written(tmp_path, four(tmp_path), hetrec2011="no file")["csv"])
    row = found["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["clean_verdict"], row["clean_compared_with"], row["clean_users"]) == (
        "reversed",
        "w/ CF",
        "100",
    )
    assert (float(row["clean"]), float(row["clean_low"]), float(row["clean_high"])) == (-1, -1, -1)
    assert float(row["clean_p"]) == pytest.approx(2 / 10_001)
    assert (row["clean_gate"], row["clean_reason"], row["clean_seeds"]) == ("printed numbers", "", "0")
    assert float(row["printed"]) == pytest.approx(0.9989 - 0.8452)
    assert (row["shown_in"], row["line"], row["kind"], row["seeds"]) == ("table2", "w/ CLR", "beats", "0")
    assert (row["protocols"], row["splits"], row["rounds"]) == ("clean published-pfedclr", "5p1175p1", "100")
    exact = found["pfedclr-low-rank-helps", "ml-100k", "exact_hr@10"]
    assert (exact["printed"], exact["clean_verdict"]) == ("", "reversed")
    # Two are decided, each by exact ranks: Holm's correction is for two.
    assert float(exact["clean_p_holm"]) == pytest.approx(2 * 2 / 10_001)
    assert (row["clean_decides"], exact["clean_decides"]) == ("", "yes")
    missing = found["pfedclr-beats-federated-under-noise", "ml-100k", "hr@10"]
    assert (missing["clean_verdict"], missing["clean"]) == ("not testable here", "")
    assert missing["command"].startswith("snakemake --cores 2 ")
    assert "pfedclr/ml-100k/clean/pfedclr@ldp-0.5/seed0/run.json" in missing["command"]
    assert found["pfedclr-calibration-helps", "hetrec2011", "hr@10"]["reason"] == "hetrec2011: no file"
    # HR decides over datasets; NDCG is shown beside it.
    whole = found["pfedclr-calibration-helps", "all", "hr@10"]
    assert whole["clean_verdict"] == "holds 1, not testable here 1"


def test_a_claim_that_is_not_reproduced_says_which_line_misses_what(tmp_path):
    files = written(tmp_path, four(tmp_path), hetrec2011="no file")
    row = rows(files["csv"])["pfedclr-beats-centralised", "ml-100k", "hr@10"]
    assert row["clean_verdict"] == "not reproduced"
    said = row["clean_reason"]
    assert said == (
        "mf: ours 0.5000, print 0.6543 ± 0.0980; ncf: ours 0.5000, print 0.6119 ± 0.0980; "
        "lightgcn: ours 0.5000, print 0.6787 ± 0.0980"
    )
    assert f"- Not reproduced, HR@10: ml-100k, {said}.\n" in files["md"]
    assert "no (printed numbers)" in files["md"]


def test_a_claim_with_too_few_users_to_decide_it_says_why(tmp_path):
    claim = one_of("noise-costs-little")
    reproduce(tmp_path, claim)
    train(tmp_path, claim, {"w/o LDP": users(50), "w/ LDP": users(59)}, keys=("clean",))
    files = written(tmp_path, [claim])
    row = rows(files["csv"])["pfedclr-noise-costs-little", "ml-100k", "hr@10"]
    said = "9 of 100 users differ, and 10 must"
    assert (row["clean_verdict"], row["clean_reason"], row["clean_differ"]) == ("too few users", said, "9")
    assert f"- Too few users, HR@10: ml-100k, {said}.\n" in files["md"]
    train(tmp_path, claim, {"w/ LDP": users(48)}, keys=("clean",))
    files = written(tmp_path, [claim])
    row = rows(files["csv"])["pfedclr-noise-costs-little", "ml-100k", "hr@10"]
    assert (row["clean_verdict"], row["clean_reason"]) == ("too few users", ""), "its interval alone says so"
    assert "- Too few users" not in files["md"]


def test_a_verdict_says_against_whom_and_by_which_runs(tmp_path):
    found = rows(written(tmp_path, four(tmp_path), hetrec2011="no file")["csv"])
    row = found["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert row["against"] == row["clean_compared_with"] == "w/ CF"
    clean = "runs/pfedclr/ml-100k/clean"
    assert row["runs"].split()[-1] == f"{clean}/pfedclr/seed0"
    assert row["runs_against"].split()[-1] == f"{clean}/pfedclr@correction-full/seed0"
    assert len(row["runs"].split()) == len(row["runs_against"].split()) == 2
    assert all((tmp_path / folder / "run.json").is_file() for folder in row["runs"].split())
    untested = found["pfedclr-beats-federated-under-noise", "ml-100k", "hr@10"]
    assert (untested["against"][:11], untested["runs"]) == ("the best of", "")


def test_protocols_may_not_agree_on_the_rival(tmp_path):
    claim = found_under_clean(tmp_path, one_of("low-rank-helps"), best="FedMF")
    row = rows(written(tmp_path, [claim])["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert row["against"] == "FedMF; published: w/ CF"


def test_the_page_gets_claims_in_every_row_and_counts_by_paper(tmp_path):
    written(tmp_path, four(tmp_path), hetrec2011="no file")
    shown = read_shown(tmp_path / "tables/verdicts.json")
    (table,) = shown.tables
    assert [column.key for column in table.columns][:2] == ["claim", "dataset"]
    assert all(row["claim"] for row in table.rows)
    (count,) = shown.chapter.counts
    assert (count["paper"], count["claims"], count["judged"], count["datasets"]) == (
        "PFedCLR",
        4,
        2,
        ["ml-100k"],
    )
    assert count["verdicts"] == [
        ["holds", 1], ["smaller", 0], ["too few users", 0], ["not found", 0], ["reversed", 1],
        ["costs more", 0], ["not reproduced", 1], ["not testable here", 1],
    ]  # fmt: skip
    assert (count["elsewhere"], count["not_counted"], count["one_seed"]) == (1, 0, 2)


def test_a_dataset_that_does_not_count_is_shown_and_not_counted(tmp_path):
    claim = found_under_clean(tmp_path, one_of("calibration-helps", "ml-100k", "filmtrust"), best="w/ AF")
    files = written(tmp_path, [claim])
    found = rows(files["csv"])
    assert found["pfedclr-calibration-helps", "filmtrust", "exact_hr@10"]["clean_verdict"] == "reversed"
    assert "popularity" in found["pfedclr-calibration-helps", "filmtrust", "hr@10"]["not_counted"]
    chapter = read_shown(tmp_path / "tables/verdicts.json").chapter
    assert "fedrec judges 1 of 1 claims" in chapter.finding[0]
    assert "Not among the 1: 1 on filmtrust." in chapter.finding[1]
    assert chapter.counts[0]["not_counted"] == 1
    assert "Shown, but not counted: filmtrust (" in files["md"]


def test_what_is_found_under_the_published_protocol_stands_beside_the_verdict(tmp_path):
    """A leak made it: the paper's own protocol shows what it claims, the clean one the reverse."""
    claim = found_under_clean(tmp_path, one_of("low-rank-helps"), best="w/ CF")
    row = rows(written(tmp_path, [claim])["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["published_verdict"], row["clean_verdict"]) == ("holds", "reversed")
    assert (row["published_seeds"], row["clean_seeds"]) == ("0", "0")


def test_what_is_judged_makes_the_headline_and_the_first_table(tmp_path):
    claim = one_of("low-rank-helps")
    for seed in range(5):
        reproduce(tmp_path, claim, seeds=(seed,))
        ranks = {name: users(100 if name == "w/ CF" else 0) for name in claim.lines}
        train(tmp_path, claim, ranks, keys=("clean",), seeds=(seed,))
    text = written(tmp_path, [claim], seeds=range(5))["md"]
    first, second = read_shown(tmp_path / "tables/verdicts.json").chapter.finding
    assert first == (
        "fedrec judges 1 of 1 claims by HR@10: those that our runs reproduce under the papers' own protocols. "
        "A claim on two datasets counts twice. Under the clean protocol: 1 says that a method is better (reversed 1)."
    )
    assert (
        "decide 1 of the 1, sampled ranks the others, whose runs lack these; 0 of the 1 rest on one seed."
        in second
    )
    table, *_ = text.split("\n\nVerdicts on the")
    head, _, of_paper, of_all = (
        [cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[-4:]
    )
    said = dict(zip(head, of_paper, strict=True))
    assert (said["condition"], said["paper"], said["judged"], said["reversed"]) == (
        "clean, untuned", "pfedclr", "1", "1",
    )  # fmt: skip
    assert (said["judged by exact ranks"], said["judged by one seed"], said["holds"]) == ("1", "0", "0")
    assert of_all == ["clean, untuned", "all", *of_paper[2:]]


def test_every_condition_has_columns_and_a_dash_where_nothing_was_run(tmp_path):
    other = Condition("pool", "the pool alone", "only-pool")
    conditions = (MAIN, other)
    claims = [one_of("calibration-helps"), one_of("low-rank-helps")]
    found_under_clean(tmp_path, claims[1], best="w/ CF")
    ranks = {"w/ CF": users(100), "w/ AF": users(0)}
    train(tmp_path, claims[0], ranks, keys=("pool",), conditions=conditions)
    files = written(tmp_path, claims, conditions=conditions)
    found = rows(files["csv"])
    one, two = (found[f"{claim.id}", "ml-100k", "hr@10"] for claim in claims)
    assert (one["pool_verdict"], one["pool_compared_with"]) == ("holds", "w/ AF")
    assert (two["pool_verdict"], two["pool"]) == ("not testable here", "")
    lines = [line for line in files["md"].splitlines() if line.startswith("| ")]
    head = next(line for line in lines if "verdict, the pool alone" in line)
    place = [cell.strip() for cell in head.split("|")].index("effect, only-pool [interval]")
    shown = {cells[3].strip(): cells[place].strip() for cells in (line.split("|") for line in lines[-6:])}
    assert shown["HR@10"] == shown["exact HR@10"] == "–"
    counted = [line.split("|")[1].strip() for line in lines]
    assert (counted.count("clean, untuned"), counted.count("the pool alone")) == (2, 2)


def test_a_condition_that_nothing_was_run_under_is_no_error(tmp_path):
    claim = found_under_clean(tmp_path, one_of("low-rank-helps"), best="w/ CF")
    files = written(tmp_path, [claim], conditions=CONDITIONS)
    row = rows(files["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["clean_verdict"], row["neutral_verdict"], row["command"]) == (
        "reversed",
        "not testable here",
        "",
    )


def test_lines_that_were_not_run_are_named_beside_the_rival(tmp_path):
    claim = one_of("low-rank-helps")
    reproduce(tmp_path, claim)
    ranks = {name: users(100 if name == "w/ CF" else 0) for name in claim.lines if name != "FedMF"}
    train(tmp_path, claim, ranks, keys=("clean",))
    row = rows(written(tmp_path, [claim])["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["clean_verdict"], row["against"]) == ("reversed", "w/ CF (FedMF not run); published: w/ CF")


def test_a_caption_says_of_how_many_effects_there_is_one_seed_alone(tmp_path):
    claim = found_under_clean(tmp_path, one_of("calibration-helps"), best="w/ CF")
    train(tmp_path, claim, {"w/ CF": users(100), "w/ AF": users(0)}, keys=("clean",), seeds=(1,))
    text = written(tmp_path, [claim], seeds=(0, 1))["md"]
    assert "| 2 seeds " in text
    # Of two metrics by either kind of rank there are effects of one seed under the published protocol.
    assert "4 of 8 effects have one seed, so that their intervals are over users only" in text


def test_each_paper_has_a_table(tmp_path):
    claims = [CLAIMS["pfedclr-calibration-helps"], CLAIMS["plgc-plgc-helps-fedmf"]]
    text = written(tmp_path, claims)["md"]
    assert text.count("Verdicts on the claims of ") == 2
    assert text.count("No runs exist here.") == 2


def test_shortened_runs_say_for_how_long_they_trained(tmp_path):
    claim = one_of("calibration-helps")
    for (name, _, _), runs in runs_by_line(claim, claim.artefacts[0], METHODS, (0,), 15, (), [MAIN]).items():
        for run in runs:
            write_run(tmp_path, run, METHODS, ranks=users(100 if name == "w/ CF" else 0))
    text = written(tmp_path, [claim], rounds=15)["md"]
    assert "Trained for 15 rounds under the protocols clean, published-pfedclr; seeds 0." in text
    assert "a first look, and no verdict. `snakemake audit_pfedclr` trains all rounds." in text


def test_runs_as_long_as_the_papers_need_no_such_warning(tmp_path):
    claim = found_under_clean(tmp_path, one_of("calibration-helps"), best="w/ CF")
    assert "first look" not in written(tmp_path, [claim])["md"]


def test_what_a_paper_only_draws_has_no_printed_effect_and_a_verdict_all_the_same(tmp_path):
    claim = CLAIMS["fedrap-curriculum-helps"]
    train(tmp_path, claim, {name: users(100 if name == "tanh" else 0) for name in claim.lines})
    row = rows(written(tmp_path, [claim])["csv"])["fedrap-curriculum-helps", "ml-100k", "hr@10"]
    assert (row["printed"], row["clean_verdict"], row["clean_gate"]) == ("", "holds", "claim found")


def test_a_run_that_diverged_is_told_below_the_table_and_counted_by_itself(tmp_path):
    claims = [one_of("calibration-helps"), one_of("low-rank-helps")]
    found_under_clean(tmp_path, claims[1], best="w/ CF")
    diverge(tmp_path, claims[1], "w/ CLR", 7)
    found = written(tmp_path, claims)
    by_claim = rows(found["csv"])
    row = by_claim["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["clean_verdict"], row["clean_diverged"]) == ("diverges", "w/ CLR in round 7")
    assert "published_diverged" not in row
    assert by_claim["pfedclr-calibration-helps", "ml-100k", "hr@10"]["clean_diverged"] == ""
    assert by_claim["pfedclr-low-rank-helps", "all", "hr@10"]["clean_verdict"] == "diverges 1"
    assert "-1.0000† [-1.0000, -1.0000]" in found["md"]
    assert "- † Diverged: ml-100k, clean: w/ CLR in round 7. The number shown" in found["md"]
    assert "it can only be reversed or stay open." in found["md"]
    (count,) = read_shown(tmp_path / "tables/verdicts.json").chapter.counts
    assert (count["claims"], count["judged"]) == (2, 1)
    assert [pair for pair in count["verdicts"] if pair[1]] == [["holds", 1], ["diverges", 1]]


def test_nothing_is_said_of_divergence_where_no_run_diverged(tmp_path):
    assert not any("iverged" in text or "†" in text for text in written(tmp_path, four(tmp_path)).values())


def test_what_print_itself_does_not_bear_out_is_told(tmp_path):
    """The paper prints a higher NDCG of the other line there, and of none elsewhere."""
    claim = CLAIMS["pfedrec-beats-all-in-catalogue"]
    text = written(tmp_path, [replace(claim, datasets=("amazon-video-a", "ml-100k"))])["md"]
    assert (
        f"The printed numbers themselves contradict: {claim.text}, amazon-video-a, exact NDCG@10.\n" in text
    )
    assert "does not bear out" not in written(tmp_path, [replace(claim, datasets=("ml-100k",))])["md"]
