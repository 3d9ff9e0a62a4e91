"""How far runs are, by the files among the results: every state, and how long the rest takes."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import yaml

from fedrec.cli.main import main
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.files.lock import LOCK, locked
from fedrec.plan.run_list import list_text
from fedrec.plan.run_status import estimate_time, run_statuses
from fedrec.plan.runs import log_of
from fedrec.plan.status_text import format_status, status_as_dict
from fedrec.plan.target_names import runs_for_targets
from tests.conftest import ROOT
from tests.planned_runs import finish
from tests.projects import Made, configuration

NOTE = {"round": 30, "rounds": 100, "seconds": 0.5}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Made(tmp_path_factory.mktemp("made")).project()


@pytest.fixture
def project(made, tmp_path):
    return replace(made, configuration={**made.configuration, "results": str(tmp_path)})


@pytest.fixture
def listed(project):
    """The four runs of a table, as a list has them."""
    runs = runs_for_targets(project, ["alpha_comparison"])
    return [project.job(run).listed(project.results) for run in runs]


def kinds(project, listed, since=None):
    return [state.state for state in run_statuses(listed, project.methods, since)]


def run_of(listed, project):
    return next(run for run in runs_for_targets(project, ["alpha_comparison"]) if run.folder == listed.origin)


def hold(run, process, host, *, silent=0.0, note=""):
    """Let the lock of a run's folder say who holds it."""
    run.out.mkdir(parents=True, exist_ok=True)
    (run.out / LOCK).write_text(f"process {process} on {host}\n{note}\n")
    heard = time.time() - silent
    os.utime(run.out / LOCK, (heard, heard))


def say(run, text):
    log = log_of(run.out)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(text)
    return log


def dead_process():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_before_anything_is_trained_all_runs_wait(project, listed):
    assert kinds(project, listed) == ["waiting"] * 4


def test_a_run_is_done_if_it_is_the_one_that_is_wanted(project, listed):
    for one, changes in zip(
        listed, ({}, {"code": "0" * 64}, {"settings": {}}, {"split": "other"}), strict=True
    ):
        finish(project, run_of(one, project), **changes)
    assert kinds(project, listed) == ["done", "waiting", "waiting", "waiting"]
    (listed[0].out / "state.safetensors").unlink()
    (listed[1].out / "run.json").write_text("{")
    assert kinds(project, listed) == ["waiting"] * 4


def test_another_run_in_the_folder_of_one_is_not_taken_for_it(project, listed):
    finish(project, run_of(listed[0], project))
    other = replace(listed[0], request=replace(listed[0].request, seed=3))
    assert kinds(project, [listed[0], other]) == ["done", "waiting"]


def test_a_run_whose_folder_is_held_runs_and_says_how_far_it_is(project, listed):
    with locked(listed[0].out) as lock:
        (state, *_) = run_statuses(listed, project.methods)
        assert (state.state, state.round, state.holder.process) == ("running", None, os.getpid())
        lock.note(json.dumps(NOTE))
        (state, *_) = run_statuses(listed, project.methods)
        assert (state.round, state.rounds, state.seconds_a_round) == (30, 100, 0.5)
        lock.note("half of a wor")
        assert run_statuses(listed, project.methods)[0].round is None
    assert kinds(project, listed[:1]) == ["waiting"]


def test_a_process_lives_by_its_number_here_and_by_its_last_sign_elsewhere(project, listed):
    here, elsewhere, silent, stale = listed
    hold(here, dead_process(), socket.gethostname(), note=json.dumps(NOTE))
    hold(elsewhere, dead_process(), "node7")
    hold(silent, os.getpid(), "node7", silent=600)
    # After a restart of the machine, the number is another's.
    hold(stale, os.getpid(), socket.gethostname(), silent=600)
    assert kinds(project, listed) == ["lost", "running", "lost", "lost"]


