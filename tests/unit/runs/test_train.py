"""Training by name: what is refused before the first round, what is taken up, what is kept and what is said."""

import json
import math
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from fedrec import progress
from fedrec.cli.main import main
from fedrec.errors import (
    ConfigurationError,
    DeviceLostError,
    DivergenceError,
    MemoryTakenError,
    OutOfMemoryError,
    ResultError,
    SplitError,
    StoppedError,
    StorageError,
)
from fedrec.federation.federation import Federation
from fedrec.files.checked_json import read_checked_json
from fedrec.files.lock import holder_of, locked
from fedrec.plan import runs as runs_module
from fedrec.plan.fingerprint import PREFERRED_ENGINE
from fedrec.plan.runs import FILES, STATE
from fedrec.plan.train_request import TrainRequest
from fedrec.runs import device, training
from fedrec.runs import record as record_module
from fedrec.runs import train as train_module
from fedrec.runs.record import RunRecord
from fedrec.runs.train import train
from fedrec.workers.process import DEVICE_LOST, OUT_OF_MEMORY
from tests.conftest import ROOT
from tests.federations import METHODS, planted_blocks
from tests.mistakes.made import Folder, Mistake
from tests.once import once_for_all_workers
from tests.trained_runs import made_results

QUICK = ("d=4", "local_epochs=1", "rounds=4")
NAME = "fedmf[d=4][local_epochs=1][rounds=4]"
SAME = ("curve.parquet", "ranks.parquet", "state.safetensors")


@pytest.fixture(scope="session")
def splits(tmp_path_factory):
    def build(root):
        made_results(root, planted_blocks, users=12, items=60)

    return once_for_all_workers(tmp_path_factory, "to train on", build) / "data/made"


@pytest.fixture
def trained(splits, tmp_path):
    """Trains fedmf into a folder; words of the call may be changed."""

    def run(out="run", **changes):
        asked = {
            "data": splits, "method": "fedmf", "paper": "fedem", "protocol": "clean", "seed": 0,
            "changes": QUICK, "device": "cpu", "checkpoint_seconds": 0.0,
        }  # fmt: skip
        return train(TrainRequest(**asked | {"out": tmp_path / out} | changes), METHODS)

    return run


@pytest.fixture
def stopped_after(monkeypatch):
    """Lets a round raise what it is given, after some rounds."""

    def stop(rounds, error):
        whole = Federation.train_round

        def train_round(self, round_):
            if round_ > rounds:
                raise error
            return whole(self, round_)

        monkeypatch.setattr(Federation, "train_round", train_round)
        return lambda: monkeypatch.setattr(Federation, "train_round", whole)

    return stop


def contents(folder):
    return [(folder / name).read_bytes() for name in SAME]


def test_a_run_says_what_its_files_are_and_how_much_memory_clients_had(trained, tmp_path):
    summary = trained()
    said = read_checked_json(tmp_path / "run/run.json")
    assert {path.name for path in (tmp_path / "run").iterdir()} == set(FILES)
    assert set(said["files"]) == set(FILES) - {"run.json"}
    assert said["memory_for_clients"]["decided_by"] == "the default"
    assert {**summary, "files": said["files"]} == said


