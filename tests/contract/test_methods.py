"""What every registered method and composition must do; a new file in fedrec/methods or fedrec/plugins
joins by itself."""

import json

import pytest
import torch

from fedrec.config.modules import method_names, plugin_names
from fedrec.config.names import parse
from fedrec.federation.federation import Federation
from fedrec.native.on_cpu import FLAGS
from fedrec.runs.method_kinds import names_scores_read
from fedrec.runs.training import Training
from tests.compositions import speaking_first
from tests.conftest import swift
from tests.contract.matrix import NAMES
from tests.federations import (
    METHODS,
    assert_same,
    chosen,
    clients_of,
    gentle,
    learner_of,
    planted_blocks,
    uniform_noise,
)

TEACHING = {
    "participation": 1, "local_epochs": 5, "early_stop": "null", "aggregated": 1, "optimiser": "adam",
    "item_rate": 0.05, "weight_decay": 0, "batch_decay": 1, "round_decay": 1,
}  # fmt: skip
"""With these and gentle rates methods learn in few rounds; one that does not has `teaching` in its entry."""


@pytest.fixture
def swift_kernels(monkeypatch):
    """Kernels for tests that train many rounds."""
    monkeypatch.setenv(FLAGS, swift())


def trained_on(clients, name, rounds, changes=()):
    learner = learner_of(name, clients, *changes)
    for round_ in range(1, rounds + 1):
        learner.train_round(round_)
    return learner


def keeps_item_tables(learner, clients):
    """Whether something of every user and item that scores read is kept from round to round, other than copies of
    what is shared."""
    if isinstance(learner, Federation):
        parts = learner.state.parameters
        tables = [parts[name] for name in names_scores_read(learner.method) if parts[name].table]
        return any(table.location in ("local", "private") for table in tables)
    kept = [value for key, value in learner.tensors().items() if key.startswith("kept/")]
    return any(value.numel() >= len(clients) * clients.items for value in kept)


def hits(learner, clients, parts=("validation", "test"), at=5):
    """The share of held-out items among the first of their candidates; of equal ones half come before it."""
    found = []
    for part in parts:
        items = torch.cat((clients.held_out[part].unsqueeze(1), clients.candidates[part]), dim=1)
        own, others = learner.scores(torch.arange(len(clients)), items).split((1, items.shape[1] - 1), dim=1)
        rank = 1 + (others > own).sum(1) + (others == own).sum(1) / 2
        found.append((rank <= at).double().mean())
    return float(torch.stack(found).mean())


def test_every_method_has_its_settings_and_every_setting_its_method():
    assert sorted(name for name in METHODS if not name.startswith("+")) == method_names()
    assert sorted(name.removeprefix("+") for name in METHODS if name.startswith("+")) == plugin_names()


def test_every_plug_in_speaks_of_methods_there_are():
    for name in plugin_names():
        entry = METHODS[f"+{name}"]
        spoken_of = [*entry.backbones, *entry.refused]
        assert set(spoken_of) <= set(method_names())
        assert len(spoken_of) == len(set(spoken_of))


@pytest.mark.usefixtures("swift_kernels")
@pytest.mark.parametrize("name", speaking_first(NAMES))
def test_it_learns_planted_blocks(name):
    """A method must find held-out items of the own half among 15 others, of 80 a user never met: more often than
    by chance, and than before it learnt. A reference must not.

    Methods whose clients keep item tables remember the negatives they drew: under the clean protocol that
    drowns what so few users can teach each other, under the published one it is what they learn.
    """
    entry = METHODS[parse(name).backbone]
    clients = clients_of(planted_blocks())
    leaky = entry.reference is None and keeps_item_tables(learner_of(name, clients), clients)
    if leaky:
        clients = clients_of(planted_blocks(protocol="published-fedem"))
    teaching = (
        chosen(name, entry.teaching) if entry.teaching is not None else gentle(name, *chosen(name, TEACHING))
    )
    learner = trained_on(clients, name, 15 if leaky else 30, teaching)
    chance, untrained = 5 / 16, hits(learner_of(name, clients, *teaching), clients)
    if entry.reference is not None:
        assert hits(learner, clients) < chance + 0.15
    else:
        assert hits(learner, clients) > max(chance, untrained) + (0.3 if leaky else 0.15)


@pytest.mark.parametrize("name", speaking_first(NAMES))
def test_it_is_deterministic_and_finite_and_its_state_is_all_it_needs(name):
    clients = clients_of(planted_blocks(users=15))
    learner = trained_on(clients, name, rounds=2)
    stored = {key: value.clone() for key, value in learner.tensors().items()}
    assert all(value.isfinite().all() for value in stored.values())
    assert_same(stored, trained_on(clients, name, rounds=2).tensors())
    resumed = learner_of(name, clients)
    resumed.load({key: value.clone() for key, value in stored.items()})
    for continued in (learner, resumed):
        continued.train_round(3)
    assert_same(learner.tensors(), resumed.tensors())


@pytest.mark.parametrize("name", speaking_first(NAMES))
def test_the_seed_matters_where_anything_is_drawn(name):
    """Negatives by clients, or the values with which a model begins."""
    clients = clients_of(planted_blocks(users=15))
    learners = [learner_of(name, clients, seed=seed) for seed in (0, 1)]
    for learner in learners:
        learner.train_round(1)
    first, second = (learner.tensors() for learner in learners)
    equal = all(torch.equal(value, second[key]) for key, value in first.items())
    model = learner.method if isinstance(learner, Federation) else learner
    parts = getattr(model, "parameters", dict)()
    random = any(part.initial.kind != "constant" for part in parts.values())
    assert equal == (not learner.negative_draws(1) and not random)


def test_a_killed_run_ends_where_an_unbroken_one_does(tmp_path):
    """Stop after a checkpoint, as a kill would, and run again: the same bytes."""
    split = planted_blocks()
    clients = clients_of(split)

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
        return Training(clients, learner, 6, tmp_path / folder, identity, checkpoint_seconds=0).train()

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


@pytest.mark.usefixtures("swift_kernels")
@pytest.mark.parametrize(("protocol", "low", "high"), [("clean", 0.05, 0.15), ("published-fedem", 0.5, 1.0)])
def test_the_canary_local_training_finds_the_held_out_item_only_through_the_leak(protocol, low, high):
    """On uniformly random data nothing can be learnt: 10 of 100 candidates is chance."""
    clients = clients_of(uniform_noise(protocol=protocol))
    learner = trained_on(clients, "local-only", 15, ["rate=0.1"])
    # 400 users: the standard error of chance is 0.015.
    assert low <= hits(learner, clients, parts=["test"], at=10) <= high


@pytest.mark.usefixtures("swift_kernels")
def test_the_draw_counter_reads_the_held_out_item_off_the_published_protocol():
    for protocol, expected in (("published-fedem", 0.99), ("clean", None)):
        clients = clients_of(uniform_noise(protocol=protocol))
        found = hits(trained_on(clients, "draw-counter", 60), clients, parts=["test"], at=10)
        assert found >= expected if expected else abs(found - 0.10) < 0.05
