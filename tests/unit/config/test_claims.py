"""The papers' claims as configuration, and the runs behind them."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from fedrec.config.claims import COSTS_LITTLE, Claim, load_claims, named_lines
from fedrec.config.conditions import CONDITIONS, MAIN, conditions_among
from fedrec.config.document import Document
from fedrec.config.found_file import with_findings
from fedrec.config.methods import Methods
from fedrec.config.papers import Artefact, Line, load_papers
from fedrec.config.printed import printed
from fedrec.config.tuning import has_tuned
from fedrec.errors import ConfigurationError
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_of_claim
from tests.conftest import ROOT
from tests.federations import METHODS

FILE = ROOT / "config/claims.yaml"
DECLARED = load_papers(ROOT / "config/papers")
CLAIMS = {claim.id: claim for claim in load_claims(FILE, DECLARED)}


def refusal(tmp_path, change, old="line: pfedclr\n"):
    """What is said of the project's own file with the first `old` changed."""
    text = FILE.read_text()
    assert old in text
    path = tmp_path / "claims.yaml"
    path.write_text(text.replace(old, change, 1))
    with pytest.raises(ConfigurationError) as error:
        load_claims(path, DECLARED)
    return str(error.value)


def numbers(claim: Claim, artefact: Artefact, dataset: str, metric: str) -> list[float | None]:
    """The printed numbers of a claim's lines, its own first."""
    lines = named_lines(artefact)
    found = [
        printed(claim.paper, artefact.printed, dataset, lines[name].printed, metric) for name in claim.lines
    ]
    return [None if one is None else one.value for one in found]


def test_every_paper_makes_claims_and_there_are_enough_of_them():
    assert 20 <= len(CLAIMS) <= 40
    assert {claim.paper for claim in CLAIMS.values()} == set(load_papers(ROOT / "config/papers"))


def shown() -> Iterator[tuple[Claim, Artefact, str]]:
    """Every claim with each artefact it is about and each dataset of it."""
    for claim in CLAIMS.values():
        for artefact in claim.artefacts:
            for dataset in claim.datasets:
                yield claim, artefact, dataset


def test_every_claim_is_about_lines_with_printed_numbers_or_about_a_figure():
    for claim, artefact, dataset in shown():
        if artefact.printed is None:
            assert artefact.form == "figure", (claim.id, artefact.name)
            continue
        for metric in artefact.metrics:
            assert None not in numbers(claim, artefact, dataset, metric), (claim.id, dataset, metric)


def test_a_paper_is_judged_where_its_own_numbers_say_what_it_claims():
    """Two lines in the wrong order would turn a verdict round."""
    for claim, artefact, dataset in shown():
        if artefact.printed is not None and "hr@10" in artefact.metrics:
            own, *others = numbers(claim, artefact, dataset, "hr@10")
            small = 0.1 if claim.kind == COSTS_LITTLE else 0
            assert own > (1 - small) * max(others), (claim.id, dataset)


def test_every_claim_shows_the_metric_it_is_judged_by():
    for claim in CLAIMS.values():
        assert "hr@10" in {metric for artefact in claim.artefacts for metric in artefact.metrics}, claim.id


def test_others_are_the_federated_lines():
    claim = CLAIMS["pfedclr-beats-federated"]
    assert claim.over == ("fedmf", "fedncf", "pfedgraph", "gpfedrec", "pfedrec", "fedrap")
    assert "lastfm-2k-c" not in claim.datasets


def test_a_name_that_two_lines_share_names_neither():
    lines = (Line(run="fedmf"), Line(run="pfedrec"), Line(run="pfedrec"), Line(label="gain", gain=("a", "b")))
    assert list(named_lines(Artefact("pfedclr", "table1", "Made", "results", lines=lines))) == ["fedmf"]


