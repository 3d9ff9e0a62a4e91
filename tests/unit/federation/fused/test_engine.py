"""Fits are compiled where they can be; where not, the batched engine trains them, and says why."""

import logging

import pytest
import torch
from torch.nn import functional

from fedrec.errors import NoCompilerError
from fedrec.federation.engines.batched import engine as batched
from fedrec.federation.engines.fused import compiling
from fedrec.federation.engines.fused import engine as fused
from fedrec.federation.engines.fused.device import CPU, H200
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import Fit
from fedrec.federation.model.weights import dot
from fedrec.federation.program import trace
from fedrec.methods.fedmf import FedMF
from fedrec.native import on_cpu
from fedrec.runs.registry import make_learner
from tests.compiled import assert_compiled, skip_without_compiler
from tests.engines import GIB, SmallBlocks
from tests.federations import (
    assert_same,
    clients_of,
    gentle,
    method_of,
    planted_blocks,
    precision,
    settings_of,
    trained,
    values_of,
)
from tests.lanes import with_two_threads

NOISE = "a step adds noise to the gradient of every row, so it changes every row"


def fits_of(method, round_):
    return [operation for operation in trace(method, round_) if isinstance(operation, Fit)]


def after_rounds(name, *changes, rounds=2, engine=None):
    """A learner after some rounds, on the compiling engine or another."""
    clients, settings = clients_of(planted_blocks(users=6)), settings_of(name, *changes)
    learner = make_learner(name, clients, settings, 0, engine or fused.FusedEngine(GIB))
    for round_ in range(1, rounds + 1):
        learner.train_round(round_)
    return learner


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.name == fused.__name__]


@pytest.mark.parametrize("name", ["fedmf[dp_noise=1]", "fedrap[dp_noise=1]"])
def test_what_cannot_be_compiled_is_trained_by_the_batched_engine_and_said_once(name, caplog):
    """In every round FedRAP has another loss, and the same reason."""
    with caplog.at_level(logging.WARNING):
        learner = after_rounds(name, rounds=3)
    (label,) = learner.engine.notes()["training"]
    assert learner.engine.notes() == {"training": {label: NOISE}}
    assert warnings(caplog) == [
        f"{name.partition('[')[0]}: training of {label} is not compiled: {NOISE}",
    ]
    assert_same(
        values_of(learner), values_of(after_rounds(name, rounds=3, engine=batched.BatchedEngine(GIB)))
    )


class OnTheSphere(FedMF):
    """Scores by rows of length 1, whose derivative torch computes by changing a tensor in place."""

    def score(self, w, items):
        return dot(functional.normalize(w.Q[items], dim=-1), w.p)


def test_a_tensor_that_is_changed_in_place_is_compiled_as_it_then_is():
    settings = settings_of("fedmf", *gentle("fedmf", "local_epochs=2"))
    engines, found = (fused.FusedEngine(GIB), LoopEngine()), []
    with precision(torch.float64):
        for engine in engines:
            clients = clients_of(planted_blocks(users=6))
            learner = Federation(OnTheSphere(settings, clients.items), clients, engine, settings, 0)
            learner.train_round(1)
            found.append(values_of(learner))
    assert engines[0].notes() == {"training": {"Q, p": "compiled"}}
    assert_same(*found, relative=1e-9)


def test_what_is_compiled_is_said_in_the_notes_and_not_in_the_log(caplog):
    with caplog.at_level(logging.WARNING):
        learner = after_rounds("fedmf")
    assert learner.engine.notes() == {"training": {"Q, p": "compiled"}}
    assert warnings(caplog) == []


def test_without_a_compiler_results_are_the_same(monkeypatch, caplog):
    def compiler():
        raise NoCompilerError("there is none; install one")

    changes = ("d=6", "batch_size=16", "participation=1")
    expected = trained("fedmf", *changes, engine="loop", users=6, dtype=torch.float64)
    monkeypatch.setattr(on_cpu, "compiler", compiler)
    # No other test has compiled this one.
    with precision(torch.float64), caplog.at_level(logging.WARNING):
        learner = after_rounds("fedmf", *changes)
        values = values_of(learner)
    assert learner.engine.notes() == {"training": {"Q, p": "there is none; install one"}}
    # What to do is said once, with the first kernel that is missing.
    assert warnings(caplog) == ["fedmf: training of Q, p is not compiled: there is none"]
    assert_same({key: expected.values[key] for key in values}, values, relative=1e-9)


