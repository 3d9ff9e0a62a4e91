"""Benchmarks run where machines are paid for by the minute, and authors' code is not here: both must work at once."""

import json
import sys

import pytest

from benchmarks import authors, costs, distributed, engines, processes
from fedrec.cli.main import main as command_line
from fedrec.config.catalogue import load_catalogue
from fedrec.config.configuration import read_configuration
from fedrec.config.methods import load_methods
from fedrec.data.split import TEST, TRAIN, VALIDATION, write_split
from fedrec.errors import ConfigurationError, ResultError
from fedrec.federation.collectives import SINGLE
from fedrec.plan.cost import gpu_seconds_of
from fedrec.plan.runs import RunId
from tests.conftest import ROOT
from tests.federations import planted_blocks

CHECKOUT = """
import argparse, logging, sys
parser = argparse.ArgumentParser()
for name in ("dataset", "device_id", "latent_dim", "batch_size", "local_epoch", "num_negative", "lr"):
    parser.add_argument(f"--{name}")
parser.add_argument("--num_round", type=int)
given = parser.parse_args()
logging.basicConfig(level=logging.INFO, format="%(asctime)s-%(levelname)s-%(message)s")
open("log/one.txt", "w").write(repr(vars(given)))
rows = [line.split(",") for line in open(f"there/{given.dataset}/ratings.dat")]
for round in range(given.num_round):
    logging.info(f"Round {round} starts !")
    logging.info("Training phase!")
    if round == 1 and given.lr == "nan":
        sys.exit("loss is no number")
    logging.info("Testing phase!")
    logging.info(f"[Testing Epoch {round}] HR = {len(rows)}")
open("sh_result/rows.txt", "w").write(str(len(rows)))
"""
"""Reads, writes and speaks as an authors' code does."""


@pytest.fixture
def data(tmp_path):
    write_split(planted_blocks(users=8), tmp_path / "data/ml-100k/clean")
    return tmp_path / "data/ml-100k"


@pytest.fixture
def checkout(tmp_path):
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "train.py").write_text(CHECKOUT)
    return folder


def compared(data, checkout, *more):
    out = data / "authors.json"
    authors.main(
        ["--code", "pfedrec", "--checkout", str(checkout), "--data", str(data), "--config", str(ROOT / "config"),
         "--ratings", str(checkout / "there/ml-100k/ratings.dat"), "--rounds", "2", "--device", "cpu",
         "--python", sys.executable, "--out", str(out), *more]
    )  # fmt: skip
    return json.loads(out.read_text())


def test_every_engine_is_timed_and_held_to_the_loop(data, tmp_path, capsys):
    out = tmp_path / "engines.json"
    engines.main(
        ["--data", str(data), "--method", "fedmf", "pfedrec", "--config", str(ROOT / "config"), "--repeats", "1",
         "--device", "cpu", "--set", "d=4", "--out", str(out)]
    )  # fmt: skip
    reports = json.loads(out.read_text())
    assert [report["method"] for report in reports] == ["fedmf", "pfedrec"]
    for report in reports:
        assert all(report[name] > 0 for name in ("fused", "batched", "loop", "fused_evaluation"))
        assert report["fused_differs"] < 1e-3
        assert report["batched_differs"] < 1e-3
        assert "loop_differs" not in report
        assert set(report["fused_notes"]["training"].values()) == {"compiled"}
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == reports


def test_whole_trainings_are_timed_after_one_that_compiles(data, tmp_path, monkeypatch, capsys):
    """Trained in this process: what is tested is what is asked for and told, not starting processes."""
    asked = []

    def timed(command):
        asked.append(command)
        assert command[1] == "-c" or command_line(command[3:]) == 0
        return float(len(asked))

    monkeypatch.setattr(processes, "_timed", timed)
    out = tmp_path / "processes.json"
    processes.main(
        ["--data", str(data), "--method", "fedmf[rounds=3,d=4]", "--paper", "fedem", "--device", "cpu",
         "--repeats", "2", "--config", str(ROOT / "config"), "--out", str(out)]
    )  # fmt: skip
    (measured,) = json.loads(out.read_text())["processes"]
    assert (measured["dataset"], measured["rounds"], measured["repeats"]) == ("made", 3, 2)
    # The first is not counted; then torch and a training take turns.
    assert measured["seconds"] == {"torch": (2 + 4) / 2, "training": (3 + 5) / 2}
    assert any("[rounds=1]" in word for word in asked[0])
    assert not any("[rounds=1]" in word for word in asked[2])
    assert "importing torch alone: 3.0 s" in capsys.readouterr().out


def test_a_training_that_fails_is_no_measurement(data, tmp_path):
    with pytest.raises(ResultError, match=r"(?s)ended with 1\. .*unknown method 'fedfm'"):
        processes.main(
            ["--data", str(data), "--method", "fedfm", "--config", str(ROOT / "config"), "--device", "cpu",
             "--out", str(tmp_path / "processes.json")]
        )  # fmt: skip


