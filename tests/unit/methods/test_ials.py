"""iALS: half a step by hand and by FCF's clients, and a plain implementation with a dense matrix of confidences."""

import numpy as np
import pytest
import torch

from fedrec.errors import DivergenceError
from fedrec.federation.model import PlainTable, Values
from fedrec.methods import ials
from fedrec.methods.fcf import FCF
from tests.by_hand import clients_with
from tests.federations import all_scores, learner_of, met_by

pytestmark = pytest.mark.usefixtures("double_precision")
SETTINGS = {"d": 6, "alpha": 3.0, "penalty": 0.7, "nu": 0.5, "spread": 0.4}


def model(clients, **changes):
    settings = SETTINGS | changes
    return learner_of("ials", clients, *(f"{key}={value}" for key, value in settings.items()))


def test_half_a_step_by_hand():
    # One user, who met item 0 of two: (4 x 2^2 + 1^2 + lambda) p = 4 x 2, lambda = 0.5 x (4 + 1)
    learner = model(clients_with([[0]], items=2), d=1, alpha=3.0, penalty=0.5, nu=1.0)
    vectors, _ = learner.solved(torch.tensor([[2.0], [1.0]]), learner.of_users)
    assert vectors.tolist() == [[pytest.approx(8 / (16 + 1 + 2.5))]]
    # Item 1, whom nobody met, is pulled to zero.
    vectors, _ = learner.solved(torch.tensor([[2.0]]), learner.of_items)
    assert vectors.tolist() == [[pytest.approx(8 / (16 + 0.5 * 4))], [0.0]]


def test_half_a_step_is_that_of_fcfs_clients(demo):
    learner = model(demo, nu=0.0)
    fcf = FCF({"d": 6, "alpha": 3.0, "penalty": 0.7}, demo.items)
    seen = Values(own=PlainTable(torch.from_numpy(met_by(demo)).unsqueeze(2)), Q=PlainTable(learner.Q))
    # A table of one client for all of them: whole() is asked for alone.
    solved = fcf.derived(seen)["p"].squeeze(1)
    found, _ = learner.solved(learner.Q, learner.of_users)
    assert found.numpy() == pytest.approx(solved.numpy(), abs=1e-10)


def plain(fixed, met, alpha, penalty, nu):
    """One side, row by row, by a dense matrix of confidences."""
    solved = np.zeros((len(met), fixed.shape[1]))
    for row, own in enumerate(met):
        confidence = 1 + alpha * own
        weighed = fixed.T * confidence
        pull = penalty * confidence.sum() ** nu
        solved[row] = np.linalg.solve(weighed @ fixed + pull * np.eye(len(weighed)), weighed @ own)
    return solved


def objective(P, Q, met, alpha, penalty, nu):  # noqa: N803 - as in the formula
    confidence = 1 + alpha * met
    errors = (confidence * (met - P @ Q.T) ** 2).sum()
    pulls = [
        penalty * (confidence.sum(axis) ** nu * (rows**2).sum(1)).sum() for axis, rows in ((1, P), (0, Q))
    ]
    return errors + sum(pulls)


@pytest.mark.parametrize("nu", [0.0, 0.5, 1.0])
def test_epochs_are_the_plain_ones(demo, nu):
    learner, met = model(demo, nu=nu), met_by(demo)
    rules = {"alpha": 3.0, "penalty": 0.7, "nu": nu}
    Q = learner.Q.numpy()  # noqa: N806 - as in the formula
    before = np.inf
    for round_ in (1, 2, 3):
        P = plain(Q, met, **rules)  # noqa: N806
        Q = plain(P, met.T, **rules)  # noqa: N806
        loss = learner.train_round(round_).loss
        assert loss == pytest.approx(objective(P, Q, met, **rules) / met.sum(), rel=1e-9)
        assert loss < before
        before = loss
    assert learner.P.numpy() == pytest.approx(P, abs=1e-9)
    assert learner.Q.numpy() == pytest.approx(Q, abs=1e-9)
    assert all_scores(learner, demo) == pytest.approx(P @ Q.T, abs=1e-9)


def test_what_is_gathered_at_once_changes_nothing(demo, monkeypatch):
    whole = model(demo)
    whole.train_round(1)
    monkeypatch.setattr(ials, "_NUMBERS_AT_ONCE", 50)
    pieces = model(demo)
    assert sum(1 for _ in pieces.of_users.pieces(6)) > len(demo) / 2
    pieces.train_round(1)
    assert pieces.Q.numpy() == pytest.approx(whole.Q.numpy(), abs=1e-12)


def test_candidates_and_the_catalogue_have_the_same_scores(demo):
    learner = model(demo)
    learner.train_round(1)
    items = demo.candidates["test"]
    some = learner.scores(demo.everyone, items)
    assert some.numpy() == pytest.approx(np.take_along_axis(all_scores(learner, demo), items.numpy(), 1))


def test_what_rounding_makes_unsolvable_diverges():
    torch.set_default_dtype(torch.float32)
    # Two users and six numbers: all but two directions have the pull alone.
    learner = model(clients_with([[0, 1], [1]], items=2), alpha=1e6, penalty=1e-6, nu=0.0, spread=1e3)
    with pytest.raises(DivergenceError, match="Raise penalty"):
        learner.train_round(1)
