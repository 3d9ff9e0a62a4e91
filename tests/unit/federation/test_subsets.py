"""Means over subsets of clients, by sums of all choices of a few: those of a plain product."""

import pytest
import torch

from fedrec.federation.server import subsets
from fedrec.federation.server.subsets import mixed_by_subsets


def some(clients):
    """Equal weights for about half of all clients; the first mean is of one alone, the second of all."""
    chosen = torch.rand(clients, clients) > 0.5
    chosen[0], chosen[1] = torch.arange(clients) == 3, True
    return chosen.double() / chosen.sum(1, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("clients", "columns"), [(64, 7), (96, 32), (101, 70)])
def test_means_are_those_of_a_product(clients, columns, dtype):
    values, weights = torch.randn(clients, columns, dtype=dtype), some(clients).to(dtype)
    expected = weights.double() @ values.double()
    assert mixed_by_subsets(values, weights)
    assert torch.allclose(values.double(), expected, atol=1e-6 if dtype == torch.float32 else 1e-13)


@pytest.mark.parametrize("reason", ["weights that differ", "few clients", "no compiler"])
def test_where_it_is_not_for_this_values_stay_as_they_are(reason, monkeypatch):
    values, weights = torch.randn(70, 5), some(70).float()
    if reason == "weights that differ":
        weights[2, :2] = torch.tensor([0.25, 0.75])
    if reason == "few clients":
        values, weights = values[:40], some(40).float()
    if reason == "no compiler":
        monkeypatch.setattr(subsets, "kernel_or_none", lambda *_: None)
    before = values.clone()
    assert not mixed_by_subsets(values, weights)
    assert torch.equal(values, before)
