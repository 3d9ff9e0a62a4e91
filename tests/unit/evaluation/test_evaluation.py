import math

import numpy as np
import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.evaluation.metrics import METRICS, activity_groups, metrics_of, per_user
from fedrec.evaluation.ranking import rank_in_catalogue, rank_of_target

NAN = float("nan")


@pytest.mark.parametrize(
    ("target", "others", "last", "mean"),
    [
        (3.0, [1.0, 2.0], 1, 1),
        (1.0, [1.5, 2.0, 0.5], 3, 3),
        (1.0, [1.0, 1.0, 0.0], 3, 2),
        (1.0, [2.0, 1.0, 0.0], 3, 2.5),
        (NAN, [1.0, 2.0], 3, 3),
        (5.0, [NAN, 2.0], 3, 3),
        (NAN, [NAN, NAN], 3, 3),
        (math.inf, [math.inf, 0.0], 2, 1.5),
    ],
)
def test_ranks_by_hand(target, others, last, mean):
    scores = torch.tensor([target]), torch.tensor([others])
    assert rank_of_target(*scores, "target_last").tolist() == [last]
    assert rank_of_target(*scores, "target_mean").tolist() == [mean]


def test_saturated_probabilities_tie_and_the_target_loses():
    logits = torch.tensor([[40.0, 30.0, 20.0]])
    probability = torch.sigmoid(logits)
    assert rank_of_target(logits[:, 0], logits[:, 1:], "target_last").tolist() == [1]
    assert rank_of_target(probability[:, 0], probability[:, 1:], "target_last").tolist() == [3]


def test_ranks_in_the_catalogue_by_hand():
    scores = torch.tensor([[5.0, 4.0, 3.0, 2.0], [1.0, 1.0, 1.0, 9.0]])
    target = torch.tensor([2, 0])
    excluded = torch.tensor([[True, False, False, False], [False, False, False, True]])
    assert rank_in_catalogue(scores, target, excluded, "target_last").tolist() == [2, 3]
    assert rank_in_catalogue(scores, target, excluded, "target_mean").tolist() == [2, 2]
    # The target is ranked even where it is excluded, and an excluded NaN harms nobody.
    excluded[0, 2] = True
    scores[0, 0] = NAN
    assert rank_in_catalogue(scores, target, excluded, "target_last").tolist() == [2, 3]
    scores[0, 1] = NAN
    assert rank_in_catalogue(scores, target, excluded, "target_last").tolist()[0] == 3


def test_metrics_by_hand():
    found = metrics_of(np.array([1, 3, 6, 50], dtype=np.float32))
    assert found["hr@5"] == 0.5
    assert found["hr@10"] == found["hr@20"] == 0.75
    assert found["ndcg@5"] == pytest.approx((1 + 1 / 2) / 4)
    assert found["ndcg@10"] == pytest.approx((1 + 1 / 2 + math.log(2) / math.log(7)) / 4)
    assert found["mrr@10"] == pytest.approx((1 + 1 / 3 + 1 / 6) / 4)


def test_metrics_of_each_user_by_hand():
    ranks = np.array([1, 3, 7.5, 50], dtype=np.float32)
    assert per_user(ranks, "hr@3").tolist() == [1, 1, 0, 0]
    assert per_user(ranks, "ndcg@3").tolist() == pytest.approx([1, 0.5, 0, 0])
    assert per_user(ranks, "mrr@100").tolist() == pytest.approx([1, 1 / 3, 1 / 7.5, 1 / 50])
    assert metrics_of(ranks) == pytest.approx({metric: per_user(ranks, metric).mean() for metric in METRICS})


@pytest.mark.parametrize("metric", ["hit@10", "hr", "hr@", "hr@-1", "HR@10"])
def test_an_unknown_metric_is_an_error(metric):
    with pytest.raises(ConfigurationError, match=f"unknown metric '{metric}'"):
        per_user(np.ones(3, dtype=np.float32), metric)


def test_groups_by_activity_are_equal_in_size():
    assert activity_groups(np.array([5, 1, 9, 1, 7, 3]), 3).tolist() == [1, 0, 2, 0, 2, 1]