def test_settings_become_part_of_the_name_that_a_run_is_filed_under(trained, tmp_path):
    summary = trained()
    assert (summary["method"], summary["settings"]["d"]) == (NAME, 4)
    assert summary["sources"]["d"] == "user"
    assert trained(method="fedmf[d=4]") == trained(method=NAME, changes=[])
    for method, changes, said in (
        ("fedmf[d=8]", ("d=16",), r"fedmf\[d=8\] sets d=8, and d=16 is set again\. Set it once\."),
        ("fedmf", ("d=32", "d=16"), "d=32 and d=16 contradict each other"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            trained("other", method=method, changes=changes)
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seed": 1}, r"with seed 0, which differs in seed \(0 there, 1 here\)\. Choose another folder"),
        ({"changes": ("d=8", *QUICK[1:])}, r"method \(fedmf\[d=4\].* there, fedmf\[d=8\].* here\)"),
        ({"method": "popularity", "changes": []}, r"on made under clean .*method \(fedmf\[d=4\].* there, popularity"),
        ({"protocol": "published"}, r"name \(clean there, published-fedem here\).*; its split"),
        ({"paper": "pfedclr"}, r"paper \(fedem there, pfedclr here\)"),
        ({"engine": "loop"}, rf"engine \({PREFERRED_ENGINE} there, loop here\)\. .* replace the run with --force"),
    ],
)  # fmt: skip
def test_another_run_is_not_overwritten(trained, tmp_path, changes, said):
    trained()
    before = contents(tmp_path / "run")
    with pytest.raises(ResultError, match=f"run: contains a finished run, fedmf.*{said}|{said}"):
        trained(**changes)
    assert contents(tmp_path / "run") == before
    RunRecord(tmp_path / "run").check()


def test_a_run_of_any_engine_is_taken_where_none_is_requested(trained, tmp_path):
    trained(engine="loop")
    before = contents(tmp_path / "run")
    assert trained(device="auto")["engine"] == "loop"
    assert contents(tmp_path / "run") == before


def test_a_run_with_a_damaged_summary_is_an_error_unless_it_is_replaced(trained, tmp_path):
    trained()
    (tmp_path / "run/run.json").write_text("{")
    with pytest.raises(ResultError, match=r"run\.json: the file is damaged"):
        trained()
    trained(replace=True)
    RunRecord(tmp_path / "run").check()


def test_force_replaces_another_run(trained, tmp_path):
    trained()
    trained(seed=1, force=True)
    assert RunRecord(tmp_path / "run").summary["seed"] == 1
    RunRecord(tmp_path / "run").check()


def test_the_same_run_is_taken_as_it_is_unless_it_is_to_record_more(trained, tmp_path, capsys):
    first = trained()
    before = (tmp_path / "run/run.json").read_bytes()
    again = trained()
    assert (again["metrics"], (tmp_path / "run/run.json").read_bytes()) == (first["metrics"], before)
    assert "run: this run is finished. --force trains it again." in capsys.readouterr().err
    trained(force=True)
    assert (tmp_path / "run/run.json").read_bytes() != before, "its times are others"
    recorded = trained(record=("abundance",))
    assert recorded["record"] == ["abundance"]
    # What was recorded besides is not lost to a call that does not ask for it.
    assert trained()["record"] == ["abundance"]


def test_a_run_without_its_model_has_all_else_and_is_trained_again_for_it(trained, tmp_path, capsys):
    trained("with")
    trained("run", model="never")
    said = read_checked_json(tmp_path / "run/run.json")
    there = {path.name for path in (tmp_path / "run").iterdir()}
    assert (there, set(said["files"])) == (set(FILES) - {STATE}, set(FILES) - {STATE, "run.json"})
    for table in ("curve.parquet", "ranks.parquet"):
        assert (tmp_path / "run" / table).read_bytes() == (tmp_path / "with" / table).read_bytes()
    with pytest.raises(
        ResultError,
        match=r"not written, as its training was asked to\. Train it again: fedrec train",
    ):
        RunRecord(tmp_path / "run").check()
    before = (tmp_path / "run/run.json").read_bytes()
    trained("run", model="never")
    assert (tmp_path / "run/run.json").read_bytes() == before
    assert "run: this run is finished. --force trains it again." in capsys.readouterr().err
    trained("run")
    assert contents(tmp_path / "run") == contents(tmp_path / "with")
    # A model that is there is not lost to a call that does not ask for it.
    assert "model" not in trained("run", model="never")
    assert (tmp_path / "run" / STATE).is_file()
    trained("run", model="never", force=True)
    assert not (tmp_path / "run" / STATE).exists()


