"""Sums over bags of rows: torch's own, in the order of the bags' places."""

from itertools import pairwise

import pytest
import torch
from torch.nn import functional

from fedrec.methods._math import bags


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 16])
def test_sums_are_those_of_plain_additions(width, dtype):
    table, chosen = torch.randn(9, width, dtype=dtype), torch.randint(9, (40,))
    first = torch.tensor([0, 0, 7, 8, 40])
    expected = torch.stack(
        [sum(table[chosen[begin:end]], torch.zeros(width, dtype=dtype)) for begin, end in pairwise(first)]
    )
    assert torch.equal(bags.bag_sums(table, chosen, first), expected)


def test_without_a_compiler_sums_are_the_same(monkeypatch):
    table, chosen, first = torch.randn(5, 4), torch.randint(5, (12,)), torch.tensor([0, 6, 12])
    compiled = bags.bag_sums(table, chosen, first)
    monkeypatch.setattr(bags, "kernel_or_none", lambda *_: None)
    assert torch.allclose(bags.bag_sums(table, chosen, first), compiled)
    assert torch.allclose(functional.embedding_bag(chosen, table, first[:-1], mode="sum"), compiled)
