"""What is known before Snakemake starts: which runs are to be trained, and which again."""

import pytest

from fedrec.errors import ConfigurationError
from fedrec.plan.run_list import RUN_LIST_FILE
from fedrec.plan.target_names import runs_for_targets
from fedrec.plan.workflow_start import prepare_start
from tests.planned_runs import finish, split
from tests.projects import Made


@pytest.fixture
def project(tmp_path):
    return Made(tmp_path).project()


def test_missing_current_and_outdated_runs(project):
    start = prepare_start(project, ["alpha_comparison"])
    assert start.unfinished == start.runs
    assert start.forced_files == []

    current, outdated, incomplete, missing = start.runs
    finish(project, current)
    finish(project, outdated, code="of another day")
    finish(project, incomplete)
    (project.results / incomplete.folder / "ranks.parquet").unlink()
    start = prepare_start(project, ["alpha_comparison"])
    assert start.unfinished == [outdated, incomplete, missing]
    results = project.configuration["results"]
    assert start.forced_files == [f"{results}/{run.folder}/run.json" for run in (outdated, incomplete)]
    assert start.summary(2).startswith("Runs to train: 3, about")


def test_a_split_of_another_protocol_is_made_again_before_its_runs(project):
    """Snakemake accepts a split that it did not make."""
    run, *_ = runs_for_targets(project, ["alpha_comparison"])
    older = project.protocol(run.protocol).as_dict() | {"rank_ties": "older"}
    finish(project, run)
    split(project, run, protocol=older)
    (file,) = prepare_start(project, ["alpha_comparison"]).forced_files
    assert project.root / file == project.spec(run).split
    finish(project, run, protocol=older)
    split(project, run, protocol=older)
    forced = [project.root / file for file in prepare_start(project, ["alpha_comparison"]).forced_files]
    assert forced == [project.spec(run).split, project.spec(run).folder / "run.json"]


def test_only_an_attack_on_uploads_has_a_finished_run_trained_again_for_its_traffic(tmp_path):
    project = Made(tmp_path).project(datasets=["alpha"], methods=["fedmf"], protocols=["clean"])
    (run,) = runs_for_targets(project, ["audit_uploads"])
    assert project.job(run).records == ("traffic",)
    finish(project, run, record=[])
    for target in ("alpha_comparison", "audit_significance"):
        assert prepare_start(project, [target]).unfinished == []
    for target in ("audit_uploads", "report", f"{project.results}/tables/audit_uploads.csv"):
        start = prepare_start(project, [target])
        assert run in start.outdated
        why = "retrained: 1, because it differs from the plan in its records (traffic missing)."
        assert why in start.summary(None)


def test_without_a_target_it_is_all(project):
    assert prepare_start(project, []) == prepare_start(project, ["all"])


def test_a_misspelt_target_is_an_error(project):
    with pytest.raises(ConfigurationError, match="Did you mean 'alpha_comparison'"):
        prepare_start(project, ["alpha_comparisn"])


def test_all_runs_are_listed_for_status(project):
    start = prepare_start(project, ["alpha_comparison"])
    start.write_run_list()
    assert len((project.results / RUN_LIST_FILE).read_text().splitlines()) == len(start.runs)
