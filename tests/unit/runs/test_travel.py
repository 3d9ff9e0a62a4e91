"""Runs as an archive, from one folder of results to another: taken whole and as planned, or refused with a reason."""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from fedrec.errors import StorageError
from fedrec.files.atomic import unflushed
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.files.lock import locked
from fedrec.files.run_archive import write_archive
from fedrec.plan.run_matching import RunMatcher, unfinished
from fedrec.plan.runs import FILES
from fedrec.plan.target_names import runs_for_targets, runs_in_results
from fedrec.runs.exporting import export_runs
from fedrec.runs.importing import import_runs
from fedrec.runs.record import RunRecord
from fedrec.runs.results import records_below
from tests.conftest import ROOT
from tests.planned_runs import finish, split
from tests.projects import Made


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made")).project()


@pytest.fixture
def there(made, tmp_path):
    """The project on another machine, where its runs are finished."""
    project = project_in(made, tmp_path / "there")
    with unflushed():
        for run in runs_of(project):
            finish(project, run)
    return project


@pytest.fixture
def here(made, tmp_path):
    """The same project here, where there are splits alone."""
    project = project_in(made, tmp_path / "here")
    with unflushed():
        for run in runs_of(project):
            split(project, run)
    return project


def project_in(made, results):
    """The project with another folder of results."""
    return replace(made, configuration={**made.configuration, "results": str(results)})


def runs_of(project):
    return runs_for_targets(project, ["alpha_comparison"])


def exported(project, runs=None):
    stream = io.BytesIO()
    folders = {run.folder: project.results / run.folder for run in runs or runs_of(project)}
    export_runs(folders, stream)
    return stream.getvalue()


def imported(project, data, **more):
    return import_runs(project, io.BytesIO(data), "runs.tar", **more)


def files_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def is_untouched(project, before=None):
    """Whether there is no more of any run, half or whole, than there was before."""
    return files_of(project.results) == before


def test_runs_that_were_brought_are_finished(there, here):
    runs = runs_of(here)
    assert unfinished(here, runs) == runs
    done = imported(here, exported(there))
    assert done.imported == tuple(run.folder for run in runs)
    assert (done.unchanged, done.refused) == ((), {})
    assert unfinished(here, runs) == []
    assert files_of(here.results / "runs") == files_of(there.results / "runs")
    for run in runs:
        RunRecord(here.results / run.folder).check()
    assert not list(here.results.rglob(".*"))


def test_equal_runs_give_equal_bytes_whenever_they_were_written(there):
    data = exported(there)
    for path in (there.results / "runs").rglob("*.*"):
        os.utime(path, (1, 1))
        path.chmod(0o600)
    assert exported(there) == data


def test_a_damaged_run_is_not_exported(there):
    path = there.results / runs_of(there)[0].folder / "state.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError, match=r"state\.safetensors: is damaged"):
        exported(there)


def test_what_is_unfinished_or_of_another_plan_is_left_out_with_the_reason(there):
    older, half, gone, whole = runs_of(there)
    finish(there, older, code="0" * 64)
    (there.results / half.folder / "curve.parquet").unlink()
    shutil.rmtree(there.results / gone.folder)
    matcher = RunMatcher()
    assert {run: matcher.match(there.spec(run)).reason for run in runs_of(there)} == {
        older: "it differs from the plan in its code.",
        half: "it is not finished.",
        gone: "it is not finished.",
        whole: "",
    }


def test_every_run_that_lies_there_is_found_by_its_name(there):
    stranger = there.results / "runs/pfedclr/alpha/clean/nobody/seed0"
    shutil.copytree(there.results / runs_of(there)[0].folder, stranger)
    runs, nameless = runs_in_results(there)
    assert runs == sorted(runs_of(there))
    ((folder, why),) = nameless.items()
    assert folder == "runs/pfedclr/alpha/clean/nobody/seed0"
    assert "unknown method 'nobody'" in why