@pytest.mark.parametrize(
    ("log", "kind", "said"),
    [
        ("round 1 of 2\nfedrec: fedmf: memory ran out.\n  more of it\n", "failed", ("fedrec: fedmf: memory ran out.", "  more of it")),
        ("Traceback (most recent call last)\nOSError: no\n", "failed", ("Traceback (most recent call last)", "OSError: no")),
        ("fedrec: fedmf: once.\nfedrec: stopped; the checkpoint of round 1 is kept\n", "waiting", ()),
        ("fedrec: interrupted; no incomplete file was kept.\n", "waiting", ()),
        ("fedmf: round 1 of 2, loss 0.3\n", "waiting", ()),
        ("", "waiting", ()),
    ],
)  # fmt: skip
def test_a_run_failed_if_its_log_ends_with_an_error(project, listed, log, kind, said):
    say(listed[0], log)
    (state, *_) = run_statuses(listed, project.methods)
    assert (state.state, state.log_tail) == (kind, said)


def test_only_the_end_of_a_long_log_is_reported(project, listed):
    say(listed[0], "line\n" * 100_000 + "Traceback (most recent call last)\n" + "deep\n" * 50 + "Error: no\n")
    (state, *_) = run_statuses(listed, project.methods)
    assert state.log_tail == ("deep",) * 9 + ("Error: no",)


def test_what_failed_before_the_workflow_was_started_again_waits(project, listed):
    log = say(listed[0], "fedrec: no.\n")
    asked = log.stat().st_mtime
    assert kinds(project, listed[:1], since=asked) == ["failed"]
    assert kinds(project, listed[:1], since=asked + 1) == ["waiting"]


def test_a_run_that_failed_and_is_trained_again_runs(project, listed):
    say(listed[0], "fedrec: no.\n")
    with locked(listed[0].out):
        assert kinds(project, listed[:1]) == ["running"]
    finish(project, run_of(listed[0], project))
    assert kinds(project, listed[:1]) == ["done"]


def timed(listed, project, seconds, device="here", age=0.0):
    """Let a run be done that took so long."""
    finish(project, run_of(listed, project))
    path = listed.out / "run.json"
    write_checked_json(path, read_checked_json(path) | {"measured": {"seconds": seconds, "device": device}})
    os.utime(path, (1e9 - age, 1e9 - age))


def test_the_time_left_follows_the_runs_that_are_done_on_the_same_device(project, listed):
    listed = [replace(one, seconds=10.0) for one in listed]
    names = [one.request.method for one in listed]
    assert names[0] == names[1] != names[2] == names[3]
    states = run_statuses(listed, project.methods)
    forecast = estimate_time(states)
    assert (forecast.seconds, forecast.is_measured, forecast.until_end) == (40.0, False, None)
    # A tenth of a guess of 10 seconds, besides what each run takes to start.
    timed(listed[0], project, 0.0)
    timed(listed[2], project, 99.0, device="elsewhere", age=5)
    forecast = estimate_time(run_statuses(listed, project.methods))
    assert forecast.is_measured
    assert forecast.of_run == {str(listed[1].out): pytest.approx(1.0), str(listed[3].out): pytest.approx(1.0)}
    os.utime(listed[2].out / "run.json", (2e9, 2e9))
    forecast = estimate_time(run_statuses(listed, project.methods))
    assert forecast.of_run == {
        str(listed[1].out): pytest.approx(100.0),
        str(listed[3].out): pytest.approx(100.0),
    }


def test_the_time_left_counts_what_runs_by_its_rounds_and_leaves_out_what_failed(project, listed):
    listed = [replace(one, seconds=10.0) for one in listed]
    hold(listed[0], 1, "node7", note=json.dumps(NOTE))
    hold(listed[1], 2, "node7", note=json.dumps(NOTE | {"round": 0, "seconds": None}))
    say(listed[2], "fedrec: no.\n")
    forecast = estimate_time(run_statuses(listed, project.methods))
    assert list(forecast.of_run.values()) == [35.0, 10.0, 10.0]
    assert (forecast.at_once, forecast.seconds, forecast.until_end) == (2, 55.0, 35.0)


def test_runs_that_one_process_trains_together_take_as_long_as_one(project, listed):
    listed = [replace(one, seconds=10.0) for one in listed]
    for number, process in ((0, 1), (1, 1), (2, 2)):
        hold(listed[number], process, "node7", note=json.dumps(NOTE))
    forecast = estimate_time(run_statuses(listed, project.methods))
    assert list(forecast.of_run.values()) == [35.0, 35.0, 35.0, 10.0]
    assert (forecast.at_once, forecast.seconds, forecast.until_end) == (2, 80.0, 40.0)


