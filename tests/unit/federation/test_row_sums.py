"""Sums of rows, item by item."""

import pytest
import torch

from fedrec.federation.server.row_sums import (
    ADD_ROWS,
    ADD_WEIGHTED,
    add_rows,
    add_rows_by,
    add_weighted_rows,
    add_weighted_rows_by,
)
from fedrec.native.kernel import Kernel
from tests.lanes import CudaCompiler, LanesKernel

CPU = torch.device("cpu")


def made(rows, items, width):
    generator = torch.Generator().manual_seed(rows)
    item = (torch.rand(rows, generator=generator) ** 3 * items).long()
    start = torch.rand(items, width, dtype=torch.float64, generator=generator)
    return start, item, torch.randn(rows, width, dtype=torch.float64, generator=generator)


@pytest.mark.parametrize("width", [1, 3, 16, 64, 100])
def test_every_row_is_added_once(width):
    for rows in (0, 1, 700):
        start, item, values = made(rows, 12, width)
        expected = start.clone()
        for at, row in zip(item.tolist(), values, strict=True):
            expected[at] += row
        plain = start.clone()
        add_rows(plain, item, values)
        assert torch.equal(plain, expected)
        for kernel in (Kernel(ADD_ROWS, CPU), LanesKernel(ADD_ROWS, 32), LanesKernel(ADD_ROWS, 64)):
            total = start.clone()
            add_rows_by(kernel, total, item, values)
            assert torch.allclose(total, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_rows_are_added_in_double_precision(dtype):
    start, item, values = made(700, 12, 16)
    rows, weight = values.to(dtype), torch.linspace(-1, 3, 700, dtype=torch.float64).unsqueeze(1)
    expected, plain, by_kernel = (start.clone() for _ in range(3))
    add_rows(expected, item, rows.double() * weight)
    add_weighted_rows(plain, item, rows, weight)
    add_weighted_rows_by(Kernel(ADD_WEIGHTED[dtype], CPU), by_kernel, item, rows, weight)
    assert torch.equal(plain, expected)
    assert torch.equal(by_kernel, expected)


def test_lanes_add_in_one_order():
    start, item, values = made(2000, 5, 7)
    totals = [start.clone() for _ in range(4)]
    for total in totals:
        add_rows_by(LanesKernel(ADD_ROWS), total, item, values)
    assert all(torch.equal(total, totals[0]) for total in totals)


def test_a_gpu_takes_the_kernel():
    assert CudaCompiler().refusal(ADD_ROWS) == ""
