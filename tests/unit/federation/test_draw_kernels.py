"""Draws by kernels are those by torch, whoever computes them."""

import pytest
import torch

from fedrec.federation import draw_kernels, draws
from fedrec.federation.pairs import PairSet, aranges
from fedrec.native.kernel import Kernel
from fedrec.native.shuffle import PHILOX, SHUFFLE
from fedrec.native.source import KernelSource
from fedrec.random.purpose import Purpose
from fedrec.random.with_torch import philox
from tests.lanes import CudaCompiler, LanesKernel, with_two_threads

CPU = torch.device("cpu")
SIZES = [0, 1, 2, 3, 4, 5, 7, 8, 31, 64, 65, 100, 0, 255, 256, 257, 999, 1]


def in_torch(who, size, seed, round_, first, epochs, purpose):
    """The orders by torch, of each client's own samples."""
    start = torch.repeat_interleave(size.cumsum(0) - size, size)
    later = range(first, first + epochs)
    every = [draws.shuffled_in_torch(who, size, seed, round_, epoch, purpose) - start for epoch in later]
    return torch.stack(every).to(torch.int32)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**40 + 5, 2**63 - 1])
def test_orders_are_those_of_torch(seed):
    generator = torch.Generator().manual_seed(seed % 1000)
    sizes = torch.cat((torch.tensor([*SIZES, 12_000]), torch.randint(0, 3000, (30,), generator=generator)))
    who = torch.randperm(10**6, generator=generator)[: len(sizes)]
    case = (who, sizes, seed, 3 + seed % 7, seed % 5, 3, Purpose.SHUFFLE)
    expected = in_torch(*case)
    kernel = Kernel(draw_kernels.SHUFFLE_KERNEL, CPU)
    assert torch.equal(draw_kernels.orders_by_kernel(kernel, *case), expected)
    assert torch.equal(with_two_threads(lambda: draw_kernels.orders_by_kernel(kernel, *case)), expected)
    assert torch.equal(draws.orders(*case), expected)


def test_lanes_together_give_the_same_orders():
    case = (torch.arange(40, 40 + len(SIZES)), torch.tensor(SIZES), 2**40 + 5, 3, 2, 2, Purpose.SHUFFLE)
    for lanes in (32, 64):
        kernel = LanesKernel(draw_kernels.SHUFFLE_KERNEL, lanes)
        assert torch.equal(draw_kernels.orders_by_kernel(kernel, *case), in_torch(*case))


def test_nobody_has_no_order():
    nobody = torch.empty(0, dtype=torch.int64)
    assert draws.orders(nobody, nobody, 0, 1, 0, 2).shape == (2, 0)
    assert draws.shuffled(nobody, nobody, 0, 1, 0).shape == (0,)


FEW_WORDS = """
INLINE void philox(word32* words, word64 place, word32 user, word32 round, word32 purpose, word64 seed) {
  for (int lane = 0; lane < 4; lane++) words[lane] = ((word32)place * 7 + lane * 3) % 5 * 0x30000000u;
}
"""


