"""Runs among the results: which of them are current, and which are to be trained."""

import numpy as np
import pyarrow as pa
import pytest

from fedrec.files.parquet import write_table
from fedrec.files.sealed import write_sealed
from fedrec.plan.asked import runs_asked
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.run_matching import current, outdated, unfinished
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
    said = {
        "method": run.method,
        "seed": run.seed,
        "settings": dict(job.settings),
        "record": list(job.records),
    }
    said |= {"engine": "batched", "split": "abc"}
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
    assert current(project, [run]) == [run]


@pytest.mark.parametrize(
    "changes",
    [
        {"code": "0" * 64},
        {"engine": "loop"},
        {"engine": "unknown here"},
        {"settings": {"d": 3}},
        {"seed": 7},
        {"method": "ncf"},
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


def test_an_incomplete_run_is_unfinished_and_one_with_a_damaged_summary_is_outdated(project, run):
    place(project, run)
    model, summary = (project.results / run.folder / name for name in ("state.safetensors", "run.json"))
    model.unlink()
    assert outdated(project, [run]) == []
    assert unfinished(project, [run]) == [run]
    model.touch()
    assert unfinished(project, [run]) == []
    summary.write_text("{")
    assert outdated(project, [run]) == unfinished(project, [run]) == [run]
