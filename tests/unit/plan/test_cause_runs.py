"""Runs that explain a miss: which trials are behind a line, and which runs causes name."""

import pytest

from fedrec.errors import ResultError
from fedrec.plan.cause_runs import cause_runs, line_folder, trials_behind
from fedrec.plan.runs import RunId
from fedrec.plan.targets import COVERAGE
from tests.made_project import project_with
from tests.made_results import ALL_METHODS
from tests.made_runs import write_run

SEED = 1000


def run_of_mf(method="mf", seed=0, dataset="ml-100k", paper="pfedclr"):
    return RunId(paper, dataset, f"published-{paper}", method, seed)


def test_trials_differ_from_the_line_in_searched_settings_alone(tmp_path):
    """Rate and spread of MF are searched under PFedCLR; its size is stated."""
    project = project_with(tmp_path)
    assert project.tuning.seed == SEED
    trials = [
        run_of_mf(seed=SEED),
        run_of_mf("mf[rate=0.05]", SEED),
        run_of_mf("mf[rate=0.05][spread=0.5]", SEED),
    ]
    others = [
        run_of_mf("mf[d=8][rate=0.05]", SEED),
        run_of_mf("mf[rounds=25]", SEED),
        run_of_mf("mf[rate=0.05]", 0),
        run_of_mf("mf[rate=0.05]", SEED, dataset="ml-1m"),
        run_of_mf("mf[rate=0.05]", SEED, paper="fedem"),
        RunId("pfedclr", "ml-100k", "clean", "mf[rate=0.05]", SEED),
        RunId("pfedclr", "ml-100k", "published-pfedclr", "ncf[rate=0.05]", SEED),
    ]
    for run in (*trials, *others):
        write_run(tmp_path, run, ALL_METHODS)
    line, other = run_of_mf(), run_of_mf("mf[d=8]")
    behind = trials_behind(project, [line, run_of_mf(seed=3), other, run_of_mf("popularity")])

    assert behind == {
        line_folder(line.folder): sorted(trials),
        line_folder(other.folder): [others[0]],
    }
    assert line_folder(line.folder) == line_folder(run_of_mf(seed=3).folder)


def test_a_line_of_searched_settings_without_trials_is_there(tmp_path):
    line = run_of_mf()
    assert trials_behind(project_with(tmp_path), [line]) == {line_folder(line.folder): []}


def test_a_damaged_trial_is_an_error_that_names_it(tmp_path):
    record = write_run(tmp_path, run_of_mf("mf[rate=0.05]", SEED), ALL_METHODS)
    path = record.folder / "run.json"
    path.write_text(path.read_text(encoding="utf-8").replace("mf", "mg"), encoding="utf-8")
    with pytest.raises(ResultError, match="is damaged"):
        trials_behind(project_with(tmp_path), [run_of_mf()])


def cause(**more):
    return {
        "cause": "fits with another code's setting",
        "why": "so",
        "fits": "fedrap[curriculum=fixed]",
        **more,
    }


def test_causes_name_runs_of_the_papers_and_datasets_of_printed_metrics(tmp_path):
    named = cause(paper=["pfedclr", "fedem"], method=["FedRAP"], variant=["federated"])
    bounded = {"cause": "our choice of split", "why": "so", "at_most": 0.1}
    reference = {"order": [], "causes": [named, bounded]}
    project = project_with(
        tmp_path, {"hetrec2011": "gone"}, reference=reference, paper_datasets=["ml-100k", "ml-1m"]
    )
    found = cause_runs(project)

    assert {(run.paper, run.dataset) for run in found} == {
        (paper, dataset) for paper in ("pfedclr", "fedem") for dataset in ("ml-100k", "ml-1m")
    }
    assert {run.method for run in found} == {"fedrap[curriculum=fixed]"}
    assert {run.seed for run in found} == {0}
    assert {run.protocol for run in found} == {"published-pfedclr", "published-fedem"}
    # Counts and times are of no run's ranks.
    assert (
        cause_runs(project_with(tmp_path, reference={"order": [], "causes": [cause(metric=["users"])]})) == []
    )
    assert cause_runs(project_with(tmp_path)) == []


def test_the_coverage_asks_for_what_causes_name_and_reads_the_trials_that_are_done(tmp_path):
    reference = {"order": [], "causes": [cause(paper=["pfedclr"], method=["FedRAP"], variant=["federated"])]}
    write_run(tmp_path, run_of_mf("mf[rate=0.05]", SEED), ALL_METHODS)
    target = project_with(tmp_path, {"hetrec2011": "gone"}, reference=reference).target(COVERAGE)
    fitting = RunId("pfedclr", "ml-100k", "published-pfedclr", "fedrap[curriculum=fixed]", 0)
    trial = run_of_mf("mf[rate=0.05]", SEED)

    assert {fitting, run_of_mf()} <= {*target.runs}
    assert trial not in target.runs
    assert f"{trial.folder}/run.json" in target.reads
    assert target.content["tried"][line_folder(run_of_mf().folder)] == [trial.folder]
