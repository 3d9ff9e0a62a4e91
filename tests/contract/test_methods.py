"""What every registered method and composition must do; a new file in fedrec/methods or fedrec/plugins
joins by itself."""

import json

import numpy as np
import pytest
import torch

from fedrec.config.modules import method_names, plugin_names
from fedrec.evaluation.metrics import metrics_of
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.state.kept import RowsKept
from fedrec.runs.registry import make_learner
from fedrec.runs.training import Training
from tests.compositions import compositions
from tests.federations import METHODS, clients_of, planted_blocks, settings_of, uniform_noise

GIB = 2**30
NAMES = [*method_names(), *compositions(METHODS)]
GENTLE = {
    "rate": 0.05, "item_factor": 1, "item_scale": "one", "item_rate": 1,
    "user_factor": 1, "adapter_rate": 0.01, "head_rate": 0.01, "align_rate": 0.002,
}  # fmt: skip
"""Rates at which rounding stays rounding: with the papers' hundreds a difference of 1e-16 grows to 1e-6."""
VARIANTS = [
    "pfedclr[correction=full][training=joint]",
    "pfedclr[aggregate_from=3]",
    "fedmf[aggregate_from=2]",
    "fedmf[ldp=0.1]",
    "fedmf[ldp=0.1][ldp_clip=3]",
    "fedmf[combine=touched]",
    "fedmf[combine=change]",
    "fedmf[combine=touched][ldp=0.1][ldp_clip=3]",
    "fedmf[combine=change][ldp=0.1][ldp_clip=3]",
    "fedncf[combine=touched][ldp=0.1]",
    "fedrecon[split=none]",
    "fedrecon[combine=touched]",
    "fedrecon[participation=0.5][ldp=0.1]",
    "fedfast[participation=0.5]",
    "fedfast[product=weighted]",
    "fedfast[participation=0.5][product=weighted][ldp=0.1][ldp_clip=3]",
    "colr[rows=sum][optimiser=adam]",
    "colr[combine=mean]",
    "colr[ldp=0.1][ldp_clip=3]",
    "fedrap[tables=shared]",
    "fedrap[tables=personal]",
    "fedrap[penalty=l2][curriculum=sin]",
    "fedrap[penalty=none][curriculum=frac]",
    "fedrap[dp_noise=1]",
    "fedmf[dp_noise=1]",
    "fedncf[dp_noise=1]",
    "pfedrec[dp_noise=1]",
    "fedrap[ldp=0.1][ldp_clip=3]",
    "fedem[aggregated=1][early_stop=null][merging=once][similarity=distance][weights=closed]",
    "fedem[merging=epoch]",
    "fedem[merge=dynamic]",
    "fedem[merge=dynamic][merging=once]",
    "fedem[merge=static]",
    "fedem[merge=replace]",
    "fedem[similarity=cosine]",
    "fedem[ldp=0.1][ldp_clip=3]",
    "fedrap+em[merging=epoch]",
    "fedncf+em[merging=batch]",
    "fedncf+dualper[score_part=shared]",
    "fedmf+plgc[redundancy=au]",
    "fedmf+plgc[redundancy=duorec]",
    "fedmf+plgc[redundancy=feddecorr]",
    "fedmf+plgc[mixing=off][centred=yes]",
    "fedmf+plgc[participation=0.3]",
    "perfedrec[forward=official]",
    "perfedrec[forward=none][adaptation=cluster]",
    "perfedrec[participation=0.5]",
    "perfedrec[ldp=0.1][ldp_clip=3]",
    "perfedrec+plgc[participation=0.5]",
    "fedcia[adam_state=fresh]",
    "fedcia[fitting=dimensions]",
    "fedcia[participation=0.5]",
    "fedcia[aggregate_from=2]",
    "fedcia[ldp=0.01][ldp_clip=50]",
    "pfedgraph[penalty=0.5]",
    "pfedgraph[penalty=0.5][sign=plus][aggregated=1]",
    "pfedgraph[penalty=0.5][batch_decay=0.9][round_decay=0.9]",
    "pfedgraph[penalty=0.5][aggregated=1][ldp=0.1][ldp_clip=3]",
    "gpfedrec[graph=similarity]",
    "gpfedrec[neighbours=3][depth=2]",
    "gpfedrec[participation=0.5]",
    "gpfedrec[optimiser=adam][batch_decay=0.9]",
    "gpfedrec[ldp=0.1][ldp_clip=3]",
    "gpfedrec+em[merging=batch]",
    "gpfedrec+em[merging=epoch]",
    "gpfedrec+em[merge=dynamic][participation=0.5]",
    "gpfedrec+em[merging=epoch][ldp=0.1][ldp_clip=3]",
    "gpfedrec+plgc[participation=0.5]",
]
ALONE = ("local-only", "draw-counter", "popularity")
"""References that cannot learn planted blocks: they know nothing of other users, or nothing of the user."""
OWN_TABLES = ("centrap",)
"""Centralised methods that keep an item table per user all the same."""


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


