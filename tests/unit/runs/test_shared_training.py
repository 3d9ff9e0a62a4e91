"""Runs under protocols that differ in how they evaluate alone: trained once, to the bytes of each by itself."""

import numpy as np
import pytest
import torch

from fedrec.cli.main import main
from fedrec.data.split import read_split, write_split
from fedrec.errors import ConfigurationError, ResultError, StoppedError
from fedrec.federation.federation import Federation
from fedrec.files.checked_json import read_checked_json
from fedrec.plan.run_list import ListedRun
from fedrec.plan.train_request import TrainRequest
from fedrec.runs.checkpoint import CHECKPOINT, Checkpoints
from fedrec.runs.shared_training import samples_of
from fedrec.runs.train import train
from fedrec.runs.training_groups import group_by_training
from tests.conftest import ROOT
from tests.federations import METHODS, planted_blocks
from tests.once import once_for_all_workers

PROTOCOLS = tuple(
    f"{kind}-fedem" for kind in ("published", "only-lists", "only-ties", "only-pool", "upto-lists")
)
ALIKE = (PROTOCOLS[:3], PROTOCOLS[3:])
"""Two trainings: with the published pool of negatives, and with the clean one."""
FILES = ("curve.parquet", "ranks.parquet", "state.safetensors")
ROUNDS = 4


@pytest.fixture(scope="session")
def splits(tmp_path_factory):
    def build(root):
        for name in (*PROTOCOLS, "clean"):
            write_split(planted_blocks(users=12, items=60, protocol=name), root / "made" / name)

    return once_for_all_workers(tmp_path_factory, "steps of an audit", build) / "made"


@pytest.fixture
def trained(splits, tmp_path):
    """Trains under some protocols into a folder with one of each; words of the call may be changed."""

    def run(folder, *protocols, **changes):
        first, *others = protocols
        asked = {
            "data": splits, "method": "fedmf", "paper": "fedem", "protocol": first, "seed": 0,
            "changes": ("d=4", "local_epochs=1", f"rounds={ROUNDS}"), "device": "cpu", "checkpoint_seconds": 0.0,
            "out": tmp_path / folder / first,
            "also": {other: tmp_path / folder / other for other in others},
        }  # fmt: skip
        return train(TrainRequest(**asked | changes), METHODS)

    return run


@pytest.fixture
def rounds(monkeypatch, unchecked):  # noqa: ARG001 - a fixture that acts
    """The rounds that were trained; where there are too many, a round is interrupted."""

    class Rounds(list):
        most = 1000

    done, whole = Rounds(), Federation.train_round

    def train_round(self, round_):
        if len(done) >= done.most:
            raise KeyboardInterrupt
        done.append(round_)
        return whole(self, round_)

    monkeypatch.setattr(Federation, "train_round", train_round)
    return done


def said(folder):
    """What `run.json` says but for times, and where its split lies."""
    summary = read_checked_json(folder / "run.json")
    return {key: value for key, value in summary.items() if key not in ("measured", "files", "data")}


def assert_alike(one, other):
    assert said(one) == said(other)
    for name in FILES:
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


@pytest.mark.parametrize("method", ["fedmf", "fedrap", "mf", "popularity"])
def test_each_has_the_bytes_that_it_has_by_itself(trained, tmp_path, method):
    changes = [] if method == "popularity" else ["rounds=3", *(() if method == "mf" else ("local_epochs=1",))]
    changed = {"method": method, "changes": changes}
    trained("together", *PROTOCOLS, **changed)
    for protocol in PROTOCOLS:
        trained("alone", protocol, **changed)
        assert_alike(tmp_path / "together" / protocol, tmp_path / "alone" / protocol)
        assert not (tmp_path / "together" / protocol / CHECKPOINT).exists()


def test_what_trains_alike_is_trained_once(trained, rounds):
    summary = trained("runs", *PROTOCOLS)
    assert rounds == [*range(1, ROUNDS + 1)] * len(ALIKE)
    assert summary["protocol"]["name"] == PROTOCOLS[0]


def test_those_that_were_stopped_continue_together_and_lose_nothing(trained, rounds, tmp_path):
    trained("alone", *ALIKE[0])
    del rounds[:]
    rounds.most = 2
    with pytest.raises(StoppedError, match="the checkpoint of round 2 is kept"):
        trained("runs", *ALIKE[0])
    rounds.most = 1000
    trained("runs", *ALIKE[0])
    assert rounds == [1, 2, 3, 4]
    for protocol in ALIKE[0]:
        assert_alike(tmp_path / "runs" / protocol, tmp_path / "alone" / protocol)


