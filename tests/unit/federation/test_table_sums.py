"""Sums over whole tables, by kernels as a GPU runs them."""

import pytest
import torch

from fedrec.federation.table_sums import (
    SUM_SQUARES,
    SUM_WEIGHTED,
    add_weighted_sum_by,
    per_table_sums,
    segment_sums,
    sum_squares_by,
)
from tests.lanes import CudaCompiler, LanesKernel


@pytest.mark.parametrize("width", [1, 6, 32])
def test_squares_of_stretches_of_rows(width):
    rows = torch.randn(150, width)
    starts = torch.tensor([0, 0, 3, 120, 150])
    expected = torch.stack([part.double().square().sum() for part in rows.split([0, 3, 117, 30])])
    by_lanes = sum_squares_by(LanesKernel(SUM_SQUARES, 64), rows, starts)
    for found in (segment_sums(rows, starts, 2), by_lanes):
        assert torch.allclose(found.squeeze(1), expected, rtol=1e-12)
    assert torch.equal(by_lanes, sum_squares_by(LanesKernel(SUM_SQUARES, 64), rows, starts))


def test_whole_tables_are_stretches_of_their_rows():
    tables = torch.randn(5, 7, 4)
    for power in (1, 2):
        found = segment_sums(tables.flatten(0, 1), torch.arange(6) * 7, power)
        assert torch.allclose(per_table_sums(tables, power), found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shape", [(1,), (70, 16), (3, 5)])
def test_weighted_sums_are_added_to_what_is_there(shape):
    values, weight = torch.randn(9, *shape), torch.rand(9)
    total = torch.ones(shape, dtype=torch.float64)
    expected = 1 + torch.tensordot(weight.double(), values.double(), 1)
    add_weighted_sum_by(LanesKernel(SUM_WEIGHTED, 256), total, values, weight)
    assert torch.allclose(total, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("source", [SUM_SQUARES, SUM_WEIGHTED])
def test_a_gpu_takes_the_kernels(source):
    assert CudaCompiler().refusal(source) == ""
