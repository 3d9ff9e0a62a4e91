"""CentRAP: FedRAP in one place as the oracle, decay by one factor, and the state it stores."""

import pytest
import torch
from torch.nn import functional

from fedrec.errors import ConfigurationError, DivergenceError
from fedrec.federation.engines.engine import engine_named
from fedrec.methods import centrap as module
from fedrec.runs.registry import make_learner
from tests.by_hand import ENGINES, clients_with, federation_of, kept, near
from tests.federations import clients_of, planted_blocks, settings_of

pytestmark = pytest.mark.usefixtures("double_precision")
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
RATES = (
    "d=3",
    "item_rate=20",
    "rate=0.5",
    "weight_decay=0.001",
    "v1=0.3",
    "v2=0.2",
    "round_decay=0.9",
)


def centrap(clients, *changes, seed=0):
    return make_learner(
        "centrap",
        clients,
        settings_of("centrap", "personal_rate=null", *changes),
        seed,
        engine=engine_named("loop", 0),
    )


def personal(learner):
    """The personal tables: users x items x d."""
    return (learner.factor * learner.rows).reshape(len(learner.clients), learner.clients.items, -1)


def all_scores(learner):
    clients = learner.clients
    return learner.scores(torch.arange(len(clients)), torch.arange(clients.items).expand(len(clients), -1))


@both_engines
@pytest.mark.parametrize("at_once", [512, 4])
def test_synchronous_steps_are_a_federation_of_single_steps(engine, at_once, monkeypatch):
    """One local epoch, one mini-batch with everything, every client, plain mean: the same numbers."""
    monkeypatch.setattr(module, "_USERS_AT_ONCE", at_once)
    clients = clients_of(planted_blocks(users=9))
    one_step = ("local_epochs=1", "participation=1", "batch_size=1000000", "weighting=equal", "batch_decay=1")
    federation = federation_of("fedrap", clients, *RATES, *one_step, engine=engine)
    central = centrap(clients, *RATES, "mode=synchronous")
    for round_ in (1, 2):
        report, expected = central.train_round(round_), federation.train_round(round_)
        assert near(central.C.detach(), federation.state.shared["C"], within=1e-9)
        assert near(personal(central), kept(federation, "D"), within=1e-9)
        assert near(central.u.detach(), kept(federation, "u").squeeze(1), within=1e-9)
        assert near(central.b.detach(), kept(federation, "b").squeeze(1), within=1e-9)
        assert report.loss == pytest.approx(expected.loss)
    items = torch.arange(clients.items).expand(9, -1)
    assert near(all_scores(central), federation.scores(torch.arange(9), items), within=1e-9)


def plain_run(central, rounds):
    """Mixed training of whole tables by torch.optim.SGD, from the same start with the same mini-batches."""
    s, items = central.settings, central.clients.items
    c, u, b = (value.detach().clone().requires_grad_() for value in (central.C, central.u, central.b))
    d = central.rows.clone().requires_grad_()
    for round_ in range(1, rounds + 1):
        shrunk = s["round_decay"] ** (round_ - 1)
        groups = [
            {"params": [c], "lr": s["item_rate"] * shrunk},
            {"params": [d], "lr": (s["personal_rate"] or s["item_rate"]) * shrunk},
            {"params": [u, b], "lr": s["rate"] * shrunk},
        ]
        optimiser = torch.optim.SGD(groups, weight_decay=s["weight_decay"])
        strength = torch.tanh(torch.tensor(round_ / 10))
        samples = central.mixed_samples(round_).tensors()
        for users, chosen, labels in zip(*(part.split(s["batch_size"]) for part in samples), strict=True):
            own, shared = d[users * items + chosen], c[chosen]
            score = ((own + shared) * u[users]).sum(1) + b[users, 0]
            loss = functional.binary_cross_entropy_with_logits(score, labels)
            loss = loss - strength * s["v1"] * (own - shared).square().mean()
            loss = loss + strength * s["v2"] * shared.abs().mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return {"C": c, "u": u, "b": b, "D": d.reshape(len(central.clients), items, -1)}