def test_a_large_model_is_written_on_request_alone(trained, tmp_path, monkeypatch, capsys):
    """Its size is said before training; whoever needs it learns what to type, which is tried."""
    trained("small")
    for module in (train_module, record_module, runs_module):
        monkeypatch.setattr(module, "LARGE_MODEL", 1000)
    trained("run")
    said = capsys.readouterr().err
    size = (tmp_path / "small" / STATE).stat().st_size
    assert size > 1000
    assert "Above 0 MB a model is written only on request: --model always, in Python with_model=True." in said
    summary = read_checked_json(tmp_path / "run/run.json")
    assert summary["model"] == "not kept"
    assert 1000 < summary["model_bytes"] <= size
    assert not (tmp_path / "run" / STATE).exists()
    assert (tmp_path / "run/ranks.parquet").read_bytes() == (tmp_path / "small/ranks.parquet").read_bytes()
    # It is whole: nobody trains it again for a model that nobody asked for.
    before = (tmp_path / "run/run.json").read_bytes()
    trained("run")
    assert (tmp_path / "run/run.json").read_bytes() == before
    with pytest.raises(ResultError, match="above 0 MB is written only on request") as found:
        RunRecord(tmp_path / "run").check()
    words = shlex.split(str(found.value).partition("again: ")[2])
    assert main([*words[1:], f"--methods={ROOT / 'config/methods.yaml'}"]) == 0
    assert "It is written as asked." in capsys.readouterr().err
    RunRecord(tmp_path / "run").check()
    assert read_checked_json(tmp_path / "run/run.json")["model"] == "kept on request"


