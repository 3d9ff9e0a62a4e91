"""Runs that lie among the results: which are those of the plan, and which are to be trained again."""

import numpy as np
import pyarrow as pa
import pytest

from fedrec.files.parquet import write_table
from fedrec.files.sealed import write_sealed
from fedrec.plan.asked import runs_asked
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.finished import outdated, unfinished
from fedrec.plan.runs import FILES
from tests.projects import Made


@pytest.fixture
def project(tmp_path):
    return Made(tmp_path).project()


@pytest.fixture
def run(project):
    (run,) = (run for run in runs_asked(project, ["demo"]) if run.method.startswith("fedmf"))
    return run


def place(project, run, **changes):
    """Let a run lie there, finished, as if it had been trained elsewhere."""
    job = project.job(run)
    folder = project.results / run.folder
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).touch()
    said = {"settings": dict(job.settings), "record": list(job.records), "engine": "batched", "split": "abc"}
    said["code"] = run_fingerprint(run.method, said["engine"])
    write_sealed(folder / "run.json", said | changes)


def split(project, run, content):
    table = pa.table({"user": np.arange(3)})
    write_table(project.results / run.split / "split.parquet", table, {"split": content})


def test_a_run_that_is_not_there_is_unfinished_and_not_outdated(project, run):
    assert unfinished(project, [run]) == [run]
    assert outdated(project, [run]) == []


@pytest.mark.parametrize("engine", ["batched", "loop"])
def test_a_run_of_this_code_is_finished_whichever_engine_trained_it(project, run, engine):
    place(project, run, engine=engine, code=run_fingerprint(run.method, engine), device="cuda")
    split(project, run, "abc")
    assert unfinished(project, [run]) == outdated(project, [run]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "0" * 64},
        {"engine": "loop"},
        {"engine": "unknown here"},
        {"settings": {"d": 3}},
        {"record": []},
        {"split": "another"},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_run_of_other_code_settings_or_split_is_trained_again(project, run, changes):
    assert project.job(run).records, "it records something"
    place(project, run, **changes)
    split(project, run, "abc")
    assert outdated(project, [run]) == unfinished(project, [run]) == [run]


def test_a_split_that_is_not_here_judges_nothing(project, run):
    place(project, run)
    assert outdated(project, [run]) == []
    (project.results / run.split).mkdir(parents=True)
    (project.results / run.split / "split.parquet").write_bytes(b"PAR1")
    assert outdated(project, [run]) == []


def test_a_damaged_run_is_left_to_who_reads_it_and_half_of_one_is_unfinished(project, run):
    place(project, run)
    (project.results / run.folder / "state.safetensors").unlink()
    assert outdated(project, [run]) == []
    assert unfinished(project, [run]) == [run]
    (project.results / run.folder / "run.json").write_text("{")
    assert outdated(project, [run]) == []
