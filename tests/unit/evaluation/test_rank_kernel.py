"""Ranks by a kernel are those by torch, whoever computes them."""

from types import SimpleNamespace

import pytest
import torch

from fedrec.evaluation.rank_kernel import FIRST_RANKS, RANKS, first_ranks_by, ranks_by
from fedrec.evaluation.ranking import rank_of_target
from fedrec.evaluation.scoring import HELD_OUT_PARTS, ranks_in_torch
from fedrec.federation.clients import Clients
from fedrec.native.kernel import Kernel
from tests.lanes import CudaCompiler, LanesKernel, with_two_threads

CPU = torch.device("cpu")
SPECIAL = [0.0, -0.0, torch.inf, -torch.inf, 1e-40, 2e-40, -1e-40, torch.nan]


def made(seed, clients, items, dtype, ties):
    """Clients with training items, some of them twice, and scores of which many are equal or special."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, items, (clients,), generator=generator)
    whole = Clients(
        protocol=SimpleNamespace(rank_ties=ties),
        items=items,
        user=torch.arange(clients),
        start=torch.cat((torch.zeros(1, dtype=torch.int64), sizes.cumsum(0))),
        train_item=torch.randint(0, items, (int(sizes.sum()),), generator=generator),
        held_out={part: torch.randint(0, items, (clients,), generator=generator) for part in HELD_OUT_PARTS},
        candidates={},
        forbidden=None,
    )
    scores = torch.randint(-6, 6, (clients, items), generator=generator).to(dtype)
    for value in SPECIAL:
        rare = 0.002 if value != value else 0.03
        scores[torch.rand(scores.shape, generator=generator) < rare] = value
    return whole, scores


def by_kernel(kernel, clients, scores, who):
    held_out = clients.held_out["validation"], clients.held_out["test"]
    case = (int(who[0]), clients.start, clients.train_item, held_out, clients.protocol.rank_ties)
    return ranks_by(kernel, scores[who], *case)


@pytest.mark.parametrize("ties", ["target_last", "target_mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_are_those_of_torch(dtype, ties):
    kernel = Kernel(RANKS[dtype], CPU)
    broken = 0
    for seed, (count, items) in enumerate(((1, 1), (9, 5), (40, 64), (30, 200), (5, 1000))):
        clients, scores = made(seed, count, items, dtype, ties)
        who = clients.everyone[count // 3 :]
        expected = ranks_in_torch(scores[who], clients, who)
        broken += int(scores.isnan().any(1).sum())
        assert torch.equal(by_kernel(kernel, clients, scores, who), expected)
        two = with_two_threads(lambda: by_kernel(kernel, clients, scores, who))  # noqa: B023
        assert torch.equal(two, expected)
        if count < 10:
            assert torch.equal(by_kernel(LanesKernel(RANKS[dtype]), clients, scores, who), expected)
    assert broken


@pytest.mark.parametrize("ties", ["target_last", "target_mean"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ranks_of_first_scores_are_those_of_torch(dtype, ties):
    kernel, broken = Kernel(FIRST_RANKS[dtype], CPU), 0
    for seed, (count, items) in enumerate(((1, 1), (9, 5), (40, 101), (7, 300))):
        _, scores = made(seed, count, items, dtype, ties)
        expected = rank_of_target(scores[:, 0], scores[:, 1:], ties)
        broken += int(scores.isnan().any(1).sum())
        assert torch.equal(first_ranks_by(kernel, scores, ties), expected)
        assert torch.equal(with_two_threads(lambda: first_ranks_by(kernel, scores, ties)), expected)  # noqa: B023
        if count < 10:
            assert torch.equal(first_ranks_by(LanesKernel(FIRST_RANKS[dtype]), scores, ties), expected)
    assert broken


@pytest.mark.parametrize("dtype", RANKS)
@pytest.mark.parametrize("sources", [RANKS, FIRST_RANKS], ids=["in the catalogue", "of first scores"])
def test_a_gpu_takes_the_kernel(sources, dtype):
    assert CudaCompiler().refusal(sources[dtype]) == ""
