"""Rows moved by kernels are those that torch moves."""

import pytest
import torch

from fedrec.federation.table_rows import PUT_ROWS, TAKE_ROWS, move_rows, put_rows, take_rows
from tests.lanes import CudaCompiler, LanesKernel


def made(rows, width, chosen):
    generator = torch.Generator().manual_seed(rows)
    table = torch.randn(rows, width, generator=generator)
    return table, torch.randperm(rows, generator=generator)[:chosen]


@pytest.mark.parametrize(("rows", "width", "chosen"), [(9, 4, 5), (3000, 12, 1300), (600, 16, 0)])
def test_lanes_together_move_what_torch_does(rows, width, chosen):
    table, index = made(rows, width, chosen)
    found = torch.empty(chosen, width)
    move_rows(LanesKernel(TAKE_ROWS), table, index, found)
    assert torch.equal(found, table[index])
    many = index.expand(3, chosen)
    found = torch.empty(3, chosen, width)
    move_rows(LanesKernel(TAKE_ROWS), table, many, found)
    assert torch.equal(found, table[many])
    expected, other = table.clone(), torch.randn(chosen, width)
    expected[index] = other
    move_rows(LanesKernel(PUT_ROWS), table, index, other)
    assert torch.equal(table, expected)


def test_rows_are_fetched_and_replaced():
    table, index = made(7, 3, 4)
    assert torch.equal(take_rows(table, index), table[index])
    assert torch.equal(take_rows(table, index.expand(2, 4)), table[index.expand(2, 4)])
    put_rows(table, index, torch.ones(4, 3))
    assert torch.equal(take_rows(table, index), torch.ones(4, 3))


@pytest.mark.parametrize("source", [TAKE_ROWS, PUT_ROWS], ids=lambda source: source.name)
def test_a_gpu_takes_the_kernels(source):
    assert CudaCompiler().refusal(source) == ""