def test_what_is_recorded_asks_for_a_large_model(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(record_module, "LARGE_MODEL", 1000)
    trained(record=("abundance",))
    RunRecord(tmp_path / "run").check()


def test_a_damaged_run_of_the_same_kind_is_reported(trained, tmp_path):
    trained()
    (tmp_path / "run/curve.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=r"curve.parquet: cannot be read.* `fedrec train` with --force"):
        trained()
    trained(force=True)
    RunRecord(tmp_path / "run").check()


def cut(path):
    path.write_bytes(path.read_bytes()[:4])


@pytest.mark.parametrize("spoil", [Path.unlink, cut])
@pytest.mark.parametrize("name", FILES)
def test_the_job_of_the_workflow_trains_a_run_again_of_which_one_file_is_gone_or_damaged(
    splits, tmp_path, capsys, name, spoil
):
    """Snakemake leaves the other files in place, so that a job which refused them would fail for ever."""
    run = tmp_path / "run"
    job = command(splits, run, "--replace")
    assert main(job) == 0
    before = contents(run)
    spoil(run / name)
    # By hand it is an error, which names the file and what to do, and loses nothing.
    if name != "run.json" or spoil is cut:
        assert main(command(splits, run)) == 1
        said = capsys.readouterr().err
        assert f"run/{name}: " in said
        assert "--force" in said
    assert main(job) == 0
    assert "finished" not in capsys.readouterr().err
    assert contents(run) == before
    RunRecord(run).check()
    assert main(job) == 0
    assert "run: this run is finished. --force trains it again.\n" in capsys.readouterr().err


def test_files_of_the_user_stay_and_remains_of_killed_writers_go(trained, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/notes.txt").write_text("mine")
    (tmp_path / "run/.checkpoint.safetensors.abc.part").write_bytes(b"half")
    trained()
    assert {path.name for path in (tmp_path / "run").iterdir()} == {*FILES, "notes.txt"}


def test_what_is_in_the_way_is_reported_before_the_first_round(trained, tmp_path, stopped_after):
    stopped_after(0, AssertionError("a round was trained"))
    (tmp_path / "file").write_text("mine")
    (tmp_path / "run/run.json").mkdir(parents=True)
    for out, said in (
        ("file", "file: cannot be written: a file has that name"),
        ("file/below", "file is a file, not a folder"),
        ("run", r"run.json: is a folder, but this run writes a file there\."),
    ):
        with pytest.raises(StorageError, match=said):
            trained(out)


def test_two_trainings_do_not_share_a_folder(trained, tmp_path):
    with (
        locked(tmp_path / "run"),
        pytest.raises(StorageError, match=rf"process {os.getpid()} on .* is writing to this folder\."),
    ):
        trained()


def test_a_training_says_how_far_it_is_to_who_looks_from_outside(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_NOTES", 0.0)
    whole, notes = Federation.train_round, []

    def train_round(self, round_):
        notes.append(json.loads(holder_of(tmp_path / "run").note))
        return whole(self, round_)

    monkeypatch.setattr(Federation, "train_round", train_round)
    trained()
    assert [(note["round"], note["rounds"]) for note in notes] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert notes[0]["seconds"] is None
    assert all(note["seconds"] > 0 for note in notes[1:])
    assert holder_of(tmp_path / "run") is None


def test_a_run_that_was_stopped_says_what_was_kept_and_continues(trained, tmp_path, stopped_after, capsys):
    trained("whole")
    go_on = stopped_after(0, KeyboardInterrupt)
    with pytest.raises(
        StoppedError, match=r"no checkpoint was written yet\. The same command starts from round 1"
    ) as stopped:
        trained()
    assert stopped.value.status == 130
    go_on()
    go_on = stopped_after(2, KeyboardInterrupt)
    with pytest.raises(
        StoppedError, match=r"checkpoint of round 2 is kept\. Type the same command again to continue from it"
    ):
        trained()
    with pytest.raises(StoppedError, match="checkpoint of round 2 is kept"):
        trained()
    go_on()
    capsys.readouterr()
    trained()
    assert f"{NAME}: continues after round 2 of 4, from the checkpoint of 2" in capsys.readouterr().err
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["flip", "cut", "state"])
def test_a_damaged_checkpoint_is_left_aside_with_a_word(trained, tmp_path, stopped_after, capsys, damage):
    trained("whole")
    go_on = stopped_after(2, KeyboardInterrupt)
    with pytest.raises(StoppedError):
        trained()
    go_on()
    path = tmp_path / "run/checkpoint.safetensors"
    content = path.read_bytes()
    if damage == "state":
        shutil.copyfile(tmp_path / "whole/state.safetensors", path)
    else:
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]) if damage == "flip" else content[:100])
    capsys.readouterr()
    trained()
    said = capsys.readouterr().err
    assert "starts from round 1." in said or "Training starts from round 1." in said
    assert "continues after" not in said
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_signal_in_quick_rounds_keeps_the_round_that_was_in_work(trained, tmp_path, monkeypatch):
    whole = Federation.train_round

    def train_round(self, round_):
        report = whole(self, round_)
        if round_ == 3:
            signal.raise_signal(signal.SIGTERM)
        return report

    monkeypatch.setattr(Federation, "train_round", train_round)
    monkeypatch.setattr(training, "_QUICK", 1e9)
    with pytest.raises(StoppedError, match="checkpoint of round 3 is kept") as stopped:
        trained(checkpoint_seconds=1e9)
    assert stopped.value.status == 143
    # Where rounds are slow nobody waits for one.
    shutil.rmtree(tmp_path / "run")
    monkeypatch.setattr(training, "_QUICK", -1.0)
    with pytest.raises(StoppedError, match="checkpoint of round 2 is kept"):
        trained()


def test_the_first_checkpoint_comes_soon_and_the_next_in_their_time(trained, monkeypatch):
    saved = []
    now = [0.0]
    monkeypatch.setattr("fedrec.runs.checkpoint.time.monotonic", lambda: now[0])
    whole, save = Federation.train_round, training.Checkpoints.save

    def train_round(self, round_):
        now[0] += 20
        return whole(self, round_)

    def noted(self, tensors, progress):
        saved.append(progress.rounds)
        save(self, tensors, progress)

    monkeypatch.setattr(Federation, "train_round", train_round)
    monkeypatch.setattr(training.Checkpoints, "save", noted)
    trained(checkpoint_seconds=30.0, changes=("d=4", "local_epochs=1", "rounds=6"))
    assert saved == [1, 3, 5]


