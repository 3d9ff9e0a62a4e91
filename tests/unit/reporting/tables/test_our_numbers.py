"""Our number beside each printed one: its tolerance, what it rests on, what trials give, and what is copied."""

from dataclasses import replace

import pytest

from fedrec.config.papers import load_papers
from fedrec.data.interactions import write_interactions
from fedrec.plan.cause_runs import line_folder
from fedrec.plan.runs import RunId
from fedrec.reporting.build import build
from fedrec.reporting.tables.our_numbers import Tried, ours_in
from tests.conftest import ROOT
from tests.made_data import made_interactions
from tests.made_project import project_with
from tests.made_results import ALL_METHODS
from tests.made_runs import RULES, made, write_run

PAPERS = load_papers(ROOT / "config/papers")
TABLE = replace(
    PAPERS["pfedclr"].artefacts["table1"],
    datasets=("ml-100k",),
    lines=tuple(
        line for line in PAPERS["pfedclr"].artefacts["table1"].lines if line.run in ("mf", "fedmf", "pfedclr")
    ),
)
HALVES = {0: (1, 99) * 50, 1: (99, 1) * 50}
"""Ranks by seed: each user is found with one of both, and not with the other."""


def key(method, variant, metric="hr@10", table="Table 1", paper="pfedclr"):
    return (paper, table, "ml-100k", method, variant, metric)


def ours_of(results, artefact, seeds=(0,), tried=None):
    """Build an artefact from the runs below the results, and read our numbers from it."""
    project = project_with(results, {}, artefact, seeds=list(seeds))
    build(project.target(artefact.target), project)
    return ours_in(project, [artefact.target], tried or {})


def with_runs(results, artefact, seeds=(0,), ranks=HALVES):
    for records in made(results, artefact, ALL_METHODS, ["ml-100k"], seeds).values():
        for record in records:
            write_run(results, record.id, ALL_METHODS, ranks=ranks[record.id.seed])


def test_the_tolerance_is_that_of_users_means_over_seeds(tmp_path):
    with_runs(tmp_path, TABLE, (0, 1))
    mf = key("MF", "centralized")

    assert ours_of(tmp_path, TABLE)[mf].tolerance == pytest.approx(1.96 * 0.5 / 10)
    # Over both seeds every user comes to a half.
    both = ours_of(tmp_path, TABLE, (0, 1))
    assert both[mf].tolerance == 0.02
    assert [folder[-5:] for folder in both[mf].runs if "/published-" in folder] == ["seed0", "seed1"]


def test_numbers_rest_on_what_was_fitted_before_what_was_searched(tmp_path):
    """PFedCLR's rank was fitted to print and its spread searched; MF's rate was searched; FedMF's is stated."""
    with_runs(tmp_path, TABLE)
    found = ours_of(tmp_path, TABLE)
    rests = {
        method: found[key(method, kind)]
        for method, kind in (("MF", "centralized"), ("FedMF", "federated"), ("PFedCLR", "federated"))
    }

    assert {method: ours.basis for method, ours in rests.items()} == {
        "MF": "searched",
        "FedMF": "neither",
        "PFedCLR": "checked",
    }
    assert {method: set(ours.searched) for method, ours in rests.items()} == {
        "MF": {"rate", "spread"}, "FedMF": set(), "PFedCLR": {"correction_spread"},
    }  # fmt: skip


def test_trials_are_those_of_the_line_and_none_that_diverged(tmp_path):
    with_runs(tmp_path, TABLE)
    line = RunId("pfedclr", "ml-100k", "published-pfedclr", "mf", 0)
    near, lost = (replace(line, method=f"mf[rate={rate}]", seed=1000) for rate in (0.05, 0.5))
    write_run(tmp_path, near, ALL_METHODS, ranks=(1,) * 9, final_at=dict.fromkeys(RULES, 0.7))
    write_run(tmp_path, lost, ALL_METHODS, diverged=3)
    found = ours_of(tmp_path, TABLE, tried={line_folder(line.folder): [near.folder, lost.folder]})

    assert found[key("MF", "centralized")].tried == (Tried(near.method, 0.7, 0.02),)
    assert found[key("FedMF", "federated")].tried == ()


def test_numbers_of_inactive_users_have_the_tolerance_of_these(tmp_path):
    artefact = replace(PAPERS["pfedrec"].artefacts["table10"], datasets=("ml-100k",))
    users = 400
    # Every other user has enough interactions to be no inactive one.
    rows = [(user, item, 0) for user in range(users) for item in range(20 if user % 2 else 30)]
    interactions = replace(made_interactions(rows, items=30), dataset="ml-100k")
    write_interactions(tmp_path / "data/ml-100k/interactions.parquet", interactions, {})
    # Those who are inactive are found in one of two cases, all others always.
    with_runs(tmp_path, artefact, ranks={0: (1, 1, 1, 99) * (users // 4)})
    trial = RunId("pfedrec", "ml-100k", "published-pfedrec", "pfedrec[rate=0.5]", 1000)
    write_run(tmp_path, trial, ALL_METHODS, ranks=(1,) * users)
    tried = {line_folder(replace(trial, method="pfedrec").folder): [trial.folder]}
    found = ours_of(tmp_path, artefact, tried=tried)
    inactive, everyone = (
        found[key("PFedRec", variant, table="Table 10", paper="pfedrec")]
        for variant in ("inactive users", "full users")
    )

    assert inactive.tolerance == pytest.approx(1.96 * 0.5 / 200**0.5)
    assert everyone.tolerance == pytest.approx(1.96 * (0.25 * 0.75) ** 0.5 / 400**0.5)
    # What a run says of itself is of all users.
    assert (len(everyone.tried), inactive.tried) == (1, ())


def test_a_rate_that_the_configuration_takes_from_print_is_copied(tmp_path):
    artefact = PAPERS["pfedrec"].artefacts["table4"]
    found = ours_of(tmp_path, artefact)
    assert len(found) == 32
    assert {one.is_copied for one in found.values()} == {True}

    path = tmp_path / "tables/pfedrec_table4.csv"
    path.write_text(path.read_text(encoding="utf-8").replace(",paper,", ",ours,"), encoding="utf-8")
    again = ours_in(project_with(tmp_path, {}, artefact), [artefact.target], {})
    assert {one.is_copied for one in again.values()} == {False}