@pytest.mark.parametrize("name", ["fedmf", "fedncf", "fedrap", "fedem", "pfedclr", "pfedrec", "fedmf+plgc"])
def test_kernels_as_users_have_them_equal_the_plain_loop(name, monkeypatch):
    """Other tests ask the compiler for less."""
    skip_without_compiler()
    changes = gentle(name, "d=8", "batch_size=16", "participation=1", "local_epochs=2")
    expected = trained(name, *changes, engine="loop", users=6, dtype=torch.float64)
    monkeypatch.delenv(on_cpu.FLAGS)
    on_cpu.cpu_kernel.cache_clear()
    assert not {"-O0", "-O1", "-Og"} & set(on_cpu.flags())
    with precision(torch.float64):
        learner = after_rounds(name, *changes)
        values = values_of(learner)
    on_cpu.cpu_kernel.cache_clear()
    assert_compiled(name, learner.engine.notes()["training"])
    assert_same({key: expected.values[key] for key in values}, values, relative=1e-9)


def test_rates_that_shrink_each_in_their_own_way_are_not_compiled():
    method = method_of("pfedrec", "optimiser=sgd")
    (fit,) = fits_of(method, 1)
    steps = tuple(
        fused.Step(step.rates, step.optimiser, batch_decay=decay)
        for step, decay in zip((fit.steps * 2)[:2], (0.9, 0.8), strict=True)
    )
    with pytest.raises(fused.UnsupportedError, match="by different factors"):
        compiling.code_of(method, Fit(steps, 1, method.loss), target=CPU, batch=16)


@pytest.mark.parametrize("gpu", [False, True])
@pytest.mark.parametrize("name", ["fedrap", "fedrap[penalty=l2]"])
def test_the_text_of_a_kernel_is_the_same_in_every_round(name, gpu):
    """The strengths of FedRAP's penalties grow from round to round: a kernel is given them."""
    method = method_of(name, "curriculum=tanh")
    codes = [
        compiling.code_of(method, fit, target=H200 if gpu else CPU, batch=16)
        for round_ in (1, 2, 7, 40)
        for fit in fits_of(method, round_)
    ]
    assert len({code.source for code in codes}) == 1


def test_a_kernel_is_made_once_for_all_rounds(monkeypatch):
    made = []
    monkeypatch.setattr(
        compiling,
        "Kernel",
        lambda source, *rest, of=compiling.Kernel, **how: made.append(source) or of(source, *rest, **how),
    )
    after_rounds("fedmf", rounds=3)
    assert len(made) == 1


@pytest.mark.parametrize("change", ["d=5", "batch_size=17"])
def test_another_size_is_another_kernel(change):
    first, second = (
        compiling.code_of(method, fit, target=H200, batch=method.settings["batch_size"]).source
        for method in (
            method_of("fedmf", "d=4", "batch_size=16"),
            method_of("fedmf", "d=4", "batch_size=16", change),
        )
        for fit in fits_of(method, 1)
    )
    assert first != second


def test_two_threads_give_the_same_bytes():
    alone = values_of(after_rounds("fedmf"))
    together = with_two_threads(lambda: values_of(after_rounds("fedmf")))
    assert_same(alone, together)


def test_blocks_of_little_memory_give_the_same(monkeypatch):
    made = []
    monkeypatch.setattr(batched, "Block", lambda *args, of=batched.Block: made.append(args) or of(*args))
    with precision(torch.float64):
        whole = after_rounds("fedmf", rounds=1)
        assert len(made) == 1
        parts = after_rounds("fedmf", rounds=1, engine=SmallBlocks(fused.FusedEngine))
        assert len(made) > 3
        assert_same(values_of(whole), values_of(parts), relative=1e-12)