@pytest.mark.parametrize(("decay", "personal_rate"), [(0.001, "null"), (0.04, "null"), (0.001, "300")])
def test_decay_by_one_factor_equals_decay_of_every_row(decay, personal_rate):
    """At 0.04 a step leaves a fifth, so that the factor goes into the rows time and again."""
    clients = clients_of(planted_blocks(users=9))
    rates = (*RATES, f"weight_decay={decay}", f"personal_rate={personal_rate}")
    central = centrap(clients, *rates, "batch_size=50")
    expected = plain_run(central, rounds=3)
    for round_ in (1, 2, 3):
        central.train_round(round_)
    found = {"C": central.C, "u": central.u, "b": central.b, "D": personal(central)}
    for name, value in found.items():
        assert near(value.detach(), expected[name].detach(), within=1e-9), name


def test_samples_are_mixed_over_users_and_every_one_is_there_once():
    clients = clients_with([[0, 1, 2], [3], [4, 5]], items=9, allowed=[[6], [7], [8]])
    samples = centrap(clients, "negatives=1").mixed_samples(1)
    assert samples.user.tolist() != sorted(samples.user.tolist())
    found = zip(*(part.tolist() for part in samples.tensors()), strict=True)
    liked = [(0, 0, 1), (0, 1, 1), (0, 2, 1), (1, 3, 1), (2, 4, 1), (2, 5, 1)]
    assert sorted(found) == sorted([*liked, *[(0, 6, 0)] * 3, (1, 7, 0), *[(2, 8, 0)] * 2])


def test_the_loss_of_an_epoch_is_the_mean_over_all_its_steps():
    """At 0.04 decay moves the factor into the rows every few steps: the mean goes over all of them."""
    learner = centrap(clients_of(planted_blocks(users=9)), *RATES, "weight_decay=0.04", "batch_size=50")
    taken, step = [], learner.step
    learner.step = lambda *given: taken.append(float(step(*given))) or torch.tensor(taken[-1])
    assert learner.train_round(1).loss == pytest.approx(sum(taken) / len(taken))
    assert len(taken) == -(-len(learner.mixed_samples(1).user) // 50)


@pytest.mark.parametrize("mode", ["mixed", "synchronous"])
def test_a_stored_state_goes_on_as_if_never_stopped(mode):
    clients = clients_of(planted_blocks(users=9))
    changes = (*RATES, f"mode={mode}", "batch_size=50")
    unbroken, resumed = centrap(clients, *changes), centrap(clients, *changes, seed=0)
    for round_ in (1, 2):
        unbroken.train_round(round_)
    resumed.load({name: value.clone() for name, value in unbroken.tensors().items()})
    assert torch.equal(all_scores(resumed), all_scores(unbroken))
    for one in (unbroken, resumed):
        one.train_round(3)
    for name, value in unbroken.tensors().items():
        assert torch.equal(value, resumed.tensors()[name]), name


def test_users_are_scored_in_pieces(monkeypatch):
    learner = centrap(clients_of(planted_blocks(users=9)), *RATES)
    learner.train_round(1)
    q = learner.C + personal(learner)
    expected = (q * learner.u.unsqueeze(1)).sum(-1) + learner.b
    for at_once in (1, 200, 1 << 22):
        monkeypatch.setattr(module, "_AT_ONCE", at_once)
        assert near(all_scores(learner), expected.detach())


def test_divergence_is_an_error():
    changes = ("item_rate=1e9", "rate=1e9", "weight_decay=0", "batch_size=1")
    learner = centrap(clients_of(planted_blocks(users=9)), *changes)
    with pytest.raises(DivergenceError, match=r"epoch 1: .* is not finite\. Lower the learning rate"):
        learner.train_round(1)


def test_decay_that_leaves_nothing_is_refused():
    with pytest.raises(ConfigurationError, match="item_rate x weight_decay must be below 1"):
        centrap(clients_with([[0]], items=9), "item_rate=100", "weight_decay=0.01")