def test_the_catalogue_is_ranked_once_in_a_round_that_is_reported(trained, monkeypatch):
    ranked, rank = [], training.catalogue_ranks
    monkeypatch.setattr(training, "catalogue_ranks", lambda *of: ranked.append(1) or rank(*of))
    trained(changes=("d=4", "local_epochs=1", "rounds=1"))
    assert len(ranked) == 1


def test_free_memory_changes_no_byte(trained, tmp_path, monkeypatch):
    """What the system says is free now, and how much more than needed a machine has, decides nothing."""
    for out, pages, limit in (("much", 2**24, 2**40), ("little", 2**4, 2**33)):
        known = {"SC_AVPHYS_PAGES": pages}
        sysconf = os.sysconf
        monkeypatch.setattr(
            os, "sysconf", lambda name, known=known, ask=sysconf: known.get(name) or ask(name)
        )
        monkeypatch.setattr(device, "memory_limit", lambda limit=limit: (limit, "the machine's memory"))
        trained(out)
        monkeypatch.undo()
    assert contents(tmp_path / "much") == contents(tmp_path / "little")
    said = [read_checked_json(tmp_path / out / "run.json") for out in ("much", "little")]
    assert said[0]["memory_for_clients"] == said[1]["memory_for_clients"]


def test_a_client_that_needs_more_than_the_default_is_given_it(trained, tmp_path, monkeypatch):
    trained("plenty")
    monkeypatch.setattr(device, "_DEFAULT", 2000)
    trained("given")
    assert [path.name for path in (tmp_path / "given").iterdir() if path.name == "run.json"] == ["run.json"]
    with pytest.raises(
        OutOfMemoryError, match=r"client \d+ alone needs about [\d,]+ bytes, but 2,147 bytes are"
    ):
        trained("asked", memory_gib=2e-6)
    monkeypatch.setattr(device, "memory_limit", lambda: (2000, "its control group"))
    with pytest.raises(OutOfMemoryError, match="1,500 bytes are allowed"):
        trained("limited")


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"seed": -1}, ConfigurationError, "seed -1 is not allowed"),
        ({"seed": 2**32}, ConfigurationError, "seed 4294967296 is not allowed"),
        ({"checkpoint_seconds": -1.0}, ConfigurationError, "--checkpoint-seconds -1: give a number of seconds from 0, for example 30"),
        ({"checkpoint_seconds": float("nan")}, ConfigurationError, "--checkpoint-seconds nan"),
        ({"memory_gib": float("nan")}, ConfigurationError, "--memory nan"),
        ({"engine": "bathced"}, ConfigurationError, r"Did you mean 'batched'\?"),
        ({"device": "gpu"}, ConfigurationError, r"Did you mean 'cuda'\?"),
        ({"record": ["vectros=1"]}, ConfigurationError, r"Did you mean 'vectors'\?"),
        ({"record": ["abundance"], "model": "never"}, ConfigurationError, "stored in the model's file"),
        ({"protocol": "cleen"}, SplitError, r"has no split 'cleen'. Did you mean 'clean'\? It has: clean, only-pool"),
        ({"protocol": "only-ties"}, SplitError, r"'only-ties-fedem'. It has: .* --protocol only-ties-fedem"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_anything_is_written(trained, tmp_path, changes, error, said):
    with pytest.raises(error, match=said):
        trained(**changes)
    assert not (tmp_path / "run").exists()


def test_a_dataset_that_is_not_there_is_reported_with_the_nearest(trained, splits):
    with pytest.raises(
        SplitError,
        match=r"mad: no such folder. Did you mean '.*/made'\? Make a split with: snakemake --cores 2 "
        "'.*/made/clean/split.parquet'",
    ):
        trained(data=splits.parent / "mad")


def test_what_is_no_dataset_is_reported_with_the_folder_that_is_meant(trained, splits, tmp_path, monkeypatch):
    for inside in (splits / "clean", splits / "clean/split.parquet", splits / "absent"):
        with pytest.raises(
            SplitError, match=f"the folder of a dataset. Give that folder, --data {splits}, and the"
        ):
            trained(data=inside)
    (tmp_path / "results").mkdir()
    (tmp_path / "results/data").symlink_to(splits.parent)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SplitError, match=r"Did you mean 'results/data/made'\?"):
        trained(data=Path("made"))