def test_the_runs_of_a_claim_are_of_both_protocols_and_may_be_shortened():
    claim = replace(CLAIMS["pfedclr-noise-costs-little"], datasets=("ml-100k", "ml-1m"))
    missing = {"ml-1m": "no file"}
    noise = ("pfedclr[ldp=0.5][rounds=15]", "pfedclr[rounds=15]")
    assert runs_of_claim(claim, METHODS, [3], 15, missing, [MAIN]) == [
        RunId("pfedclr", "ml-100k", kind, method, 3)
        for kind, methods in (("clean", (*noise, "popularity")), ("published-pfedclr", noise))
        for method in methods
    ]
    assert {run.method for run in runs_of_claim(claim, METHODS, [3], None, missing, [MAIN])} == {
        "pfedclr", "pfedclr[ldp=0.5]", "popularity",
    }  # fmt: skip
    # Popularity has the same numbers with every seed.
    assert len(runs_of_claim(claim, METHODS, [0, 1], None, (), [MAIN])) == 2 * 2 * 2 * 2 + 2
    conditions = [one for one in CONDITIONS if not one.tuned]
    besides = set(runs_of_claim(claim, METHODS, [0, 1], None, (), conditions)) - set(
        runs_of_claim(claim, METHODS, [0, 1], None, (), [MAIN])
    )
    assert Counter(run.protocol for run in besides) == {"neutral": 2 * 2 * 2 + 2, "temporal": 2 * 2 * 2 + 2}
    missing = {"ml-1m/temporal": "no times"}
    less = runs_of_claim(claim, METHODS, [0, 1], None, missing, conditions)
    assert Counter(run.protocol for run in besides.intersection(less)) == {"neutral": 10, "temporal": 5}


def test_a_claim_to_be_better_asks_for_no_popularity():
    claim = replace(CLAIMS["pfedclr-calibration-helps"], datasets=("ml-100k",))
    found = runs_of_claim(claim, METHODS, [0], None, (), CONDITIONS)
    assert found
    assert "popularity" not in {run.method for run in found}


def test_a_claim_that_something_costs_little_is_named_by_it():
    """The summary of verdicts takes it from there."""
    named = {claim.name for claim in CLAIMS.values() if claim.kind == COSTS_LITTLE}
    assert named == {"noise-costs-little", "federation-costs-little"}


def test_a_claim_over_all_others_names_none_of_them():
    over_others = {claim.id for claim in CLAIMS.values() if claim.over_others}
    papers = ("pfedclr", "pfedrec", "fedem", "fedrap")
    assert over_others == {f"{paper}-beats-federated" for paper in papers}


@pytest.mark.parametrize("tuned", [one for one in CONDITIONS if one.tuned], ids=lambda one: one.key)
def test_with_tuned_settings_a_line_has_what_was_found_and_its_own_changes(tuned):
    """What was found under the clean protocol, whatever the condition is."""
    claim = replace(CLAIMS["pfedclr-noise-costs-little"], datasets=("ml-100k", "ml-1m"))
    assert not has_tuned(METHODS.unsearched)
    entry = {"ml-100k": {"trials": 16, "settings": {"beta": 0.001}, "held": {}}}
    methods = Methods(with_findings(METHODS.unsearched, Document("found", {"pfedclr@clean": entry})))
    assert has_tuned(methods)
    of_protocol = {
        run
        for run in runs_of_claim(claim, methods, [3], None, (), [tuned])
        if run.protocol == tuned.protocol and run.method != "popularity"
    }
    assert of_protocol == {
        RunId("pfedclr", "ml-100k", tuned.protocol, method, 3)
        for method in ("pfedclr[beta=0.001]", "pfedclr[beta=0.001][ldp=0.5]")
    }


