"""Kernels are compiled once, called on tensors, and refused in words where they cannot be compiled."""

import logging
import shutil
import sys

import pytest
import torch

from fedrec.errors import NoCompilerError
from fedrec.native import on_cpu
from fedrec.native.kernel import Kernel, kernel_or_none
from fedrec.native.source import KernelSource
from tests.lanes import CudaCompiler, LanesKernel, with_two_threads

CPU = torch.device("cpu")
SUMS = KernelSource(
    "sums",
    (
        ("const real*", "x"), ("integer", "width"), ("double", "factor"), ("real*", "total"),
        ("int*", "before"), ("int*", "taken"), ("int*", "marked"),
    ),
    """
  real own = 0;
  for (integer at = LANE; at < width; at += LANES) own += x[item * width + at];
  real sum = SUM(own);
  if (LANE == 0) total[item] = (real)(sum * factor);
  before[item * LANES + LANE] = BEFORE(LANE + 1);
  TAKE(taken + item, 2);
  MARK((word32*)marked + item, 1u << (LANE & 31));
""",
)  # fmt: skip


def sums(called, rows, lanes=1, factor=0.5):
    """What the kernel above makes of rows of whole numbers, which any order adds up to the same."""
    x = torch.arange(rows * 37, dtype=torch.float32).reshape(rows, 37)
    total, before = torch.zeros(rows), torch.zeros(rows, lanes, dtype=torch.int32)
    taken, marked = (torch.zeros(rows, dtype=torch.int32) for _ in range(2))
    called(rows, x=x, width=37, factor=factor, total=total, before=before, taken=taken, marked=marked)
    assert torch.equal(total, x.sum(1) * factor)
    return before, taken, marked


def test_a_kernel_is_called_on_tensors_and_numbers():
    before, taken, marked = sums(Kernel(SUMS, CPU), 50)
    assert not before.any()
    assert (taken == 2).all()
    assert (marked == 1).all()
    sums(Kernel(SUMS, CPU), 0)


def test_two_threads_give_the_same_bytes():
    assert Kernel(SUMS, CPU).workers(50) == 1
    assert with_two_threads(lambda: Kernel(SUMS, CPU).workers(50)) == 2
    assert with_two_threads(lambda: Kernel(SUMS, CPU).workers(1)) == 1
    alone, together = sums(Kernel(SUMS, CPU), 500), with_two_threads(lambda: sums(Kernel(SUMS, CPU), 500))
    assert all(map(torch.equal, alone, together))


@pytest.mark.parametrize("lanes", [32, 64])
def test_lanes_work_together(lanes):
    before, taken, marked = sums(LanesKernel(SUMS, lanes), 3, lanes)
    assert before.tolist() == [[lane * (lane + 1) // 2 for lane in range(lanes)]] * 3
    assert (taken == 2 * lanes).all()
    assert (marked == -1).all()


def test_numbers_may_be_double():
    x = torch.tensor([[1.0, 2.0**-40]], dtype=torch.float64)
    total, whole = torch.zeros(1, dtype=torch.float64), torch.zeros(1, dtype=torch.int32)
    precise = KernelSource("sums", SUMS.parameters, SUMS.body, double=True)
    rest = {"before": whole, "taken": whole, "marked": whole}
    Kernel(precise, CPU)(1, x=x, width=2, factor=1.0, total=total, **rest)
    assert total.item() == 1 + 2.0**-40


def test_a_kernel_is_compiled_once(own_cache, monkeypatch):
    Kernel(SUMS, CPU)
    (library,) = own_cache.glob("sums-*.so")
    assert (own_cache / f"{library.name}.txt").read_text() == SUMS.for_cpu()
    on_cpu.cpu_kernel.cache_clear()
    monkeypatch.setattr(on_cpu, "_compile", lambda *_: pytest.fail("it is compiled again"))
    sums(Kernel(SUMS, CPU), 5)


def test_another_text_is_another_kernel(own_cache):
    for body in ("x[item] = 1;", "x[item] = 2;"):
        x = torch.zeros(3)
        Kernel(KernelSource("fill", (("real*", "x"),), body), CPU)(3, x=x)
        assert x.tolist() == [float(body[10])] * 3
    assert len(list(own_cache.glob("fill-*.so"))) == 2


def test_other_flags_are_another_kernel(own_cache, monkeypatch):
    for further in ("-O1", "-O0 -g0"):
        monkeypatch.setenv(on_cpu.FLAGS, further)
        assert on_cpu.flags()[-len(further.split()) :] == tuple(further.split())
        on_cpu.cpu_kernel.cache_clear()
        sums(Kernel(SUMS, CPU), 5)
    assert len(list(own_cache.glob("sums-*.so"))) == 2


def test_flags_of_gcc_are_not_for_clang(monkeypatch):
    for version, meant in (("cc (Debian 12.2.0-14) 12.2.0", True), ("Apple clang version 17.0.0", False)):
        monkeypatch.setattr(on_cpu, "_version", lambda version=version: version)
        assert ("-fvect-cost-model=dynamic" in on_cpu.flags()) == meant


@pytest.mark.usefixtures("own_cache")
def test_without_a_compiler_the_reason_is_told_once(monkeypatch, caplog):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(on_cpu.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NoCompilerError, match="there is no C compiler"):
        Kernel(SUMS, CPU)
    other = KernelSource("other", (), "")
    with caplog.at_level(logging.WARNING):
        assert [kernel_or_none(each, CPU) for each in (SUMS, other, SUMS)] == [None] * 3
    assert [record.getMessage() for record in caplog.records] == [
        "fedrec runs without compiled kernels, so rounds are slower: there is no C compiler (cc, gcc, clang); install one, "
        "or the package ziglang, which contains one"
    ]


@pytest.mark.usefixtures("own_cache")
def test_the_package_ziglang_holds_a_compiler(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(on_cpu.importlib.util, "find_spec", lambda name: name == "ziglang" or None)
    assert on_cpu.compiler() == (sys.executable, "-m", "ziglang", "cc")


def test_a_broken_text_is_refused_with_what_the_compiler_says(own_cache):
    with pytest.raises(NoCompilerError, match="undeclared"):
        Kernel(KernelSource("broken", (("real*", "x"),), "x[item] = nonsense;"), CPU)
    assert not list(own_cache.glob("*.so"))


@pytest.mark.parametrize("lanes", [32, 256])
def test_a_gpu_takes_the_kernel(lanes):
    assert CudaCompiler().refusal(SUMS, lanes) == ""


def test_a_gpu_refuses_a_broken_kernel():
    assert "nonsense" in CudaCompiler().refusal(
        KernelSource("broken", (("real*", "x"),), "x[item] = nonsense;")
    )


def test_a_product_is_rounded_before_it_is_added_to_unless_a_kernel_allows_otherwise():
    x = torch.linspace(1, 2, 101, dtype=torch.float64)
    left, square = torch.empty_like(x), x * x
    source = KernelSource(
        "rest",
        (("const real*", "x"), ("const real*", "square"), ("real*", "left")),
        "left[item] = x[item] * x[item] - square[item];",
        double=True,
    )
    Kernel(source, CPU)(len(x), x=x, square=square, left=left)
    assert not left.any()
