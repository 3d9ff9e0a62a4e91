"""Rows held by kernels are those by torch, whoever computes them."""

import pytest
import torch

from fedrec.federation.active_rows import (
    COUNT_ROWS,
    FILL_ROWS,
    ClientSamples,
    active_rows,
    active_rows_by,
    active_rows_in_torch,
)
from fedrec.native.kernel import Kernel
from tests.lanes import CudaCompiler, LanesKernel, with_two_threads

CPU = torch.device("cpu")


def sampled(item, size, clients):
    """The samples of `clients`, in this order, of all whose samples stand behind each other."""
    total = size[clients].sum()
    start = torch.cat((total.new_zeros(1), size[clients].cumsum(0)))
    return ClientSamples(item, (size.cumsum(0) - size)[clients], size[clients], start, int(total))


def made(seed, clients, items, most):
    """Samples of two thirds of all clients, in any order."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.randint(0, most, (clients,), generator=generator)
    some = torch.randperm(clients, generator=generator)[: -(-2 * clients // 3)]
    return sampled(torch.randint(0, items, (int(size.sum()),), generator=generator), size, some), items


def test_each_item_of_a_client_is_held_once_and_in_order():
    item, size = torch.tensor([7, 2, 7, 40, 2, 0]), torch.tensor([4, 0, 2])
    held = active_rows(sampled(item, size, torch.arange(3)), 41)
    assert held.row_item.tolist() == [2, 7, 40, 0, 2]
    assert held.row_client.tolist() == [0, 0, 0, 2, 2]
    assert held.row_start.tolist() == [0, 3, 3, 5]
    assert held.own.tolist() == [1, 0, 1, 2, 1, 0]


def test_clients_are_held_in_the_order_they_are_asked_for():
    item, size = torch.tensor([7, 2, 7, 40, 2, 0]), torch.tensor([4, 0, 2])
    held = active_rows(sampled(item, size, torch.tensor([2, 0])), 41)
    assert held.row_item.tolist() == [0, 2, 2, 7, 40]
    assert held.row_client.tolist() == [0, 0, 1, 1, 1]
    assert held.own.tolist() == [1, 0, 1, 0, 1, 2]


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_those_of_torch(seed):
    kernels = Kernel(COUNT_ROWS, CPU), Kernel(FILL_ROWS, CPU)
    for clients, items, most in ((0, 9, 5), (1, 1, 3), (7, 32, 50), (5, 33, 4), (60, 5000, 900)):
        case = made(seed, clients, items, most)
        expected = active_rows_in_torch(*case)
        for found in (
            active_rows_by(*kernels, *case),
            with_two_threads(lambda: active_rows_by(*kernels, *case)),  # noqa: B023
        ):
            assert all(map(torch.equal, found, expected))


def test_lanes_together_find_the_same_rows():
    kernels = LanesKernel(COUNT_ROWS), LanesKernel(FILL_ROWS)
    for clients, items, most in ((1, 1, 3), (4, 70, 30), (6, 5000, 900)):
        case = made(9, clients, items, most)
        assert all(map(torch.equal, active_rows_by(*kernels, *case), active_rows_in_torch(*case)))


@pytest.mark.parametrize("source", [COUNT_ROWS, FILL_ROWS], ids=lambda each: each.name)
def test_a_gpu_takes_the_kernel(source):
    assert CudaCompiler().refusal(source) == ""
