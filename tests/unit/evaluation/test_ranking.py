import math

import pytest
import torch

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
