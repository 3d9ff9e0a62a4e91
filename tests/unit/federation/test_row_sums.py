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
        source = ADD_ROWS[torch.float64]
        for kernel in (Kernel(source, CPU), LanesKernel(source, 32), LanesKernel(source, 64)):
            total = start.clone()
            add_rows_by(kernel, total, item, values)
            assert torch.allclose(total, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_rows_are_added_in_double_precision(dtype):
    start, item, values = made(700, 12, 16)
    rows, weight = values.to(dtype), torch.linspace(-1, 3, 9, dtype=torch.float64)
    owner = torch.arange(700) * 9 // 700
    expected, plain, by_kernel, by_lanes = (start.clone() for _ in range(4))
    add_rows(expected, item, rows.double() * weight[owner].unsqueeze(1))
    add_weighted_rows(plain, item, rows, weight, owner)
    add_weighted_rows_by(Kernel(ADD_WEIGHTED[dtype], CPU), by_kernel, item, rows, weight, owner)
    add_rows_by(LanesKernel(ADD_ROWS[dtype]), by_lanes, item, rows, weight, owner)
    assert torch.equal(plain, expected)
    assert torch.equal(by_kernel, expected)
    assert torch.allclose(by_lanes, expected, rtol=1e-13, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_as_they_are_add_up_to_their_changes(dtype):
    start, item, values = made(700, 12, 16)
    rows, before = values.to(dtype), torch.linspace(-2, 2, 12 * 16).reshape(12, 16).to(dtype)
    weight, owner = torch.tensor([0.25, 0.0, 2.0], dtype=torch.float64), torch.arange(700) % 3
    expected, plain, by_lanes = (start.clone() for _ in range(3))
    add_weighted_rows(expected, item, rows - before[item], weight, owner)
    add_weighted_rows(plain, item, rows, weight, owner, before)
    add_rows_by(LanesKernel(ADD_ROWS[dtype]), by_lanes, item, rows, weight, owner, before)
    assert torch.equal(plain, expected)
    assert torch.allclose(by_lanes, expected, rtol=1e-13, atol=1e-12)


def test_items_beyond_16_bits_are_added_too():
    items = 2**15 + 3
    item = torch.tensor([items - 1, 0, 2**15, 2**15 - 1, items - 1])
    total = torch.zeros(items, 1, dtype=torch.float64)
    add_rows_by(
        Kernel(ADD_ROWS[torch.float64], CPU), total, item, torch.arange(1.0, 6.0).double().unsqueeze(1)
    )
    assert {place: number for place, number in enumerate(total.flatten().tolist()) if number} == {
        0: 2.0, 2**15 - 1: 4.0, 2**15: 3.0, items - 1: 6.0,
    }  # fmt: skip


def test_lanes_add_in_one_order():
    start, item, values = made(2000, 5, 7)
    totals = [start.clone() for _ in range(4)]
    for total in totals:
        add_rows_by(LanesKernel(ADD_ROWS[torch.float64]), total, item, values)
    assert all(torch.equal(total, totals[0]) for total in totals)


@pytest.mark.parametrize("dtype", ADD_ROWS, ids=str)
def test_a_gpu_takes_the_kernel(dtype):
    assert CudaCompiler().refusal(ADD_ROWS[dtype]) == ""
