"""`fedrec train-list`: a list of runs, trained by workers to the bytes that `fedrec train` gives."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import ClassVar

import pyarrow as pa
import pytest

from fedrec.cli.main import main
from fedrec.cli.work import listed_arguments
from fedrec.config.methods import load_methods
from fedrec.data.split import write_split
from fedrec.files.checked_json import read_checked_json
from fedrec.files.lock import holder_of, locked
from fedrec.files.parquet import write_table
from fedrec.plan.runs import STATE
from fedrec.plan.train_request import TrainRequest
from fedrec.runs.record import RunRecord
from fedrec.runs.train import train
from tests.conftest import ROOT
from tests.core import core_and
from tests.federations import planted_blocks
from tests.once import once_for_all_workers
from tests.trained_runs import made_results

METHODS = ROOT / "config/methods.yaml"
SAME = ("curve.parquet", "ranks.parquet", "state.safetensors")
TIMES = ("measured", "files")


@pytest.fixture(scope="session")
def splits(tmp_path_factory):
    def build(root):
        made_results(root, planted_blocks, users=12, items=60)

    return once_for_all_workers(tmp_path_factory, "to train on", build) / "data/made"


@pytest.fixture
def listed(splits, tmp_path):
    """Writes a list of runs, each as it differs from a usual one; returns the file."""

    def write(*runs):
        usual = {
            "data": str(splits),
            "method": "fedmf",
            "paper": "fedem",
            "protocol": "clean",
            "device": "cpu",
        }
        lines = [
            usual | {"set": ["d=4", "local_epochs=1", "rounds=4"], "checkpoint-seconds": 0} | run
            for run in runs
        ]
        path = tmp_path / "runs.jsonl"
        path.write_text(
            "".join(json.dumps(line | {"out": str(tmp_path / line["out"])}) + "\n" for line in lines)
        )
        return str(path)

    return write


def trained(splits, out, **changes):
    usual = {"method": "fedmf", "changes": ("d=4", "local_epochs=1", "rounds=4"), "seed": 0}
    request = TrainRequest(
        data=splits, paper="fedem", protocol="clean", out=out, device="cpu", **usual | changes
    )
    train(request, load_methods(METHODS))


def contents(folder):
    said = read_checked_json(folder / "run.json")
    decided = {key: value for key, value in said.items() if key not in TIMES}
    return [decided, *((folder / name).read_bytes() for name in SAME)]


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path_factory):
    """Processes as on a machine that has what training needs, and no more; with one thread.

    How a sum is shared out over threads may decide its last bits.
    """
    bare = tmp_path_factory.mktemp("bare")
    for name in (
        "polars", "jsonschema", "snakemake", "pooch", "requests", "matplotlib", "seaborn", "jinja2", "pandas",
    ):  # fmt: skip
        (bare / f"{name}.py").write_text(f"raise ImportError('there is no {name} here')")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{bare}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def work(*words):
    return main(["train-list", *words, "--methods", str(METHODS)])


def test_a_list_is_worked_off_whatever_fails_in_it(listed, splits, tmp_path, capfd):
    """One call, to start few processes: runs of two methods, one twice, one finished, one in use, one wrong."""
    trained(splits, tmp_path / "before")
    kept = (tmp_path / "before/run.json").read_bytes()
    trained(splits, tmp_path / "other", seed=7)
    runs = listed(
        {"out": "seed0"},
        {"out": "seed1", "seed": 1},
        {"out": "seed1", "seed": 1},
        {"out": "pfedrec", "method": "pfedrec"},
        {"out": "before"},
        {"out": "other"},
        {"out": "in use"},
        {"out": "wrong", "data": str(splits.with_name("gone"))},
        {"out": "last", "seed": 2},
    )
    with locked(tmp_path / "in use"):
        assert work(runs, "--jobs", "1") == 1
    said = capfd.readouterr().err
    assert "8 of 8 runs, 3 failed" in said
    assert "fedrec: 3 of 8 runs failed:\n" in said
    assert f"  {tmp_path / 'in use'}: {tmp_path / 'in use'}: process {os.getpid()} on" in said
    assert f"  {tmp_path / 'wrong'}: --data " in said
    assert "which differs in seed (7 there, 0 here)" in said
    assert not (tmp_path / "wrong").exists()
    assert (tmp_path / "before/run.json").read_bytes() == kept, "the very same run is taken as it is"
    for out, changes in (
        ("seed0", {}),
        ("seed1", {"seed": 1}),
        ("last", {"seed": 2}),
        ("pfedrec", {"method": "pfedrec"}),
    ):
        trained(splits, tmp_path / "alone" / out, **changes)
        told, *files = contents(tmp_path / out)
        alone, *expected = contents(tmp_path / "alone" / out)
        assert files == expected
        assert told | {"data": ""} == alone | {"data": ""}
    assert read_checked_json(tmp_path / "last/run.json")["measured"]["peak_memory_bytes"] > 2**20


def test_runs_that_get_no_process_are_failed_with_the_reason(listed, monkeypatch, capsys):
    def refuse(*_how, **_more):
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr("subprocess.Popen", refuse)
    assert work(listed({"out": "a"}, {"out": "b"}), "--jobs", "2") == 1
    said = capsys.readouterr()
    assert "finished" not in said.out
    assert "2 of 2 runs failed" in said.err
    assert said.err.count("no more processes. Free memory") >= 2


def test_runs_that_train_alike_are_trained_once_and_one_that_fails_stops_no_other(
    listed, tmp_path, capfd, caplog
):
    kinds = ("published-fedem", "only-ties-fedem", "only-lists-fedem")
    for kind in kinds[1:]:
        data = tmp_path / "data" / kind
        write_split(planted_blocks(users=12, items=60, protocol=kind), data)
    write_split(planted_blocks(users=12, items=60, protocol=kinds[0]), tmp_path / "data" / kinds[0])
    runs = listed(*({"out": kind, "protocol": kind, "data": str(tmp_path / "data")} for kind in kinds))
    with locked(tmp_path / kinds[1]):
        assert work(runs, "--jobs", "1") == 1
    told = capfd.readouterr().err
    assert "1 of 3 runs failed" in told
    assert f"  {tmp_path / kinds[1]}: {tmp_path / kinds[1]}: process {os.getpid()} on" in told
    assert "and 2 more runs failed when trained together, so fedrec trains them one by one" in caplog.text
    for kind in kinds:
        shutil.rmtree(tmp_path / kind, ignore_errors=True)
    assert work(runs, "--jobs", "1") == 0
    records = [RunRecord(tmp_path / kind) for kind in kinds]
    # What a round took is measured once.
    assert len({tuple(record.timing["local_seconds"].to_list()) for record in records}) == 1
    assert len({tuple(record.curve["test_ndcg@10"].to_list()) for record in records}) > 1


def test_what_is_there_of_another_kind_is_replaced_where_that_is_requested(listed, splits, tmp_path, capsys):
    trained(splits, tmp_path / "other", seed=7)
    trained(splits, tmp_path / "same")
    kept = (tmp_path / "same/run.json").read_bytes()
    runs = listed({"out": "other"}, {"out": "same"})
    assert work(runs, "--replace", "--jobs", "1") == 0
    assert capsys.readouterr().out == f"Finished all 2 runs of {runs}.\n"
    assert RunRecord(tmp_path / "other").summary["seed"] == 0
    assert (tmp_path / "same/run.json").read_bytes() == kept


def test_models_are_left_out_where_that_is_requested_but_of_runs_that_record_more(
    listed, splits, tmp_path, capsys
):
    trained(splits, tmp_path / "before")
    runs = listed({"out": "run"}, {"out": "before"}, {"out": "recorded", "seed": 1, "record": ["abundance"]})
    for _ in range(2):
        assert work(runs, "--no-model", "--jobs", "1") == 0
        models = sorted(path.parent.name for path in tmp_path.glob(f"*/{STATE}"))
        assert models == ["before", "recorded"]
    capsys.readouterr()
    assert main(["status", runs, "--methods", str(METHODS)]) == 0
    assert "3 of 3 runs done" in capsys.readouterr().out


@pytest.mark.parametrize("number", core_and([signal.SIGTERM], [signal.SIGKILL]))
def test_a_kill_loses_nothing(listed, splits, tmp_path, capsys, number):
    """The workers of a killed call keep what they have; the same call goes on from there."""
    rounds = ["d=4", "local_epochs=1", "rounds=150"]
    place = "runs/fedem/made/clean/fedmf/seed0"
    wrong = {"out": place, "data": str(splits.with_name("gone"))}
    runs = listed(wrong, {"out": "run", "set": rounds})
    process = subprocess.Popen(
        [sys.executable, "-m", "fedrec", "train-list", runs, "--jobs", "1", "--methods", str(METHODS)],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    checkpoint = tmp_path / "run/checkpoint.safetensors"
    while not checkpoint.exists() and process.poll() is None:
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate()
    if number == signal.SIGTERM:
        assert process.returncode == 128 + number
        assert (
            "fedrec: stopped; 1 of 2 runs have ended, 1 left. Type the same command again to continue from the checkpoints."
            in said
        )
        assert f"1 of 2 runs failed:\n  {tmp_path / place}: --data " in said
    # Kept where the workflow keeps the logs of its runs.
    assert "fedrec: --data " in (tmp_path / "logs" / place / "train.log").read_text()
    while (tmp_path / "run/.fedrec.lock").exists():
        time.sleep(0.01)
    assert checkpoint.exists()
    assert not (tmp_path / "run/run.json").exists()
    trained(splits, tmp_path / "run", changes=rounds, checkpoint_seconds=1e9)
    assert "continues after round" in capsys.readouterr().err
    trained(splits, tmp_path / "whole", changes=rounds)
    assert contents(tmp_path / "run")[1:] == contents(tmp_path / "whole")[1:]


def test_a_run_whose_process_somebody_kills_continues_from_its_checkpoint(listed, splits, tmp_path):
    rounds = ["d=4", "local_epochs=1", "rounds=150"]
    runs = listed({"out": "run", "set": rounds})
    with subprocess.Popen(
        [sys.executable, "-m", "fedrec", "train-list", runs, "--jobs", "1", "--methods", str(METHODS)],
        stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        while not (tmp_path / "run/checkpoint.safetensors").exists() and process.poll() is None:
            time.sleep(0.01)
        os.kill(holder_of(tmp_path / "run").process, signal.SIGKILL)
        _, said = process.communicate()
    assert process.returncode == 0
    assert "fedrec retries its run once, from its checkpoint." in said
    assert "failed" not in said
    trained(splits, tmp_path / "whole", changes=rounds)
    assert contents(tmp_path / "run")[1:] == contents(tmp_path / "whole")[1:]


class MadeCrew:
    """Notes what it is to do, and in which order; does nothing, or is stopped where that is asked for."""

    stopped = False
    failures: ClassVar = {}
    left, seconds_left = 0, 125.0

    def __init__(self, tasks, size, _start, order):
        MadeCrew.asked = ([task.seconds for task in tasks], size, order)

    def work(self):
        if self.stopped:
            raise KeyboardInterrupt


def test_a_list_is_worked_off_in_the_order_that_is_requested(listed, monkeypatch):
    monkeypatch.setattr("fedrec.workers.pool.WorkerPool", MadeCrew)
    runs = listed(*({"out": str(number), "seconds": number} for number in (3, 9, 1)))
    for words, order in (([], "longest"), (["--order", "listed"], "listed")):
        assert work(runs, "--jobs", "2", *words) == 0
        assert MadeCrew.asked == ([3.0, 9.0, 1.0], 2, order)


def test_who_is_stopped_says_how_much_is_left_and_about_how_long_that_takes(listed, monkeypatch, capsys):
    monkeypatch.setattr("fedrec.workers.pool.WorkerPool", MadeCrew)
    monkeypatch.setattr(MadeCrew, "stopped", True)
    monkeypatch.setattr(MadeCrew, "left", 1)
    assert work(listed({"out": "a"}, {"out": "b"}, {"out": "c"}), "--jobs", "1") > 1
    assert (
        "fedrec: stopped; 2 of 3 runs have ended, 1 left, about 2 min 5 s by the pace so far. Type the same "
        "command again to continue from the checkpoints."
    ) in capsys.readouterr().err


def test_runs_that_are_left_undone_are_no_success(listed, monkeypatch, capsys):
    monkeypatch.setattr("fedrec.workers.pool.WorkerPool", MadeCrew)
    monkeypatch.setattr(MadeCrew, "left", 2)
    assert work(listed({"out": "a"}, {"out": "b"}, {"out": "c"}), "--jobs", "1") == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "fedrec: 2 of 3 runs are not trained, because of the fedrec error above." in said.err


def test_mistakes_are_reported_before_any_process_starts(listed, tmp_path, capsys):
    assert work(listed({"out": "run"}), "--jobs", "0") == 1
    assert "--jobs 0: give 1 or more." in capsys.readouterr().err
    assert work(str(tmp_path / "gone")) == 1
    assert "gone: no such file. Write one with: fedrec plan TARGET >" in capsys.readouterr().err
    assert work(listed({"out": "a", "method": "fedfm"})) == 1
    assert "runs.jsonl, line 1: unknown method 'fedfm'" in capsys.readouterr().err
    assert not list(tmp_path.glob("*/"))


def test_splits_that_a_plan_lacks_are_named_as_a_shell_takes_them(tmp_path):
    """Those of a dataset together: a plan of everything has more than a hundred. One is of an older protocol."""
    results = tmp_path / "my results"

    def job(dataset, name):
        split = results / f"data/{dataset}/{name}/split.parquet"
        return SimpleNamespace(spec=lambda _: SimpleNamespace(split=split, protocol={"name": name}))

    jobs = [job(*of) for of in (("a", "clean"), ("b", "clean"), ("a", "published-fedem"), ("a", "clean"))]
    for dataset, said in (("c", {"name": "clean"}), ("b", {"name": "clean", "rank_ties": "older"})):
        file = results / f"data/{dataset}/clean/split.parquet"
        write_table(file, pa.table({"user": [0]}), {"protocol": said})
    words = listed_arguments([*jobs, job("c", "clean")], results)

    said, _, command = words.partition("snakemake --cores 2 --force ")
    assert said == "5 runs on 4 splits. 3 of these splits are missing or outdated. Make them with: "
    taken = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {command}"], capture_output=True, text=True, check=True
    )
    assert taken.stdout.splitlines() == [
        str(results / f"data/{part}/split.parquet") for part in ("a/clean", "a/published-fedem", "b/clean")
    ]
    assert listed_arguments([job("c", "clean")], results) == "1 runs on 1 splits."