def gentle(name, *changes):
    """Changes to gentle rates, where a method has them, and then `changes`."""
    return [*(f"{key}={value}" for key, value in GENTLE.items() if key in settings_of(name)), *changes]


def remembers(learner):
    """Whether clients keep an item table of their own from round to round."""
    return isinstance(learner, Federation) and any(
        one.table and one.place in ("local", "private") for one in learner.state.parameters.values()
    )


def hits_at_5(learner, clients):
    items = torch.cat((clients.held_out["test"].unsqueeze(1), clients.candidates["test"]), dim=1)
    scores = learner.scores(torch.arange(len(clients)), items)
    return metrics_of((1 + (scores[:, 1:] > scores[:, :1]).sum(1)).numpy())["hr@5"]


def federated(names):
    clients = clients_of(planted_blocks())
    return [name for name in names if isinstance(learner_of(name, clients), Federation)]


def same(first, second, relative=0.0):
    first, second = first.tensors(), second.tensors()
    assert first.keys() == second.keys()
    for name, value in first.items():
        one, other = value.double(), second[name].double()
        scale = one.abs().max().clamp(min=1e-12)
        assert float((one - other).abs().max() / scale) <= relative, name


def test_every_method_has_its_settings_and_every_setting_its_method():
    assert sorted(name for name in METHODS if not name.startswith("+")) == method_names()
    assert sorted(name.removeprefix("+") for name in METHODS if name.startswith("+")) == plugin_names()


def test_every_plug_in_speaks_of_methods_there_are():
    for name in plugin_names():
        entry = METHODS[f"+{name}"]
        spoken_of = [*entry["backbones"], *entry.get("refused", {})]
        assert set(spoken_of) <= set(method_names())
        assert len(spoken_of) == len(set(spoken_of))


@pytest.mark.parametrize("name", NAMES)
def test_it_learns_planted_blocks(name, clients):
    """A method must find the held-out item of the own half among 15 others, of 80 a user never met.

    Methods whose clients keep item tables remember the negatives they drew: under the clean protocol that
    drowns what so few users can teach each other, under the published one it is what they learn.
    """
    leaky = name in OWN_TABLES or (remembers(learner_of(name, clients)) and name not in ALONE)
    if leaky:
        clients = clients_of(planted_blocks(protocol="published-fedem"))
    trains = {
        "participation": 1,
        "local_epochs": 5,
        "early_stop": "null",
        "aggregated": 1,
        "optimiser": "adam",
    }
    chosen = [f"{key}={value}" for key, value in trains.items() if key in settings_of(name)]
    if name.startswith("fedrap"):
        chosen += ["item_rate=0.05", "weight_decay=0", "batch_decay=1", "round_decay=1"]
    if name == "centrap":
        # Gradients are means over a mini-batch of all users, of which a row has one or two samples.
        chosen += ["item_rate=100", "rate=100"]
    chosen = [*gentle(name), *chosen]
    if name.startswith("gpfedrec"):
        # The official code's graph joins users with those least like them: here the other half.
        chosen = ["graph=similarity", "pull=1"]
    rounds = 15 if leaky else 30
    hits = hits_at_5(trained(name, clients, rounds, changes=chosen), clients)
    chance = 5 / 16
    if name in ALONE:
        assert hits < chance + 0.2
    else:
        assert hits > chance + (0.3 if leaky else 0.15)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_deterministic_finite_and_the_seed_matters(name, clients):
    once = trained(name, clients)
    same(once, trained(name, clients))
    first = once.tensors()
    assert all(value.isfinite().all() for value in first.values())
    if name != "popularity":
        other = trained(name, clients, seed=1).tensors()
        assert any(not torch.equal(first[key], other[key]) for key in first)


@pytest.mark.parametrize("name", NAMES)
def test_its_state_is_all_it_needs(name, clients):
    first, second = trained(name, clients, 2), learner_of(name, clients)
    second.load({key: value.clone() for key, value in first.tensors().items()})
    for one in (first, second):
        one.train_round(3)
    same(first, second)


