"""Epochs as one compiled loop, against the same steps one by one."""

import pytest
import torch

from fedrec.central import compiled
from fedrec.central.compiled import CompiledSteps
from fedrec.central.steps import Steps
from fedrec.errors import NoCompilerError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.fused.adam import SETTLED, adam_tables, corrections
from tests.federations import learner_of, planted_blocks, precision

METHODS = ("mf", "ncf")
ROUNDS = 3


def clients(users=24):
    return Clients.of_split(planted_blocks(users=users), torch.device("cpu"))


def trained(name, engine, *changes, rounds=range(1, ROUNDS + 1), state=None, users=24):
    learner = learner_of(name, clients(users), *changes, engine=engine)
    if state is not None:
        learner.load(state)
    losses = [learner.train_round(round_).loss for round_ in rounds]
    return learner, losses


@pytest.mark.parametrize("name", METHODS)
# Every step of torch takes its time: samples one by one are those of few users.
@pytest.mark.parametrize(("batch_size", "users"), [(1, 5), (7, 24), (100_000, 24)])
def test_it_takes_the_steps_of_torch(name, batch_size, users):
    changes = (f"batch_size={batch_size}", "rate=0.02", "spread=0.3")
    with precision(torch.float64):
        plain, expected = trained(name, "loop", *changes, users=users)
        fast, losses = trained(name, "fused", *changes, users=users)
    assert type(plain.steps) is Steps
    assert isinstance(fast.steps, CompiledSteps)
    assert losses == pytest.approx(expected, rel=1e-9)
    found = fast.tensors()
    for key, value in plain.tensors().items():
        scale = value.abs().max().clamp(min=1e-9)
        assert float((found[key] - value).abs().max() / scale) < 1e-9, key


@pytest.mark.parametrize("name", METHODS)
def test_it_goes_on_from_a_state_to_the_same_bytes(name):
    whole, _ = trained(name, "fused", "batch_size=16")
    first, _ = trained(name, "fused", "batch_size=16", rounds=[1])
    state = {key: value.clone() for key, value in first.tensors().items()}
    again, _ = trained(name, "fused", "batch_size=16", rounds=range(2, ROUNDS + 1), state=state)
    assert all(torch.equal(again.tensors()[key], value) for key, value in whole.tensors().items())


@pytest.mark.parametrize("name", METHODS)
def test_long_after_its_start_adam_corrects_nothing(name):
    """Tables of corrections end where these are 1, however long a training has lasted."""
    with precision(torch.float64):
        start = {key: value.clone() for key, value in trained(name, "loop")[0].tensors().items()}
        for key, value in start.items():
            if key.endswith("/step"):
                value.fill_(5.0 * SETTLED)
        plain, _ = trained(name, "loop", "batch_size=16", rounds=[4], state=start)
        fast, _ = trained(name, "fused", "batch_size=16", rounds=[4], state=start)
    for key, value in plain.tensors().items():
        assert torch.allclose(fast.tensors()[key], value, rtol=1e-9, atol=1e-11), key


def test_corrections_are_settled():
    slope, root = corrections(SETTLED + 1)
    assert slope[SETTLED] == 1
    assert root[SETTLED] == 1


def test_tails_are_the_sums_they_stand_for():
    slope, root = corrections(40)
    tails = adam_tables(slope, root, torch.ones(41, dtype=torch.float64))["tails"]
    for mini_batch in (0, 7, 39):
        for term in range(1, 5):
            power = 0.9 / 0.999 ** (term / 2)
            later = range(mini_batch + 1, 41)
            expected = sum(float(slope[j] / root[j] ** term) * power ** (j - mini_batch) for j in later)
            assert float(tails[mini_batch, term - 1]) == pytest.approx(expected, rel=1e-12)


def test_without_a_compiler_steps_are_taken_one_by_one_and_it_is_said(monkeypatch, caplog):
    def none(*_given):
        raise NoCompilerError("there is no compiler here")

    monkeypatch.setattr(compiled, "compiled_fit", none)
    learner, losses = trained("mf", "fused")
    assert type(learner.steps) is Steps
    assert "there is no compiler here" in caplog.text
    assert learner.notes(ROUNDS)["training"] == {"P, Q": "there is no compiler here"}
    assert losses == trained("mf", "loop")[1]


def test_run_json_says_that_training_was_compiled():
    learner, _ = trained("mf", "fused", rounds=[1])
    assert learner.notes(1)["training"] == {"P, Q": "compiled"}