def test_a_score_of_the_wrong_shape_is_reported_with_the_shape_that_is_wanted(splits, tmp_path):
    template = (ROOT / "fedrec/methods/_template.py").read_text(encoding="utf-8").replace("Template", "Mine")
    mistake = Mistake(
        "own method",
        "sums over all axes",
        (),
        edit=("config/methods.yaml", "\nmf:\n", "\nmine:\n  title: Mine\n  settings: {<<: *fedmf}\n\nmf:\n"),
        mine=template.replace("dot(w.Q[items], w.p)", "(w.Q[items] * w.p).sum()"),
        command=("train", "--method", "mine", "--data", str(splits)),
    )
    status, answer = mistake.answer(Folder(tmp_path).restored())
    assert status == 1
    assert answer.startswith("fedrec: Mine.loss (method.py:")
    assert answer.endswith("Sum over the last axis only in `score`, as `dot` does.")


def test_other_files_in_the_folder_of_a_run_are_reported_once(trained, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run/thesis.tex").write_text("mine")
    trained()
    assert "run: contains other files (thesis.tex). fedrec keeps them" in capsys.readouterr().err
    trained(force=True)
    assert "thesis.tex" not in capsys.readouterr().err


def command(splits, out, *more):
    return [
        "train", "--data", str(splits), "--method", "fedmf[d=4][local_epochs=1][rounds=4]", "--protocol", "clean",
        "--methods", str(ROOT / "config/methods.yaml"), "--device", "cpu", "--out", str(out), *more,
    ]  # fmt: skip


def test_the_command_ends_with_the_outcome_and_its_place(splits, tmp_path, capsys):
    assert main(command(splits, tmp_path / "run")) == 0
    said = capsys.readouterr().out
    run = RunRecord(tmp_path / "run")
    assert (
        f"clean, seed 0: test HR@10 {run.metric('hr@10'):.4f}, NDCG@10 {run.metric('ndcg@10'):.4f} at" in said
    )
    assert f"round {run.summary['rounds']['best_validation']} of 4, the best on validation." in said
    assert said.endswith(f"Wrote {tmp_path / 'run'}\n")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_says_so_and_its_status_names_the_signal(
    splits, tmp_path, monkeypatch, capsys, number, status
):
    monkeypatch.setattr(Federation, "train_round", lambda *_: signal.raise_signal(number))
    assert main(command(splits, tmp_path / "run")) == status
    assert (
        "fedrec: stopped; no checkpoint was written yet. The same command starts from round 1.\n"
        in capsys.readouterr().err
    )
    assert signal.getsignal(number) not in (None, signal.SIG_IGN)
    assert not (tmp_path / "run").exists()


def test_threads_do_not_wait_busily_unless_enabled(splits, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert main(command(splits, tmp_path, "--seed", "-1")) == 1
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    assert main(command(splits, tmp_path, "--seed", "-1")) == 1
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    assert "seed -1 is not allowed" in capsys.readouterr().err


def test_memory_that_runs_out_on_a_cpu_is_reported_as_such(trained, tmp_path, monkeypatch):
    def full(*_arguments):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    monkeypatch.setattr("fedrec.runs.train.make_learner", full)
    with pytest.raises(MemoryTakenError, match="does not fit into the memory of cpu"):
        trained(tmp_path / "run")


def after(error, cause):
    """An error that has another one for its cause."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
        after(OutOfMemoryError("client 3 alone does not fit"), torch.OutOfMemoryError("CUDA out of memory")),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_run_that_others_leave_too_little_memory_says_so_and_continues(
    trained, tmp_path, stopped_after, capsys, error
):
    goes_on = stopped_after(2, error)
    with pytest.raises(MemoryTakenError, match="on made: does not fit into the memory of cpu"):
        trained()
    goes_on()
    trained()
    assert "continues after round 2 of 4" in capsys.readouterr().err
    trained("whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_gpu_that_is_full_before_it_is_used_is_reported_by_a_status_of_its_own(
    splits, tmp_path, monkeypatch, capsys
):
    def full(*_arguments):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr("fedrec.runs.train.device_named", full)
    assert main(command(splits, tmp_path / "run")) == OUT_OF_MEMORY
    assert "does not fit into the memory of the GPU" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [
        torch.AcceleratorError("CUDA error: an illegal memory access was encountered"),
        RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`"),
        RuntimeError("the GPU cannot launch a kernel: an illegal memory access was encountered"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_run_that_loses_its_gpu_says_so_and_continues(
    trained, tmp_path, stopped_after, monkeypatch, capsys, error
):
    def lost(_device):
        raise RuntimeError("CUDA error: once more, while memory is given back")

    goes_on = stopped_after(2, error)
    with monkeypatch.context() as during:
        during.setattr("fedrec.runs.train.release_memory", lost)
        with pytest.raises(DeviceLostError, match="on made: cpu accepts no more work") as raised:
            trained()
    assert str(error) in str(raised.value)
    goes_on()
    trained()
    assert "continues after round 2 of 4" in capsys.readouterr().err
    trained("whole")
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_a_gpu_that_is_lost_is_reported_by_a_status_of_its_own(splits, tmp_path, monkeypatch, capsys):
    def lost(*_arguments):
        raise RuntimeError("CUDA error: unknown error")

    monkeypatch.setattr("fedrec.runs.train.device_named", lost)
    assert main(command(splits, tmp_path / "run")) == DEVICE_LOST
    assert "the GPU accepts no more work of this process" in capsys.readouterr().err


def test_what_no_other_run_is_to_blame_for_has_the_usual_status(splits, tmp_path, stopped_after):
    assert main(command(splits, tmp_path / "run", "--memory", "2e-6")) == 1
    stopped_after(0, RuntimeError("a defect"))
    with pytest.raises(RuntimeError, match="a defect"):
        main(command(splits, tmp_path / "run"))


def test_what_a_run_held_is_gone_when_memory_is_given_back(trained, monkeypatch):
    known, held = [], []
    made = train_module.make_learner

    def learner(*arguments):
        known.append(weakref.ref(arguments[1]))
        return made(*arguments)

    def release(_device):
        held.append(known[-1]() is not None)

    monkeypatch.setattr(train_module, "make_learner", learner)
    monkeypatch.setattr(train_module, "release_memory", release)
    trained()
    assert held == [False]


# Trainings that leave the finite numbers

WILD = (*QUICK, "optimiser=sgd", "rate=1e9", "item_factor=1e9")


def test_a_training_that_diverges_is_an_error(trained):
    with pytest.raises(DivergenceError, match=r"training diverged; .*Lower the learning rate"):
        trained(changes=WILD)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedmf", WILD),
        ("centrap", ("d=4", "rounds=4", "weight_decay=0", "rate=1e9", "item_rate=1e9", "v1=1e6")),
    ],
)
def test_where_divergence_is_kept_every_item_is_ranked_last_from_then_on(trained, tmp_path, method, changes):
    summary = trained(method=method, changes=changes, diverged="kept")
    since = summary["diverged"]["round"]
    assert "training diverged" in summary["diverged"]["why"]
    record = RunRecord(tmp_path / "run")
    record.check()
    curve = record.curve.to_dicts()
    assert [row["round"] for row in curve] == [1, 2, 3, 4]
    for row in curve:
        assert math.isnan(row["loss"]) == (row["round"] >= since)
        if row["round"] >= since:
            assert row["validation_hr@10"] == row["test_ndcg@10"] == 0
    assert record.metric("hr@10", "test", "last") == 0
    seconds = [row["local_seconds"] + row["server_seconds"] for row in record.timing.to_dicts()]
    assert [second > 0 for second in seconds] == [round_ < since for round_ in (1, 2, 3, 4)]
    # A round that trained nobody says nothing of how long one takes.
    of_a_round = statistics.median(seconds[: since - 1]) if since > 1 else 0
    assert summary["measured"]["seconds_per_round"] == pytest.approx(of_a_round)


def test_a_training_that_stays_finite_is_the_same_run_either_way(trained, tmp_path):
    trained("refused")
    assert "diverged" not in trained("kept", diverged="kept")
    assert contents(tmp_path / "kept") == contents(tmp_path / "refused")


def test_a_run_that_diverged_is_taken_as_it_is_only_where_that_is_kept(trained):
    first = trained(changes=WILD, diverged="kept")
    assert trained(changes=WILD, diverged="kept")["diverged"] == first["diverged"]
    with pytest.raises(DivergenceError, match="run: contains this run, which diverged: round"):
        trained(changes=WILD)


def test_a_run_that_was_stopped_after_it_diverged_remembers_it(trained, tmp_path, monkeypatch):
    whole = trained("whole", changes=WILD, diverged="kept")
    assert whole["diverged"]["round"] < 4
    evaluate = training.Training._evaluate

    def stopped(self, round_, report, progress):
        if round_ == 4:
            raise KeyboardInterrupt
        evaluate(self, round_, report, progress)

    monkeypatch.setattr(training.Training, "_evaluate", stopped)
    with pytest.raises(StoppedError):
        trained(changes=WILD, diverged="kept")
    monkeypatch.undo()
    assert trained(changes=WILD, diverged="kept")["diverged"] == whole["diverged"]
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_another_word_about_divergence_is_refused(trained):
    with pytest.raises(ConfigurationError, match="--on-divergence keep: write record or fail"):
        trained(diverged="keep")


@pytest.mark.parametrize("told", ["by an option", "by the workflow's environment"])
def test_the_command_says_that_a_run_diverged(splits, tmp_path, capsys, monkeypatch, told):
    words = [
        "train",
        f"--data={splits}",
        "--method=fedmf",
        "--paper=fedem",
        "--protocol=clean",
        "--device=cpu",
    ]
    words += [f"--out={tmp_path / 'run'}", f"--methods={ROOT / 'config/methods.yaml'}"]
    if told == "by an option":
        words.append("--on-divergence=record")
    else:
        monkeypatch.setenv("FEDREC_DIVERGED", "kept")
    assert main([*words, *(f"--set={change}" for change in WILD)]) == 0
    assert re.search(r"seed 0: diverged in round \d\.\n", capsys.readouterr().out)


def by_two_processes(*words):
    """`fedrec` as torchrun starts it, twice on this machine."""
    launcher = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m")
    return subprocess.run(
        (*launcher, "fedrec", *words), cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_two_processes_write_the_run_of_one(trained, splits, tmp_path, capfd):
    """As torchrun starts them; `run.json` says that they were two."""
    one = trained("one", engine="batched")
    words = ["--paper", "fedem", "--protocol", "clean", "--device", "cpu", "--engine", "batched"]
    words += [word for change in QUICK for word in ("--set", change)]
    out = tmp_path / "two"
    command = ["train", "--data", str(splits), "--method", "fedmf", "--out", str(out), *words]
    done = by_two_processes(*command)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Wrote ") == 1
    two = read_checked_json(out / "run.json")
    assert (two["processes"], "processes" in one) == (2, False)
    assert two["metrics"] == one["metrics"]
    assert (out / "ranks.parquet").read_bytes() == (tmp_path / "one/ranks.parquet").read_bytes()
    # Another number of processes is the same run.
    assert main(command) == 0
    assert "this run is finished" in capfd.readouterr().err


def test_the_error_of_a_process_is_shown(splits, tmp_path):
    """Above what torchrun says of it. Several processes train one run, not several."""
    words = (
        "--method=fedmf",
        "--protocol=clean",
        f"--out={tmp_path / 'one'}",
        f"--also-protocol=only-ties={tmp_path}",
    )
    done = by_two_processes("train", f"--data={splits}", *words)
    assert done.returncode == 1
    assert "fedrec: --also-protocol does not work with several processes." in done.stderr
