"""Sums over bags of rows: torch's own, in the order of the bags' places; and of parts of bags first."""

import pytest
import torch
from torch.nn import functional

from fedrec.methods._math import row_sums
from fedrec.methods._math.row_sums import BLOCK_LANES, RowSums, lanes_of_sum, row_sum_kernel, sums_by
from tests.lanes import CudaCompiler, LanesKernel


def plain(table, chosen, sizes):
    return torch.stack([sum(table[rows], torch.zeros_like(table[0])) for rows in chosen.split(sizes)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 16])
def test_sums_are_those_of_plain_additions(width, dtype):
    table, chosen, sizes = torch.randn(9, width, dtype=dtype), torch.randint(9, (40,)), [0, 7, 1, 32]
    assert torch.equal(RowSums.of(chosen, torch.tensor(sizes)).sums(table), plain(table, chosen, sizes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [3, 16, 300])
def test_lanes_of_a_gpu_add_in_the_same_order(width, dtype):
    table, chosen, sizes = torch.randn(9, width, dtype=dtype), torch.randint(9, (110,)), [0, 7, 1, 32, 70]
    kernel = LanesKernel(row_sum_kernel(width, dtype, on_gpu=True), BLOCK_LANES)
    made, at_once = RowSums.of(chosen, torch.tensor(sizes)), BLOCK_LANES // lanes_of_sum(width, dtype)
    sums = sums_by(kernel, table, made.chosen, made.first, at_once)
    assert torch.equal(sums, plain(table, chosen, sizes))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gpu_takes_the_kernel(dtype):
    assert CudaCompiler().refusal(row_sum_kernel(16, dtype, on_gpu=True), BLOCK_LANES) == ""


@pytest.mark.usefixtures("double_precision")
@pytest.mark.parametrize("sizes", [[0, 31, 32, 33, 0, 200, 1, 0], [0, 0], [64]])
def test_sums_of_parts_add_up(sizes):
    table, chosen = torch.randn(9, 4), torch.randint(9, (sum(sizes),))
    whole = RowSums.of(chosen, torch.tensor(sizes))
    parts = whole.in_parts()
    assert torch.allclose(parts.sums(table), whole.sums(table), rtol=1e-12, atol=1e-12)
    assert (parts.first.diff() <= 32).all()


def test_without_a_compiler_sums_are_the_same(monkeypatch):
    table, chosen, sizes = torch.randn(5, 4), torch.randint(5, (12,)), torch.tensor([6, 6])
    made = RowSums.of(chosen, sizes)
    compiled = made.sums(table)
    monkeypatch.setattr(row_sums, "kernel_or_none", lambda *_: None)
    assert torch.allclose(made.sums(table), compiled)
    assert torch.allclose(functional.embedding_bag(chosen, table, torch.tensor([0, 6]), mode="sum"), compiled)
