"""The functions of kernels, in plain arithmetic where many are done at once, are those of torch."""

import pytest
import torch

from fedrec.federation.engines.fused.backend.library.device_library import functions_for
from fedrec.native.kernel import Kernel
from fedrec.native.source import KernelSource

CPU = torch.device("cpu")


def of_kernel(formula, x, dtype):
    double = dtype == torch.float64
    source = KernelSource(
        "formula",
        (("const real*", "x"), ("integer", "count"), ("real*", "made")),
        f"for (integer i = 0; i < count; i++) made[i] = {formula.format('x[i]')};",
        functions_for(gpu=False, double=double),
        double,
        rounds_once=True,
    )
    made = torch.empty(len(x), dtype=dtype)
    Kernel(source, CPU)(1, x=x.to(dtype), count=len(x), made=made)
    return made.double()


def softplus(x):
    return torch.logaddexp(x, torch.zeros_like(x))


PRECISION = [(torch.float32, 2e-7), (torch.float64, 1e-15)]


@pytest.mark.parametrize(("dtype", "relative"), PRECISION)
@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("EXP({0})", torch.exp),
        ("sigmoid({0})", torch.sigmoid),
        ("entropy({0}, (real)0)", softplus),
        ("entropy({0}, (real)1)", lambda x: softplus(-x)),
    ],
)
def test_a_function_is_torchs(formula, expected, dtype, relative):
    """Rounding of x moves a power of e the further, the larger x is, and an entropy is a sum with x itself."""
    x = torch.cat((torch.linspace(-80, 80, 4001), torch.linspace(-1, 1, 4001) ** 3)).double()
    size = expected(x).clamp(min=1 if "entropy" in formula else 0)
    off = (of_kernel(formula, x, dtype) - expected(x)).abs() / size
    assert (off < relative * (2 + x.abs())).all()


@pytest.mark.parametrize(("dtype", "relative"), PRECISION)
def test_what_is_beyond_all_numbers_or_none_stays_so(dtype, relative):
    x = torch.tensor([float("-inf"), -1e4, 1e4, float("inf"), float("nan")])
    power = of_kernel("EXP({0})", x, dtype)
    assert power[:4].tolist() == [0, 0, float("inf"), float("inf")]
    assert power[4].isnan()
    sigmoid = of_kernel("sigmoid({0})", x, dtype)
    assert torch.allclose(sigmoid[:4], torch.tensor([0, 0, 1, 1]).double(), rtol=relative, atol=0)
    assert sigmoid[4].isnan()