def test_those_that_are_not_as_far_as_each_other_are_trained_once_all_the_same(trained, rounds, tmp_path):
    """One was stopped by itself, one is finished: neither loses what it has, nor is in the way of the others."""
    published, lists, ties = ALIKE[0]
    trained("alone", *ALIKE[0])
    trained("runs", ties)
    del rounds[:]
    rounds.most = 3
    with pytest.raises(StoppedError):
        trained("runs", lists)
    rounds.most = 1000
    del rounds[:]
    trained("runs", lists, published, ties)
    assert rounds == [1, 2, 3, 4]
    for protocol in ALIKE[0]:
        assert_alike(tmp_path / "runs" / protocol, tmp_path / "alone" / protocol)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_a_kill_between_their_checkpoints_loses_a_round_at_most(
    trained, rounds, tmp_path, monkeypatch, number
):
    trained("alone", *ALIKE[0])
    del rounds[:]
    saved, whole = [], Checkpoints.save

    def save(self, *state):
        if len(saved) == number:
            raise KeyboardInterrupt
        saved.append(self)
        whole(self, *state)

    monkeypatch.setattr(Checkpoints, "save", save)
    with pytest.raises(StoppedError):
        trained("runs", *ALIKE[0])
    done = len(rounds)
    monkeypatch.setattr(Checkpoints, "save", whole)
    trained("runs", *ALIKE[0])
    assert rounds[done:] == [*range(done, ROUNDS + 1)]
    for protocol in ALIKE[0]:
        assert_alike(tmp_path / "runs" / protocol, tmp_path / "alone" / protocol)


@pytest.mark.parametrize("damaged", ALIKE[0])
def test_where_a_checkpoint_is_damaged_they_start_again_together(trained, rounds, tmp_path, damaged, capsys):
    trained("alone", *ALIKE[0])
    del rounds[:]
    rounds.most = 2
    with pytest.raises(StoppedError):
        trained("runs", *ALIKE[0])
    path = tmp_path / "runs" / damaged / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    rounds.most = 1000
    capsys.readouterr()
    trained("runs", *ALIKE[0])
    assert rounds == [1, 2, 1, 2, 3, 4]
    assert capsys.readouterr().err.count("is damaged") == 1
    for protocol in ALIKE[0]:
        assert_alike(tmp_path / "runs" / protocol, tmp_path / "alone" / protocol)


def test_checkpoints_of_several_take_no_larger_part_of_the_time(tmp_path):
    """Each that is written takes its time: what is due of three comes later than what is due of one."""
    table = {"table": torch.zeros(1 << 20)}
    due = []
    for files in (1, 3):
        checkpoint = Checkpoints(tmp_path, {}, (), 0.001)
        checkpoint._took = 1.0
        assert not checkpoint.is_worth(table, files=files)
        due.append(checkpoint._due_at - checkpoint._since)
    assert due[1] == pytest.approx(3 * due[0])


def test_a_run_of_others_in_a_folder_is_reported_before_anything_is_trained(trained, rounds):
    trained("runs", PROTOCOLS[1], seed=7)
    del rounds[:]
    with pytest.raises(ResultError, match=r"differs in seed \(7 there, 0 here\)"):
        trained("runs", *PROTOCOLS)
    assert rounds == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"record": ("traffic",)},
            "--also-protocol cannot be combined with --record. Train these runs one by one.",
        ),
        ({"also": {PROTOCOLS[0]: ROOT / "elsewhere"}}, "give each protocol once"),
        ({"also": {"published": ROOT / "elsewhere"}}, "give each protocol once"),
    ],
)
def test_what_cannot_be_together_is_refused(trained, changes, words):
    with pytest.raises(ConfigurationError, match=words):
        trained("runs", *PROTOCOLS[:2], **changes)


def test_one_folder_by_two_names_is_refused(trained, tmp_path):
    again = tmp_path / "elsewhere/../runs" / PROTOCOLS[0]
    with pytest.raises(
        ConfigurationError, match=r"--also-protocol: give each protocol once, each with its own folder\."
    ):
        trained("runs", PROTOCOLS[0], also={PROTOCOLS[1]: again})