def test_an_archive_with_one_byte_changed_or_cut_off_brings_nothing(there, here):
    data, before = exported(there), files_of(here.results)
    last_file = runs_of(there)[-1].folder.encode()
    for place in (0, 600, data.index(b"PAR1"), data.rindex(last_file), data.rindex(b"PAR1")):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(StorageError, match="fedrec imported nothing"):
            imported(here, bytes(changed))
        with pytest.raises(StorageError, match="fedrec imported nothing"):
            imported(here, data[:place])
        assert is_untouched(here, before)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"code": "0" * 64}, "it differs from the plan here in its code."),
        ({"settings": {"rounds": 3}}, "in rounds (3 there, 2 here)"),
        ({"settings": None}, "in its settings"),
        ({"split": "another"}, "in its split."),
        ({"diverged": {"round": 1}}, "in that it diverged."),
        (
            {"seed": 5},
            "its run.json belongs to another run, runs/pfedrec/alpha/published-pfedrec/draw-counter",
        ),
        ({"protocol": "clean"}, "is not the record of a run"),
        ({"record": 3}, "is not the record of a run"),
        ({"method": ["a"]}, "run"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_run_that_is_not_the_plans_is_refused_and_others_are_taken(there, here, changes, why):
    run, *others = [run for run in runs_of(there) if run.method != "popularity"]
    write_checked_json(
        there.results / run.folder / "run.json",
        read_checked_json(there.results / run.folder / "run.json") | changes,
    )
    names = [f"{one.folder}/{file}" for one in (run, *others) for file in FILES]
    data = archive_of({name: there.results / name for name in names})
    here = replace(here, configuration={**here.configuration, "diverged": "refused"})
    done = imported(here, data)
    assert done.imported == tuple(one.folder for one in others)
    assert list(done.refused) == [run.folder]
    assert why in done.refused[run.folder]
    assert not (here.results / run.folder).exists()


def test_a_run_that_recorded_too_little_is_refused(there, here):
    (run,) = (run for run in runs_for_targets(there, ["demo"]) if there.job(run).records)
    finish(there, run, record=[])
    split(here, run)
    done = imported(here, exported(there, [run]))
    assert "in its records (" in done.refused[run.folder]


def test_a_run_whose_split_is_not_here_is_refused_with_the_command_that_makes_it(there, here):
    shutil.rmtree(here.results / "data")
    done = imported(here, exported(there))
    assert done.imported == ()
    assert all("Make it with: snakemake --cores 2 --force '" in why for why in done.refused.values())


def archive_of(files):
    stream = io.BytesIO()
    write_archive(stream, files)
    return stream.getvalue()


@pytest.mark.parametrize(
    "folder",
    ["runs", "data/alpha/clean", "runs/pfedclr/alpha/clean/popularity/seed0/deeper", "elsewhere"],
)
def test_whatever_is_no_run_is_refused(there, here, folder):
    run = runs_of(there)[0]
    source, before = there.results / run.folder, files_of(here.results)
    data = archive_of({f"{folder}/{file}": source / file for file in FILES})
    done = imported(here, data)
    assert (done.imported, list(done.refused)) == ((), [folder])
    data = archive_of({f"{run.folder}/own.py": source / "run.json"})
    with pytest.raises(StorageError, match=r"in it is not a run\. fedrec imported nothing"):
        imported(here, data)
    assert is_untouched(here, before)


def test_a_run_put_together_of_two_is_refused(there, here):
    """Each file is whole, and the manifest right: but the run.json is not of these."""
    one, other = runs_of(there)[:2]
    finish(there, other, value=2.0)
    folders = dict.fromkeys(FILES, there.results / one.folder) | {
        "curve.parquet": there.results / other.folder
    }
    data = archive_of({f"{one.folder}/{file}": at / file for file, at in folders.items()})
    before = files_of(here.results)
    with pytest.raises(StorageError, match=f"the files of {one.folder} in it do not belong together"):
        imported(here, data)
    assert is_untouched(here, before)


def test_a_run_that_is_here_is_kept_if_it_is_the_same_and_otherwise_reported(there, here):
    same, other, older, half, *_ = runs_of(there)
    finish(here, same)
    summary = here.results / same.folder / "run.json"
    write_checked_json(summary, read_checked_json(summary) | {"measured": {"seconds": 3.0}})
    finish(here, other, value=2.0)
    finish(here, older, value=2.0, code="0" * 64)
    finish(here, half, value=2.0)
    (here.results / half.folder / "state.safetensors").unlink()
    kept = summary.read_bytes(), files_of(here.results / other.folder)
    done = imported(here, exported(there, [same, other, older]))
    assert done.unchanged == (same.folder,)
    assert done.refused == {
        other.folder: "a finished run is here, which differs in curve.parquet, ranks.parquet, "
        "state.safetensors. Add --replace to import this one instead.",
        older.folder: "the run here differs from the plan in its code. Add --replace to import this one instead.",
    }
    assert (summary.read_bytes(), files_of(here.results / other.folder)) == kept
    done = imported(here, exported(there), replace=True)
    assert same.folder in done.unchanged
    assert {other.folder, older.folder, half.folder} <= set(done.imported)
    assert not done.refused
    assert unfinished(here, runs_of(here)) == []


def test_a_run_of_older_code_with_the_same_numbers_is_not_taken_for_the_same(there, here):
    """It would be trained again."""
    run = runs_of(there)[0]
    finish(here, run, code="0" * 64)
    done = imported(here, exported(there, [run]))
    assert "differs from the plan in its code" in done.refused[run.folder]
    assert imported(here, exported(there, [run]), replace=True).imported == (run.folder,)
    assert unfinished(here, [run]) == []


def test_half_of_a_run_is_replaced(there, here):
    run = runs_of(there)[0]
    folder = here.results / run.folder
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"begun")
    (folder / "curve.parquet").write_bytes(b"begun")
    assert imported(here, exported(there, [run])).imported == (run.folder,)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_what_cannot_be_read_is_not_lost(there, here):
    run = runs_of(there)[0]
    finish(here, run)
    (here.results / run.folder / "run.json").write_text("{")
    done = imported(here, exported(there, [run]))
    assert "the run here cannot be read" in done.refused[run.folder]
    assert (here.results / run.folder / "run.json").read_text() == "{"


