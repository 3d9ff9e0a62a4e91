"""What is known before Snakemake starts: which runs are to be trained, and which again."""

import pytest

from fedrec.errors import ConfigurationError
from fedrec.files.sealed import write_sealed
from fedrec.plan.run_list import ASKED
from fedrec.plan.runs import FILES
from fedrec.plan.workflow_start import prepare_start
from tests.projects import Made


@pytest.fixture
def project(tmp_path):
    return Made(tmp_path).project()


def finish(project, run, **changes):
    """Write the files of a finished run; only run.json is read."""
    job = project.job(run)
    folder = project.results / run.folder
    folder.mkdir(parents=True)
    for file in FILES:
        (folder / file).touch()
    summary = {
        "method": run.method,
        "seed": run.seed,
        "settings": job.settings,
        "record": list(job.records),
        "engine": "fused",
        "code": job.fingerprint,
    }
    write_sealed(folder / "run.json", summary | changes)


def test_missing_current_and_outdated_runs(project):
    start = prepare_start(project, ["alpha_comparison"])
    assert start.unfinished == start.runs
    assert start.forced_files == []

    current, outdated, *missing = start.runs
    finish(project, current)
    finish(project, outdated, code="of another day")
    start = prepare_start(project, ["alpha_comparison"])
    assert set(start.unfinished) == {outdated, *missing}
    assert start.forced_files == [f"{project.configuration['results']}/{outdated.folder}/run.json"]
    assert start.summary.startswith(f"Runs to train: {1 + len(missing)}, about")


def test_without_a_target_it_is_all(project):
    assert prepare_start(project, []) == prepare_start(project, ["all"])


def test_a_misspelt_target_is_an_error(project):
    with pytest.raises(ConfigurationError, match="Did you mean 'alpha_comparison'"):
        prepare_start(project, ["alpha_comparisn"])


def test_all_runs_are_listed_for_status(project):
    start = prepare_start(project, ["alpha_comparison"])
    start.write_run_list()
    assert len((project.results / ASKED).read_text().splitlines()) == len(start.runs)