def test_states_are_reported_in_words_and_as_json(project, listed):
    listed = [replace(one, seconds=10.0) for one in listed]
    finish(project, run_of(listed[0], project))
    hold(listed[1], 4242, "node7", note=json.dumps(NOTE))
    log = say(listed[2], "fedrec: no.\n  because\n")
    hold(listed[3], 7, "node8", silent=7200)
    (listed[3].out / "checkpoint.safetensors").touch()
    states = run_statuses(listed, project.methods)
    name = [one.origin.removeprefix("runs/") for one in listed]
    lines = format_status(states, estimate_time(states)).splitlines()
    assert lines[0] == (
        "1 of 4 runs done, 1 running, 1 failed, 1 lost; "
        "about 45 s left with 1 at the same time (by the cost model)."
    )
    assert lines[1:] == [
        "running:",
        f"  {name[1]}: round 30 of 100, 0.5 s per round, about 35 s left (process 4242 on node7)",
        "failed:",
        f"  {name[2]}, log {log}:",
        "      fedrec: no.",
        "        because",
        "lost:",
        f"  {name[3]}: before round 1 (process 7 on node8, no sign of life for 2 h 0 min); when started "
        "again, it resumes from its checkpoint",
    ]
    told = json.loads(json.dumps(status_as_dict(states, estimate_time(states))))
    assert [one["state"] for one in told["each"]] == ["done", "running", "failed", "lost"]
    assert (told["done"], told["waiting"], told["by"]) == (1, 0, "guess")
    assert told["each"][1]["seconds_left"] == 35.0
    assert told["each"][2]["log_tail"] == ["fedrec: no.", "  because"]
    assert told["each"][3]["host"] == "node8"


def test_the_command_reads_a_list_and_what_the_workflow_noted(project, listed, tmp_path, monkeypatch, capsys):
    finish(project, run_of(listed[0], project))
    monkeypatch.chdir(project.root)
    noted = project.root / "results/plan/runs.jsonl"
    noted.parent.mkdir(parents=True, exist_ok=True)
    text = list_text(listed)
    (tmp_path / "mine.jsonl").write_text(text)
    noted.write_text(text)
    (project.root / "mine.yaml").write_text(yaml.safe_dump(configuration()))

    def status(*words):
        return main(["status", "--project", "mine.yaml", *words])

    for words in ([str(tmp_path / "mine.jsonl")], []):
        assert status(*words) == 0
        assert capsys.readouterr().out.startswith(
            "1 of 4 runs done, 3 waiting; none is running, the rest takes about "
        )
    noted.unlink()
    monkeypatch.setenv("FEDREC_MIRROR", str(project.root / "mirror"))
    assert status("--json", "alpha_comparison") == 0
    assert json.loads(capsys.readouterr().out)["waiting"] == 4
    assert status("alpha_comparisn") == 1
    assert "Did you mean 'alpha_comparison'" in capsys.readouterr().err
    assert status("--watch", "0") == 1
    assert status("a.jsonl", "all") == 1


def test_watching_ends_with_the_last_run(project, listed, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(project.root)
    (tmp_path / "one.jsonl").write_text(list_text(listed[:1]))
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        finish(project, run_of(listed[0], project))

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["status", "--watch", "7", str(tmp_path / "one.jsonl")]) == 0
    assert slept == [7.0]
    assert capsys.readouterr().out.splitlines()[-1] == "1 of 1 runs done."


def test_the_command_needs_neither_torch_nor_what_training_lacks(project, listed, tmp_path):
    """It runs where a list is trained; and soon, since it imports little."""
    finish(project, run_of(listed[0], project))
    (tmp_path / "mine.jsonl").write_text(list_text(listed))
    code = (
        "import sys; from fedrec.cli.main import main; status = main(['status', sys.argv[1]]);"
        "print(sorted({'torch', 'polars', 'jsonschema', 'snakemake', 'pooch', 'requests'} & set(sys.modules)))"
    )
    out = subprocess.check_output(
        [sys.executable, "-c", code, str(tmp_path / "mine.jsonl")], text=True, cwd=project.root,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert out.splitlines()[-1] == "[]"
    assert out.startswith("1 of 4 runs done")
