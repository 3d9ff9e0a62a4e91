"""BPR-MF: a plain implementation with gradients by hand, and LightGCN without layers."""

import numpy as np
import pytest
import torch

from fedrec.central.steps import EpochSamples
from tests.federations import clients_of, learner_of, planted_blocks

pytestmark = pytest.mark.usefixtures("double_precision")
SETTINGS = {"d": 5, "rate": 0.02, "reg": 0.3, "spread": 0.5, "batch_size": 40, "negatives": 2}


def model(clients, name="bpr-mf", **changes):
    settings = SETTINGS | changes
    return learner_of(name, clients, *(f"{key}={value}" for key, value in settings.items()), engine="loop")


class PlainAdam:
    """Adam on a numpy array."""

    def __init__(self, value, rate):
        self.value, self.rate, self.steps = value, rate, 0
        self.first, self.second = np.zeros_like(value), np.zeros_like(value)

    def move(self, gradient):
        self.steps += 1
        self.first = 0.9 * self.first + 0.1 * gradient
        self.second = 0.999 * self.second + 0.001 * gradient**2
        first, second = self.first / (1 - 0.9**self.steps), self.second / (1 - 0.999**self.steps)
        self.value -= self.rate * first / (np.sqrt(second) + 1e-8)


def plain_loss(P, Q, rows, reg):  # noqa: N803 - as in the formula
    """The loss of some rows (user, positive, negatives), and its gradients, one pair after the other."""
    by_user, by_item, loss = np.zeros_like(P), np.zeros_like(Q), 0.0
    pairs = sum(len(negatives) for _, _, negatives in rows)
    for u, i, negatives in rows:
        for j in negatives:
            above = P[u] @ (Q[i] - Q[j])
            loss += np.log1p(np.exp(-above)) / pairs
            slope = -1 / (1 + np.exp(above)) / pairs
            by_user[u] += slope * (Q[i] - Q[j])
            by_item[i] += slope * P[u]
            by_item[j] -= slope * P[u]
        for values, gradient, row in ((P, by_user, u), *((Q, by_item, item) for item in (i, *negatives))):
            loss += reg / 2 * (values[row] ** 2).sum() / len(rows)
            gradient[row] += reg * values[row] / len(rows)
    return loss, by_user, by_item


def test_an_epoch_is_the_plain_one(demo):
    learner, rng = model(demo), np.random.default_rng(3)
    user = torch.repeat_interleave(demo.everyone, demo.sizes).numpy()
    order = rng.permutation(len(user))[:1000]
    items = np.column_stack((demo.train_item.numpy(), rng.integers(demo.items, size=(len(user), 2))))
    samples = [(user[row], items[row, 0], items[row, 1:]) for row in order]
    P, Q = (PlainAdam(learner.values[name].detach().numpy().copy(), 0.02) for name in "PQ")  # noqa: N806
    losses = []
    for first in range(0, len(samples), 40):
        loss, by_user, by_item = plain_loss(P.value, Q.value, samples[first : first + 40], reg=0.3)
        P.move(by_user)
        Q.move(by_item)
        losses.append(loss)
    labels = torch.tensor([[1.0, 0.0, 0.0]]).expand(len(order), 3)
    mean = learner.steps.epoch(
        EpochSamples(torch.from_numpy(user[order]), torch.from_numpy(items[order]), labels)
    )
    assert mean == pytest.approx(np.mean(losses), rel=1e-9)
    assert learner.values["P"].detach().numpy() == pytest.approx(P.value, abs=1e-9)
    assert learner.values["Q"].detach().numpy() == pytest.approx(Q.value, abs=1e-9)


def test_it_is_lightgcn_without_layers():
    clients = clients_of(planted_blocks())
    own, other = model(clients), model(clients, name="lightgcn", depth=0)
    for round_ in (1, 2):
        assert own.train_round(round_).loss == pytest.approx(other.train_round(round_).loss, rel=1e-12)
    for name in "PQ":
        assert own.values[name].detach().numpy() == pytest.approx(other.values[name].detach().numpy())
