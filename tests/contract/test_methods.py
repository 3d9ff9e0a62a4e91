"""What every registered method must do; a new file in fedrec/methods joins by itself."""

import json

import numpy as np
import pytest
import torch

from fedrec.evaluation.metrics import metrics_of
from fedrec.federation.batched import BatchedEngine
from fedrec.federation.federation import Federation
from fedrec.federation.loop import LoopEngine
from fedrec.registry import make_learner, method_names
from fedrec.training import Run
from tests.federations import METHODS, clients_of, planted_blocks, settings_of, uniform_noise

GIB = 2**30
ALONE = ("local-only", "draw-counter", "popularity")
"""References that cannot learn planted blocks: they know nothing of other users, or nothing of the user."""


@pytest.fixture(scope="module")
def clients():
    return clients_of(planted_blocks())


def learner_of(name, clients, *changes, engine=None, seed=0, paper=None):
    settings = settings_of(name, *changes, paper=paper)
    return make_learner(name, clients, settings, seed, engine or BatchedEngine(GIB))


def trained(name, clients, rounds=2, **kwargs):
    learner = learner_of(name, clients, *kwargs.pop("changes", ()), **kwargs)
    for round_ in range(1, rounds + 1):
        learner.train_round(round_)
    return learner


def federated(names):
    clients = clients_of(planted_blocks())
    return [name for name in names if isinstance(learner_of(name, clients), Federation)]


def same(first, second, relative=0.0):
    first, second = first.tensors(), second.tensors()
    assert first.keys() == second.keys()
    for name, value in first.items():
        scale = value.abs().max().clamp(min=1e-12)
        assert float((value - second[name]).abs().max() / scale) <= relative, name


def test_every_method_has_its_settings_and_every_setting_its_method():
    assert sorted(METHODS) == method_names()


@pytest.mark.parametrize("name", method_names())
def test_it_learns_planted_blocks(name, clients):
    # More items than a user meets, so a held-out item of the own half is always a question.
    settings = METHODS[name]["settings"]
    changes = ["rate=0.05"] * ("rate" in settings) + ["participation=1", "local_epochs=5"] * (
        "local_epochs" in settings
    )
    learner = trained(name, clients, 40, changes=changes)
    everyone = torch.arange(len(clients))
    items = torch.cat((clients.held_out["test"].unsqueeze(1), clients.candidates["test"]), dim=1)
    scores = learner.scores(everyone, items)
    rank = 1 + (scores[:, 1:] > scores[:, :1]).sum(1)
    hits = metrics_of(rank.numpy())["hr@5"]
    chance = 5 / 16
    if name in ALONE:
        assert hits < chance + 0.2
    else:
        assert hits > chance + 0.15


@pytest.mark.parametrize("name", method_names())
def test_it_is_deterministic_and_the_seed_matters(name, clients):
    same(trained(name, clients), trained(name, clients))
    if name != "popularity":
        first, other = trained(name, clients).tensors(), trained(name, clients, seed=1).tensors()
        assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", method_names())
def test_its_numbers_stay_finite(name, clients):
    assert all(value.isfinite().all() for value in trained(name, clients, 3).tensors().values())


@pytest.mark.parametrize("name", method_names())
def test_its_state_is_all_it_needs(name, clients):
    whole = trained(name, clients, 4)
    first, second = trained(name, clients, 2), learner_of(name, clients)
    second.load({key: value.clone() for key, value in first.tensors().items()})
    for round_ in (3, 4):
        second.train_round(round_)
    same(whole, second)


