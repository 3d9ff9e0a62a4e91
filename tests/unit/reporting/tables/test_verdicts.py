"""Tables of verdicts: their layout against a file, what the csv holds, what captions and notes say."""

import csv
import re
from dataclasses import replace

import pytest

from fedrec.audit.verdicts import Evidence
from fedrec.config.claims import load_claims
from fedrec.config.papers import load_papers
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_by_line
from fedrec.reporting.tables.audit.verdicts import write_verdicts
from fedrec.reporting.tables.table import read_shown
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_runs import runs_below, write_run

GOLDEN = ROOT / "tests/unit/reporting/golden"
PAPERS = load_papers(ROOT / "config/papers")
CLAIMS = {one.id: one for one in load_claims(ROOT / "config/claims.yaml", PAPERS)}
HIT, MISS = (1, 1, 1), (20, 20, 20)
"""Everyone hit, or no one: such effects have intervals of one point."""


def made(results, claim, hit, rounds=None, dataset="ml-100k"):
    """Runs of a claim in which the lines of `hit` hit everyone, and all others no one."""
    for artefact in claim.artefacts:
        for (name, on, _), runs in runs_by_line(claim, artefact, METHODS, (0,), rounds, ()).items():
            for run in runs if on == dataset else ():
                write_run(results, run, METHODS, ranks=HIT if name in hit else MISS)


def low_rank(results, *, clean, published, seeds=(0,)):
    """A claim of which one line alone hits everyone, another one under each protocol."""
    claim = replace(CLAIMS["pfedclr-low-rank-helps"], datasets=("ml-100k",))
    (artefact,) = claim.artefacts
    for (name, _, protocol), runs in runs_by_line(claim, artefact, METHODS, seeds, None, ()).items():
        best = clean if protocol == "clean" else published
        for run in runs:
            write_run(results, run, METHODS, ranks=HIT if name == best else MISS)
    return claim


def four(results):
    """A claim that holds, one that is weaker, one reversed and one not testable; one dataset cannot be had."""
    names = ["calibration-helps", "beats-centralised", "low-rank-helps", "beats-federated-under-noise"]
    claims = [replace(CLAIMS[f"pfedclr-{name}"], datasets=("ml-100k",)) for name in names]
    for claim in claims[:3]:
        made(results, claim, hit=["w/ CF"])
    return [replace(claims[0], datasets=("ml-100k", "hetrec2011")), *claims[1:]]


