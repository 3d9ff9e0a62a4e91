import math

import numpy as np
import pytest

from fedrec.errors import ConfigurationError
from fedrec.evaluation.metrics import METRICS, activity_groups, metrics_of, per_user


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