def test_a_training_that_diverges_is_a_result_of_each(trained, tmp_path):
    wild = ("d=4", "local_epochs=1", "rounds=4", "optimiser=sgd", "rate=1e9", "item_factor=1e9")
    trained("together", *ALIKE[0], diverged="kept", changes=wild)
    for protocol in ALIKE[0]:
        trained("alone", protocol, diverged="kept", changes=wild)
        assert_alike(tmp_path / "together" / protocol, tmp_path / "alone" / protocol)
        assert said(tmp_path / "alone" / protocol)["diverged"]["round"] <= ROUNDS


def command(splits, out, *more):
    methods = f"--methods={ROOT / 'config/methods.yaml'}"
    words = ["--method=fedmf", "--paper=fedem", "--protocol=published", "--device=cpu", "--set=rounds=2"]
    return ["train", f"--data={splits}", f"--out={out}", *words, methods, *more]


def test_a_command_trains_several_and_tells_the_outcome_of_each(splits, tmp_path, capsys):
    one, two = tmp_path / "one", tmp_path / "two"
    assert main(command(splits, one, f"--also-protocol=only-ties={two}")) == 0
    told = capsys.readouterr().out
    assert "published-fedem, seed 0: test HR@10" in told
    assert f"Wrote {one}\n" in told
    assert "only-ties-fedem, seed 0: test HR@10" in told
    assert told.endswith(f"Wrote {two}\n")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--also-protocol=only-ties"], "--also-protocol only-ties: write PROTOCOL=FOLDER"),
        (["--also-protocol==there"], "--also-protocol =there: write PROTOCOL=FOLDER"),
        (["--also-protocol=only-tise=a"], "fedrec: --also-protocol only-tise: "),
        (
            ["--also-protocol=only-ties=a", "--also-protocol=only-ties=b"],
            "--also-protocol only-ties=b: only-ties is given twice",
        ),
    ],
)
def test_words_that_name_no_further_run_are_refused(splits, tmp_path, capsys, words, told):
    assert main(command(splits, tmp_path / "one", *words)) == 1
    assert told in capsys.readouterr().err
    assert not (tmp_path / "one").exists()


def test_splits_train_alike_whatever_they_evaluate_by(splits, tmp_path):
    of = {name: samples_of(splits / name) for name in PROTOCOLS}
    assert all(of[alike[0]] == of[other] for alike in ALIKE for other in alike)
    assert of["published-fedem"] != of["only-pool-fedem"]
    published, lists = (read_split(splits / f"{kind}-fedem") for kind in ("published", "only-lists"))
    assert not np.array_equal(published.candidates.test, lists.candidates.test)
    changes = {
        "others": {"seed": 1},
        "by candidates": {"negative_pool": "exclude_train_and_candidates"},
        "by one list": {"negative_pool": "exclude_train_and_candidates", "candidate_lists": "shared"},
    }
    for name, changed in changes.items():
        write_split(planted_blocks(users=12, items=60, protocol="clean", **changed), tmp_path / name)
    assert len({samples_of(splits / "clean"), *(samples_of(tmp_path / name) for name in changes)}) == 4


def listed(splits, *runs):
    usual = {"data": str(splits), "method": "fedmf", "paper": "fedem", "protocol": "published", "seed": 0}
    lines = (usual | {"out": str(number)} | run for number, run in enumerate(runs))
    return [
        ListedRun(f"line {number}", TrainRequest.from_line(line), None, line.get("seconds", 1.0))
        for number, line in enumerate(lines)
    ]


def test_of_a_list_runs_are_put_together_that_train_alike(splits):
    runs = listed(
        splits,
        {"protocol": "published"},
        {"protocol": "only-pool-fedem", "seconds": 3},
        {"protocol": "only-ties", "seconds": 4},
        {"protocol": "only-ties", "seed": 1},
        {"protocol": "only-lists", "set": ["d=4"]},
        {"protocol": "only-lists"},
        {"protocol": "upto-lists"},
        {"protocol": "published"},
        {"protocol": "only-lists", "record": ["traffic"]},
        {"protocol": "only-repeats"},
        {"protocol": "clean"},
    )
    groups = [[int(str(run.out)) for run in group] for group in group_by_training(runs)]
    # No two rows of the made data have one time, or are one pair: with the clean pool, clean is all there is.
    assert groups == [[0, 2, 5], [1, 6, 10], [3], [4], [7], [8], [9]]