def written(results, claims, rounds=None, **unavailable):
    evidence = Evidence(results, METHODS, (0,), rounds, unavailable, runs_below(results))
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
    assert (row["verdict"], row["clean_compared_with"], row["clean_users"]) == ("reversed", "w/ CF", "3")
    assert (float(row["clean"]), float(row["clean_low"]), float(row["clean_high"])) == (-1, -1, -1)
    assert float(row["printed"]) == pytest.approx(0.9989 - 0.8452)
    assert (row["shown_in"], row["line"], row["kind"], row["seeds"]) == ("table2", "w/ CLR", "beats", "0")
    assert (row["protocols"], row["splits"], row["rounds"]) == ("clean published-pfedclr", "5p1175p1", "100")
    missing = found["pfedclr-beats-federated-under-noise", "ml-100k", "hr@10"]
    assert (missing["verdict"], missing["clean"]) == ("not testable here", "")
    assert missing["command"].startswith("snakemake --cores 2 ")
    assert "pfedclr/ml-100k/clean/pfedclr@ldp-0.5/seed0/run.json" in missing["command"]
    assert found["pfedclr-calibration-helps", "hetrec2011", "hr@10"]["reason"] == "hetrec2011: no file"
    # HR decides over datasets; NDCG is shown beside it.
    assert found["pfedclr-calibration-helps", "all", "hr@10"]["verdict"] == "holds 1, not testable here 1"


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
    claim = low_rank(tmp_path, clean="w/ CF", published="w/ AF")
    row = rows(written(tmp_path, [claim])["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert row["against"] == "w/ CF; published: w/ AF"


def test_the_page_gets_claims_in_every_row_and_counts_by_paper(tmp_path):
    written(tmp_path, four(tmp_path), hetrec2011="no file")
    shown = read_shown(tmp_path / "tables/verdicts.json")
    (table,) = shown.tables
    assert [column.key for column in table.columns][:2] == ["claim", "verdict"]
    assert all(row["claim"] for row in table.rows)
    (count,) = shown.chapter.counts
    assert (count["paper"], count["claims"], count["tested"], count["datasets"]) == (
        "PFedCLR",
        4,
        3,
        ["ml-100k"],
    )
    assert count["verdicts"] == [["holds", 1], ["weaker", 1], ["reversed", 1], ["not testable here", 1]]
    assert (count["elsewhere"], count["reproduced"]) == (1, 0)


def test_what_is_found_under_the_published_protocol_stands_beside_the_verdict(tmp_path):
    """A leak made it: the paper's own protocol shows what it claims, the clean one the reverse."""
    claim = low_rank(tmp_path, clean="w/ CF", published="w/ CLR")
    row = rows(written(tmp_path, [claim])["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["published_verdict"], row["verdict"]) == ("holds", "reversed")
    assert (row["published_seeds"], row["clean_seeds"]) == ("0", "0")


def test_a_claim_of_all_seeds_that_the_clean_protocol_reverses_makes_the_headline(tmp_path):
    claim = low_rank(tmp_path, clean="w/ CF", published="w/ CLR", seeds=range(5))
    evidence = Evidence(tmp_path, METHODS, range(5), None, {}, runs_below(tmp_path))
    write_verdicts(tmp_path / "tables/verdicts", [claim], evidence, PAPERS)
    chapter = read_shown(tmp_path / "tables/verdicts.json").chapter
    assert chapter.counts[0]["reproduced"] == 1
    assert chapter.finding[0].startswith("Of 1 decided claims")
    first, *_ = (tmp_path / "tables/verdicts.md").read_text().split("\n\nWhat becomes of")
    of_paper, of_all = ([cell.strip() for cell in line.split("|")[1:-1]] for line in first.splitlines()[-2:])
    assert of_paper == ["pfedclr", "1", "1", "1", "1", *["0"] * 6]
    assert of_all == ["all", *of_paper[1:]]


def test_lines_that_were_not_run_are_named_beside_the_rival(tmp_path):
    claim = replace(CLAIMS["pfedclr-low-rank-helps"], datasets=("ml-100k",))
    (artefact,) = claim.artefacts
    for (name, _, _), runs in runs_by_line(claim, artefact, METHODS, (0,), None, ()).items():
        for run in runs if name != "FedMF" else ():
            write_run(tmp_path, run, METHODS, ranks=HIT if name == "w/ CF" else MISS)
    row = rows(written(tmp_path, [claim])["csv"])["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["verdict"], row["against"]) == ("reversed", "w/ CF (FedMF not run)")


def test_a_caption_says_of_how_many_effects_there_is_one_seed_alone(tmp_path):
    claim = replace(CLAIMS["pfedclr-calibration-helps"], datasets=("ml-100k",))
    made(tmp_path, claim, hit=["w/ CF"])
    for artefact in claim.artefacts:
        for (name, _, protocol), runs in runs_by_line(claim, artefact, METHODS, (1,), None, ()).items():
            for run in runs if protocol == "clean" else ():
                write_run(tmp_path, run, METHODS, ranks=HIT if name == "w/ CF" else MISS)
    evidence = Evidence(tmp_path, METHODS, (0, 1), None, {}, runs_below(tmp_path))
    write_verdicts(tmp_path / "tables/verdicts", [claim], evidence, PAPERS)
    text = (tmp_path / "tables/verdicts.md").read_text()
    assert re.search(r"\d of \d effects are of one seed, the others of up to 2 ", text)


def test_each_paper_has_a_table(tmp_path):
    claims = [CLAIMS["pfedclr-calibration-helps"], CLAIMS["plgc-plgc-helps-fedmf"]]
    text = written(tmp_path, claims)["md"]
    assert text.count("What becomes of the claims of ") == 2
    assert text.count("None of the runs is trained here.") == 2


def test_shortened_runs_say_for_how_long_they_trained(tmp_path):
    claim = replace(CLAIMS["pfedclr-calibration-helps"], datasets=("ml-100k",))
    made(tmp_path, claim, hit=["w/ CF"], rounds=15)
    text = written(tmp_path, [claim], rounds=15)["md"]
    assert "Trained for 15 rounds; seeds 0;" in text
    assert "a first look and no verdict on the paper: `snakemake audit_pfedclr` trains as long" in text


def test_runs_as_long_as_the_papers_need_no_such_warning(tmp_path):
    claim = replace(CLAIMS["pfedclr-calibration-helps"], datasets=("ml-100k",))
    made(tmp_path, claim, hit=["w/ CF"])
    assert "first look" not in written(tmp_path, [claim])["md"]


def test_what_a_paper_only_draws_has_no_printed_effect_and_a_verdict_all_the_same(tmp_path):
    claim = CLAIMS["fedrap-curriculum-helps"]
    made(tmp_path, claim, hit=["tanh"])
    row = rows(written(tmp_path, [claim])["csv"])["fedrap-curriculum-helps", "ml-100k", "hr@10"]
    assert (row["printed"], row["verdict"]) == ("", "holds")


def test_a_run_that_diverged_is_told_below_the_table_and_counted_by_itself(tmp_path):
    claims = [
        replace(CLAIMS[f"pfedclr-{name}"], datasets=("ml-100k",))
        for name in ("calibration-helps", "low-rank-helps")
    ]
    for claim in claims:
        made(tmp_path, claim, hit=["w/ CF"])
    run = RunId("pfedclr", "ml-100k", "clean", "pfedclr", 0)
    write_run(tmp_path, run, METHODS, ranks=MISS, diverged=7)
    found = written(tmp_path, claims)
    by_claim = rows(found["csv"])
    row = by_claim["pfedclr-low-rank-helps", "ml-100k", "hr@10"]
    assert (row["verdict"], row["clean_diverged"]) == ("diverges", "w/ CLR in round 7")
    assert "published_diverged" not in row
    assert by_claim["pfedclr-calibration-helps", "ml-100k", "hr@10"]["clean_diverged"] == ""
    assert by_claim["pfedclr-low-rank-helps", "all", "hr@10"]["verdict"] == "diverges 1"
    assert "-1.0000† [-1.0000, -1.0000]" in found["md"]
    assert "- † Diverged: ml-100k, clean: w/ CLR in round 7. What is shown" in found["md"]
    assert "otherwise it is left open." in found["md"]
    (count,) = read_shown(tmp_path / "tables/verdicts.json").chapter.counts
    assert (count["claims"], count["tested"]) == (2, 1)
    assert count["verdicts"] == [["holds", 1], ["weaker", 0], ["reversed", 0], ["diverges", 1]]


def test_nothing_is_said_of_divergence_where_no_run_diverged(tmp_path):
    assert not any("iverged" in text or "†" in text for text in written(tmp_path, four(tmp_path)).values())


def test_what_print_itself_does_not_bear_out_is_told(tmp_path):
    """The paper prints a higher NDCG of the other line there, and of none elsewhere."""
    claim = CLAIMS["pfedrec-beats-all-in-catalogue"]
    text = written(tmp_path, [replace(claim, datasets=("amazon-video-a", "ml-100k"))])["md"]
    assert f"Print itself does not bear out: {claim.text}, amazon-video-a, NDCG@10.\n" in text
    assert "does not bear out" not in written(tmp_path, [replace(claim, datasets=("ml-100k",))])["md"]