def test_clocks_of_a_gpu_are_compared_with_what_is_estimated_for_it():
    """Three runs at twice, four and eight times their estimates, of which the middle one counts as 1."""
    files = [ROOT / f"config/{name}.yaml" for name in ("config", "methods", "datasets")]
    costs_of = read_configuration(files[:1]).content["gpu_costs"]
    methods, catalogue = load_methods(files[1]), load_catalogue(files[2])

    def run(method, times, device="a GPU", last=100):
        name = RunId("pfedclr", "ml-100k", "clean", method, 0)
        estimate = gpu_seconds_of(name, methods, catalogue, costs_of) - costs_of["start"]
        return name, {"measured": {"device": device, "seconds": times * estimate}, "rounds": {"last": last}}

    runs = [run("fedmf", 2), run("fedmf[d=8]", 4), run("fedmf+plgc", 8)]
    left_out = [run("pfedrec", 99, device="cpu (x86-64, 1 threads)"), run("popularity", 99, last=1)]
    assert costs.ratios_of([*runs, *left_out], ROOT / "config") == {
        "fedmf": pytest.approx([0.5, 1.0]),
        "fedmf+plgc": pytest.approx([2.0]),
    }


def test_a_method_without_clients_is_no_benchmark(data, tmp_path):
    with pytest.raises(ConfigurationError, match="popularity is not federated"):
        engines.main(
            ["--data", str(data), "--method", "popularity", "--config", str(ROOT / "config"),
             "--device", "cpu", "--out", str(tmp_path / "engines.json")]
        )  # fmt: skip


def test_ratings_are_rows_in_whose_times_leave_one_out_finds_the_split():
    # More items than a part's number, a single byte, could count.
    split = planted_blocks(users=8, items=200)
    rows = [list(map(int, line.split("::"))) for line in authors.ratings_text(split, "::").splitlines()]
    assert {row[2] for row in rows} == {1}
    for user in range(8):
        latest = sorted((row for row in rows if row[0] == user), key=lambda row: -row[3])
        assert len({row[3] for row in latest}) == len(latest)
        *_, validation, test = (
            split.item[(split.user == user) & (split.part == part)] for part in (TRAIN, VALIDATION, TEST)
        )
        assert [row[1] for row in latest[:2]] == [int(test[0]), int(validation[0])]


def test_their_rounds_are_timed_with_our_sizes(data, checkout, capsys):
    report = compared(data, checkout, "--", "--lr", "0.05")
    assert len(report["their_rounds"]) == 2
    assert report["theirs"] == report["their_rounds"][1] > 0
    assert report["ratio"] == pytest.approx(report["theirs"] / report["ours"])
    given = (checkout / "log/one.txt").read_text()
    assert "'latent_dim': '32'" in given
    assert "'lr': '0.05'" in given
    assert int((checkout / "sh_result/rows.txt").read_text()) == len(planted_blocks(users=8).user)
    assert "times" in capsys.readouterr().out


def test_code_for_older_packages_finds_what_newer_ones_have_dropped(data, checkout):
    """Samples of sets, a function of numpy, packages that decorate a log, and a GPU where there is none."""
    older = """
import random
import coloredlogs, numpy, tensorboardX, torch
coloredlogs.install(level="INFO")
tensorboardX.SummaryWriter(log_dir="runs")
assert sorted(random.sample({3, 1, 2}, 3)) == [1, 2, 3] and len(random.sample(range(9), 4)) == 4
assert numpy.in1d([1, 5], [5]).tolist() == [False, True]
assert torch.nn.Linear(2, 2).cuda()(torch.ones(1, 2).cuda()).shape == (1, 2)
torch.cuda.set_device(0)
"""
    (checkout / "train.py").write_text(older + CHECKOUT)
    report = compared(data, checkout, "--restored")
    assert report["restored"]
    assert report["command"][0] == "train.py"
    assert len(report["their_rounds"]) == 2


def test_a_checkout_that_fails_says_its_last_words(data, checkout):
    with pytest.raises(
        ConfigurationError, match=r"(?s)1 of 2 rounds were seen, exit status 1.*loss is no number"
    ):
        compared(data, checkout, "--", "--lr", "nan")


def test_other_ratings_are_not_replaced(data, checkout):
    file = checkout / "there/ml-100k/ratings.dat"
    file.parent.mkdir(parents=True)
    file.write_text("1::2::3::4\n")
    with pytest.raises(ConfigurationError, match="holds other ratings"):
        compared(data, checkout)


def test_a_folder_without_their_code_is_told(data, tmp_path):
    with pytest.raises(ConfigurationError, match=r"has no train\.py"):
        compared(data, tmp_path)


def test_a_round_that_processes_may_share_is_measured(tmp_path):
    """By one of them: what several do is the same, and what they say to each other has tests of its own."""
    write_split(planted_blocks(users=12), tmp_path)
    line = distributed.measure(
        tmp_path,
        SINGLE,
        method="fedmf",
        changes=["local_epochs=1"],
        device="cpu",
        rounds=2,
        config=ROOT / "config",
    )
    assert (line.method, line.users, line.items, line.processes) == ("fedmf", 12, 80, 1)
    assert line.seconds > 0 < line.peak_bytes
    assert line.bytes_handed == 0