def test_equal_words_stay_in_order():
    """Such draws never come about by chance in a test: they are made."""
    few = KernelSource(
        "orders",
        draw_kernels.SHUFFLE_KERNEL.parameters,
        draw_kernels.SHUFFLE_KERNEL.body,
        FEW_WORDS + SHUFFLE,
    )
    size = 77
    words = [(quad * 7 + lane * 3) % 5 for quad in range(size // 4 + 1) for lane in range(4)][:size]
    expected = sorted(range(size), key=lambda sample: words[sample])
    case = (torch.tensor([5]), torch.tensor([size]), 0, 1, 0, 1, Purpose.SHUFFLE)
    for kernel in (Kernel(few, CPU), LanesKernel(few)):
        assert draw_kernels.orders_by_kernel(kernel, *case).tolist() == [expected]


def made_clients(seed, clients, items, most, spared=20):
    """Training items of some clients, and what each may not draw: all but `spared` items at most."""
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(0, most, (clients,), generator=generator)
    start = torch.cat((torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)))
    refused = [
        torch.randperm(items, generator=generator)[: int(size)]
        for size in torch.randint(0, items - spared, (clients,), generator=generator)
    ]
    owner = torch.repeat_interleave(torch.arange(clients), torch.tensor([len(each) for each in refused]))
    forbidden = PairSet.of(owner, torch.cat(refused), clients, items)
    return start, torch.randint(0, items, (int(start[-1]),), generator=generator), forbidden


def samples_in_torch(who, start, train_item, forbidden, count, seed, round_, purpose):
    """Training items and their negatives by torch."""
    size = start.diff()[who]
    owner = torch.repeat_interleave(torch.arange(len(who)), size)
    positive = train_item[start[who][owner] + aranges(size)]
    drawn = draws.negatives(who[owner], aranges(size), forbidden, count, seed, round_, purpose)
    return torch.cat((positive.unsqueeze(1), drawn), dim=1)


@pytest.mark.parametrize("count", [0, 1, 4, 20])
@pytest.mark.parametrize("seed", [0, 2**40 + 5])
def test_samples_are_those_of_torch(seed, count):
    for clients, items, most in ((1, 21, 9), (13, 50, 40), (40, 3000, 300)):
        made = made_clients(seed % 1000 + items, clients, items, most)
        who = torch.arange(clients)[clients // 3 :]
        case = (who, *made, count, seed, 5, Purpose.LATE_NEGATIVES)
        expected = samples_in_torch(*case)
        kernel = Kernel(draw_kernels.SAMPLE_KERNEL, CPU)
        assert torch.equal(draw_kernels.samples(kernel, *case), expected)
        assert torch.equal(with_two_threads(lambda: draw_kernels.samples(kernel, *case)), expected)  # noqa: B023
        if clients < 40:
            assert torch.equal(draw_kernels.samples(LanesKernel(draw_kernels.SAMPLE_KERNEL), *case), expected)


def test_words_of_places_beyond_32_bits_are_those_of_torch():
    words = KernelSource(
        "words",
        (("const integer*", "place"), ("int*", "word")),
        "philox((word32*)word + 4 * item, (word64)place[item], 9, 4, 7, 12345678901ull);",
        PHILOX,
    )
    place = torch.tensor([0, 1, 2**31, 2**32 - 1, 2**32, 2**40 + 77])
    word = torch.empty(len(place), 4, dtype=torch.int32)
    Kernel(words, CPU)(len(place), place=place, word=word)
    expected = philox(place, torch.full_like(place, 9), 4, 7, 12345678901)
    assert torch.equal(word.long() & 0xFFFFFFFF, expected)


@pytest.mark.parametrize(
    "source", [draw_kernels.SHUFFLE_KERNEL, draw_kernels.SAMPLE_KERNEL], ids=lambda each: each.name
)
def test_a_gpu_takes_the_kernel(source):
    assert CudaCompiler().refusal(source) == ""


@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 2500])
@pytest.mark.parametrize("seed", [0, 2**40 + 5, 2**63 - 1])
def test_first_words_are_those_of_torch(count, seed):
    generator = torch.Generator().manual_seed(count)
    place, user = (torch.randint(0, bound, (count,), generator=generator) for bound in (2**40, 2**31))
    case = (place, user, seed, 7, Purpose.PARTICIPANTS)
    expected = philox(place, user, 7, int(Purpose.PARTICIPANTS), seed)[:, 0]
    assert torch.equal(draws.first_words(*case), expected)
    for lanes in (32, 64):
        kernel = LanesKernel(draw_kernels.FIRST_WORDS_KERNEL, lanes)
        assert torch.equal(draw_kernels.first_words_by_kernel(kernel, *case), expected)
