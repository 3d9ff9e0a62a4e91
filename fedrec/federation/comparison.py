"""Comparison of two learners: all the numbers that they store, and their relative differences."""

from collections.abc import Mapping

import torch
from torch import Tensor

from fedrec.federation.federation import Federation
from fedrec.federation.learner import Learner

_CPU = torch.device("cpu")


def learnt_values(learner: Learner, device: torch.device = _CPU) -> dict[str, Tensor]:
    """All numbers that a learner stores, by name; tables kept by clients as whole tables."""
    stored = dict(learner.tensors())
    if isinstance(learner, Federation):
        everyone = torch.arange(len(learner.clients), device=device)
        stored = {key: value for key, value in stored.items() if not key.startswith("kept/")}
        stored |= {
            f"kept/{name}": kept.whole(everyone) for name, kept in learner.state.client_tensors.items()
        }
    return stored


def relative_differences(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, float]:
    """The largest difference of each pair of tensors, relative to the largest number of the first.

    It is infinite if the shapes differ, or if other numbers are finite.
    """
    assert first.keys() == second.keys()
    return {name: _share(value.double(), second[name].double()) for name, value in first.items()}


def _share(expected: Tensor, actual: Tensor) -> float:
    if expected.shape != actual.shape:
        return float("inf")
    finite = expected.isfinite()
    if not torch.equal(finite, actual.isfinite()):
        return float("inf")
    expected, actual = expected[finite], actual[finite]
    if not len(expected):
        return 0.0
    return float((expected - actual).abs().max() / expected.abs().max().clamp(min=1e-12))