@pytest.fixture
def double_precision():
    """In double precision a difference is a mistake, and not rounding that Adam blew up."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


EACH = [
    ("optimiser=adam", "batch_size=16", "early_stop=0.05"),
    ("optimiser=sgd", "batch_size=7", "batch_decay=0.9"),
    ("optimiser=adam", "batch_size=1000", "participation=0.3"),
    ("optimiser=adam", "batch_size=7", "aggregated=0.5", "weighting=equal", "negatives=7"),
]
PLAIN = [
    ("optimiser=adam", "batch_size=16"),
    ("optimiser=sgd", "batch_size=16"),
    ("optimiser=adam", "batch_size=7", "batch_decay=0.9", "round_decay=0.9"),
    ("optimiser=adam", "negatives=7", "local_epochs=1"),
]


def equals_the_loop(name, changes, relative, users=9, rounds=2, **kwargs):
    clients = clients_of(planted_blocks(users=users))
    chosen = gentle(name, "local_epochs=3", *changes)
    loop = trained(name, clients, rounds, engine=LoopEngine(), changes=chosen)
    same(loop, trained(name, clients, rounds, changes=chosen, **kwargs), relative=relative)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("changes", EACH, ids="-".join)
@pytest.mark.parametrize("name", federated(NAMES))
def test_training_clients_at_once_equals_the_plain_loop(name, changes):
    equals_the_loop(name, changes, relative=1e-9)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("changes", PLAIN, ids="-".join)
@pytest.mark.parametrize("name", ["fedmf", "fedncf", "local-only", "fedrap"])
def test_other_settings_equal_the_plain_loop_too(name, changes):
    equals_the_loop(name, changes, relative=1e-9)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_equal_the_plain_loop(name):
    equals_the_loop(name, ("batch_size=16", "early_stop=0.05"), relative=1e-9, rounds=3)


@pytest.mark.parametrize(
    ("name", "optimiser"),
    [
        ("fedmf", "adam"),
        ("fedmf", "sgd"),
        ("fedncf", "adam"),
        ("fedncf", "sgd"),
        ("pfedrec", "sgd"),
        ("fedrap", "sgd"),
    ],
)
def test_single_precision_differs_by_rounding_alone(name, optimiser):
    equals_the_loop(name, ("local_epochs=2", "batch_size=16", f"optimiser={optimiser}"), relative=1e-5)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("name", ["pfedclr", "pfedrec", "fedrap", "fedmf+plgc"])
def test_tables_kept_as_changed_rows_equal_dense_ones(name):
    """Also with partial participation, and taken up from a stored state."""
    clients = clients_of(planted_blocks(users=20))
    settings = settings_of(name, *gentle(name, "participation=0.5", "batch_size=16", "local_epochs=2"))

    def federation(dense_bytes):
        method = make_learner(name, clients, settings, 0, BatchedEngine(GIB)).method
        return Federation(method, clients, BatchedEngine(GIB), settings, 0, dense_bytes)

    dense, rows, resumed = federation(GIB), federation(0), federation(0)
    assert any(isinstance(kept, RowsKept) for kept in rows.state.kept.values())
    for round_ in range(1, 5):
        dense.train_round(round_)
        rows.train_round(round_)
    resumed.load({key: value.clone() for key, value in rows.tensors().items()})
    for one in (dense, rows, resumed):
        one.train_round(5)
    everyone = torch.arange(len(clients))
    for key, kept in dense.state.kept.items():
        whole = kept.whole(everyone)
        assert torch.allclose(rows.state.kept[key].whole(everyone), whole, rtol=1e-9, atol=1e-12), key
        assert torch.equal(rows.state.kept[key].whole(everyone), resumed.state.kept[key].whole(everyone))
    items = torch.arange(clients.items).expand(len(clients), -1)
    assert torch.allclose(rows.scores(everyone, items), dense.scores(everyone, items), rtol=1e-9, atol=1e-9)


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("name", federated(NAMES))
def test_neither_blocks_nor_threads_change_anything(name):
    clients = clients_of(planted_blocks(users=30))
    chosen = gentle(name, "batch_size=16", "local_epochs=2")
    whole = trained(name, clients, changes=chosen)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        same(whole, trained(name, clients, changes=chosen, engine=BatchedEngine(900_000)), relative=1e-9)
    finally:
        torch.set_num_threads(threads)


def test_a_killed_run_ends_where_an_unbroken_one_does(tmp_path, clients):
    """Stop after a checkpoint, as a kill would, and run again: the same bytes."""

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
