"""EASE: the closed form, regressions of one item after the other, and FedEASE."""

import numpy as np
import pytest
import torch

from fedrec.errors import DivergenceError
from fedrec.runs.divergence import DivergenceTolerant
from tests.by_hand import clients_with
from tests.federations import all_scores, learner_of, met_by

pytestmark = pytest.mark.usefixtures("double_precision")


def trained(clients, *changes, name="ease"):
    learner = learner_of(name, clients, *changes)
    learner.train_round(1)
    return learner


def test_weights_by_hand():
    # X^T X + 2 I = [[4, 1], [1, 3]], whose inverse is [[3, -1], [-1, 4]] / 11.
    learner = trained(clients_with([[0, 1], [0]], items=2), "penalty=2")
    assert learner.weights.tolist() == [[0, pytest.approx(1 / 4)], [pytest.approx(1 / 3), 0]]
    # A user's scores are sums over the rows of its items.
    assert all_scores(learner, learner.clients) == pytest.approx(np.array([[1 / 3, 1 / 4], [0, 1 / 4]]))


def test_the_closed_form_of_the_paper(demo):
    met = met_by(demo)
    inverse = np.linalg.inv(met.T @ met + 20 * np.eye(demo.items))
    expected = np.eye(demo.items) - inverse @ np.diag(1 / np.diag(inverse))
    learner = trained(demo, "penalty=20")
    assert learner.weights.numpy() == pytest.approx(expected, abs=1e-10)
    assert all_scores(learner, demo) == pytest.approx(met @ expected, abs=1e-10)


def test_every_column_is_the_ridge_regression_of_an_item_on_all_others(demo):
    met, weights = met_by(demo), trained(demo, "penalty=20").weights.numpy()
    for item in range(demo.items):
        others = np.delete(np.arange(demo.items), item)
        known = met[:, others]
        solved = np.linalg.solve(known.T @ known + 20 * np.eye(len(others)), known.T @ met[:, item])
        assert weights[others, item] == pytest.approx(solved, abs=1e-10)
        assert weights[item, item] == 0


def test_federated_it_is_the_same(demo):
    federated = all_scores(trained(demo, "penalty=20", name="fedease"), demo)
    assert all_scores(trained(demo, "penalty=20"), demo) == pytest.approx(federated, abs=1e-9)


def test_noise_that_leaves_no_solution_is_a_divergence(demo):
    changes = ("penalty=1", "ldp=100")
    with pytest.raises(DivergenceError, match=r"^round 1: .*no solution.* Lower ldp, or raise penalty\.$"):
        trained(demo, *changes, name="fedease")
    kept = DivergenceTolerant(learner_of("fedease", demo, *changes))
    kept.train_round(1)
    assert kept.notes(1)["diverged"]["round"] == 1
    assert np.isnan(all_scores(kept, demo)).all()


def test_single_precision_is_enough(demo):
    exact = all_scores(trained(demo), demo)
    torch.set_default_dtype(torch.float32)
    learner = trained(demo)
    assert learner.weights.dtype == torch.float32
    assert learner.weights.is_contiguous()
    assert all_scores(learner, demo) == pytest.approx(exact, abs=1e-5)