def test_conditions_are_those_of_the_protocols_that_are_named():
    assert conditions_among(()) == conditions_among(["published"]) == (MAIN,)
    named = ["published", "clean", "neutral", "temporal"]
    assert conditions_among(named, tuned=True) == CONDITIONS
    assert not any(one.tuned for one in conditions_among(named))
    assert [one.key for one in conditions_among((), tuned=True)] == ["clean", "tuned"]
    neutral = conditions_among(["neutral"], tuned=True)
    assert [one.key for one in neutral] == ["clean", "tuned", "neutral", "neutral_tuned"]
    assert [one.key for one in conditions_among(["temporal"])] == ["clean", "temporal"]
    assert len({one.key for one in CONDITIONS}) == len(CONDITIONS)


def test_datasets_that_do_not_count_are_known_to_the_claims_on_them():
    claim = CLAIMS["pfedclr-beats-federated"]
    assert set(claim.not_counted) == {"filmtrust"}
    assert "0.91" in claim.not_counted["filmtrust"]
    assert set(CLAIMS["fedrap-beats-federated"].not_counted) == {"tafeng"}
    assert CLAIMS["plgc-plgc-helps-fedmf"].not_counted == {}


def test_a_published_split_that_cannot_be_had_takes_only_its_own_runs():
    claim = replace(CLAIMS["pfedclr-noise-costs-little"], datasets=("ml-100k",))
    found = runs_of_claim(claim, METHODS, [0], None, ["ml-100k/published-pfedclr"], [MAIN])
    assert {run.protocol for run in found} == {"clean"}


def test_two_tables_of_one_comparison_have_the_same_runs():
    claim = CLAIMS["fedrap-beats-federated"]
    assert [one.name for one in claim.artefacts] == ["table3", "table4"]
    first = replace(claim, artefacts=claim.artefacts[:1])
    both, one = (runs_of_claim(some, METHODS, [0], 15, (), [MAIN]) for some in (claim, first))
    assert both == one


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("lines: pfedclr\n", "pfedclr.beats-federated.lines: unknown key 'lines'. Did you mean 'line'?"),
        ("line: pfedcrl\n", "pfedclr.beats-federated.line: unknown name 'pfedcrl'. Did you mean 'pfedclr'?"),
        # What comes out is never written by hand.
        ("line: pfedclr\n    verdict: holds\n", "pfedclr.beats-federated.verdict: unknown key 'verdict'"),
    ],
)
def test_a_typo_is_refused_with_its_place(tmp_path, change, said):
    text = refusal(tmp_path, change)
    assert said in text
    assert "claims.yaml, line " in text


@pytest.mark.parametrize(
    ("old", "change", "said"),
    [
        ("  filmtrust: ", "  filmtrsut: ", "not_counted.filmtrsut: unknown name 'filmtrsut'. Did you mean"),
        ('  tafeng: "its 120 users are days"', "  tafeng: 1", "not_counted.tafeng: must be text, got 1"),
        ("pfedclr:\n", "pfedlcr:\n", "unknown name 'pfedlcr'. Did you mean 'pfedclr'?"),
        ("shown: [table1]", "shown: [tabel1]", "shown: unknown name 'tabel1'. Did you mean 'table1'?"),
        ("kind: beats", "kind: beat", "is not allowed. Did you mean 'beats'?"),
        ("over: [mf, ncf, lightgcn]", "over: [mf, pfedclr]", "'pfedclr' would be compared with itself"),
        ("over: [w/ AF]", "over: [w/ AF, FedMF]", "are given. Give one, or write kind: beats."),
        ("over: [w/ AF]", "over: [w/ FA]", "unknown name 'w/ FA'"),
        ("over: [w/ AF]", "over: others", "pfedclr_table2 prints no other federated line."),
        (
            "datasets: [ml-100k, ml-1m]",
            "datasets: [ml-100k, filmtrust]",
            "pfedrec.beats-centralised.datasets: unknown name 'filmtrust'",
        ),
    ],
)
def test_what_does_not_fit_the_papers_is_refused(tmp_path, old, change, said):
    assert said in refusal(tmp_path, change, old)