@pytest.fixture
def double_precision():
    """In double precision a difference is a mistake, and not rounding that Adam blew up."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("name", federated(method_names()))
@pytest.mark.parametrize(
    "changes",
    [
        ("optimiser=adam", "batch_size=16"),
        ("optimiser=sgd", "batch_size=16", "rate=0.1"),
        ("optimiser=sgd", "batch_size=7", "rate=0.1", "batch_decay=0.9"),
        ("optimiser=adam", "batch_size=7", "batch_decay=0.9"),
        ("optimiser=adam", "batch_size=16", "early_stop=0.05"),
        ("optimiser=adam", "batch_size=1000", "participation=0.3"),
        ("optimiser=adam", "batch_size=16", "aggregated=0.5", "weighting=equal"),
        ("optimiser=adam", "negatives=7", "local_epochs=1"),
    ],
    ids="-".join,
)
def test_training_clients_at_once_equals_the_plain_loop(name, changes):
    clients = clients_of(planted_blocks(users=20))
    changes = ("local_epochs=3", *changes)
    loop = trained(name, clients, engine=LoopEngine(), changes=changes)
    same(loop, trained(name, clients, changes=changes), relative=1e-9)


@pytest.mark.parametrize("name", federated(method_names()))
@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_single_precision_differs_by_rounding_alone(name, optimiser):
    clients = clients_of(planted_blocks(users=20))
    changes = ("local_epochs=2", "batch_size=16", f"optimiser={optimiser}")
    loop = trained(name, clients, engine=LoopEngine(), changes=changes)
    same(loop, trained(name, clients, changes=changes), relative=1e-5)


@pytest.mark.parametrize("name", federated(method_names()))
def test_neither_blocks_nor_threads_change_anything(name, clients):
    whole = trained(name, clients, changes=["batch_size=16"])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        same(
            whole,
            trained(name, clients, changes=["batch_size=16"], engine=BatchedEngine(300_000)),
            relative=1e-6,
        )
    finally:
        torch.set_num_threads(threads)


def test_a_killed_run_ends_where_an_unbroken_one_does(tmp_path, clients):
    """Stop after a checkpoint, as a kill would, and run again: the same bytes."""
    split = planted_blocks()

    class KilledError(Exception):
        pass

    def run(folder, stop_after=None):
        learner = learner_of("fedmf", clients, "rounds=6", "local_epochs=2")
        if stop_after is not None:
            rounds = learner.train_round

            def train_round(round_):
                if round_ > stop_after:
                    raise KilledError
                return rounds(round_)

            learner.train_round = train_round
        identity = {"method": "fedmf", "seed": 0}
        return Run(split, clients, learner, 6, tmp_path / folder, identity, checkpoint_seconds=0).train()

    run("whole")
    with pytest.raises(KilledError):
        run("killed", stop_after=3)
    assert (tmp_path / "killed/checkpoint.safetensors").is_file()
    assert not (tmp_path / "killed/run.json").exists()
    run("killed")
    for file in ("curve.parquet", "ranks.parquet", "state.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes()
    assert not (tmp_path / "killed/checkpoint.safetensors").exists()
    first, second = (json.loads((tmp_path / name / "run.json").read_text()) for name in ("whole", "killed"))
    assert first["metrics"] == second["metrics"]


@pytest.mark.parametrize(("protocol", "low", "high"), [("clean", 0.05, 0.15), ("published-fedem", 0.5, 1.0)])
def test_the_canary_local_training_finds_the_held_out_item_only_through_the_leak(protocol, low, high):
    """On uniformly random data nothing can be learnt: 10 of 100 candidates is chance."""
    clients = clients_of(uniform_noise(protocol=protocol))
    learner = trained("local-only", clients, 15, changes=["rate=0.1"])
    everyone = torch.arange(len(clients))
    items = torch.cat((clients.held_out["test"].unsqueeze(1), clients.candidates["test"]), dim=1)
    scores = learner.scores(everyone, items)
    rank = 1 + (scores[:, 1:] >= scores[:, :1]).sum(1)
    hits = float((rank <= 10).float().mean())
    # 400 users: the standard error of chance is 0.015.
    assert low <= hits <= high


def test_the_draw_counter_reads_the_held_out_item_off_the_published_protocol():
    for protocol, expected in (("published-fedem", 0.99), ("clean", None)):
        clients = clients_of(uniform_noise(protocol=protocol))
        learner = trained("draw-counter", clients, 60)
        items = torch.cat((clients.held_out["test"].unsqueeze(1), clients.candidates["test"]), dim=1)
        scores = learner.scores(torch.arange(len(clients)), items)
        better, equal = (scores[:, 1:] > scores[:, :1]).sum(1), (scores[:, 1:] == scores[:, :1]).sum(1)
        hits = float(np.mean((1 + better + equal / 2).numpy() <= 10))
        assert hits >= expected if expected else abs(hits - 0.10) < 0.05