def test_a_run_in_training_is_left_alone(there, here):
    run, other, *_ = runs_of(there)
    with locked(here.results / run.folder):
        done = imported(here, exported(there, [run, other]))
    assert done.imported == (other.folder,)
    assert "is writing to this folder" in done.refused[run.folder]
    assert not list(here.results.rglob(".import.*"))


KILLED = """
import json, os, signal, sys
from pathlib import Path
from fedrec.plan.project import Project
from fedrec.runs import importing

moved, before = [], importing._move

def move_once(*words):
    if moved:
        os.kill(os.getpid(), signal.SIGKILL)
    moved.append(before(*words))

importing._move = move_once
root, configuration, archive = sys.argv[1:]
project = Project.load(json.loads(configuration), Path(root), Path(root) / "mirror")
importing.import_runs(project, open(archive, "rb"), "runs.tar")
"""


def test_an_import_that_is_killed_leaves_nothing_half_and_the_next_one_clears_up(there, here, tmp_path):
    """Between two runs that move to their places: one is whole, of the others nothing is there."""
    archive = tmp_path / "runs.tar"
    archive.write_bytes(exported(there))
    words = (str(here.root), json.dumps(here.configuration), str(archive))
    outcome = subprocess.run([sys.executable, "-c", KILLED, *words], cwd=ROOT, check=False)
    assert outcome.returncode == -signal.SIGKILL
    first, *others = runs_of(here)
    assert unfinished(here, runs_of(here)) == others
    assert not any((here.results / run.folder).exists() for run in others)
    (stage,) = here.results.rglob(".import.*")
    assert list(stage.rglob("run.json"))
    assert [record.folder for record in records_below(here.results)] == [here.results / first.folder]
    done = imported(here, exported(there))
    assert (len(done.imported), done.unchanged) == (len(others), (first.folder,))
    assert not list(here.results.rglob(".import.*"))


def test_runs_may_lie_on_another_disk_than_other_results(there, here, tmp_path):
    """As far as a test can have one: their folder is a link."""
    (tmp_path / "disk").mkdir()
    (here.results / "runs").symlink_to(tmp_path / "disk")
    assert len(imported(here, exported(there)).imported) == 4
    assert (here.results / "runs").is_symlink()
    assert unfinished(here, runs_of(here)) == []


def test_two_imports_at_once_leave_each_other_alone(there, here):
    with locked(here.results / "runs/.import.another"):
        imported(here, exported(there))
        assert (here.results / "runs/.import.another").is_dir()
