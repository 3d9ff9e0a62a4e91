"""A fit compiled, and the numbers that its kernel knows beforehand."""

from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from fedrec.federation.engines.fused.adam import adam_tables, corrections
from fedrec.federation.engines.fused.device import CPU, H200, Device, lanes_for
from fedrec.federation.engines.fused.ir.nodes import UnsupportedError
from fedrec.federation.engines.fused.kernel.kernel import FitCode, fit_code, lower_steps
from fedrec.federation.engines.fused.trace.symbolic_inputs import Model
from fedrec.federation.model.client import Fit
from fedrec.native.kernel import Kernel
from fedrec.native.on_gpu import memory_of_block


@dataclass(frozen=True)
class Compiled:
    """A fit that was compiled: its kernel, and what that is given."""

    code: FitCode
    kernel: Kernel


def compiled_fit(
    method: Model, fit: Fit, device: torch.device, batch: int, *, soon: bool = False
) -> Compiled:
    """Compile a fit, with `soon` in less time.

    Raise `UnsupportedError` or `NoCompilerError` where that cannot be.
    """
    target = replace(H200, block_bytes=memory_of_block(device)) if device.type == "cuda" else CPU
    code = code_of(method, fit, target=target, batch=batch)
    return Compiled(code, Kernel(code.source, device, lanes_for(batch), soon=soon))


def code_of(method: Model, fit: Fit, *, target: Device, batch: int) -> FitCode:
    """The code of a fit; raise `UnsupportedError` where there is none."""
    if any(step.gradient_noise for step in fit.steps):
        raise UnsupportedError("noise on the gradient of every row leaves no row at rest")
    if any(step.optimiser not in ("adam", "sgd") for step in fit.steps):
        raise UnsupportedError("a step is by another optimiser than adam and sgd")
    if len({step.batch_decay for step in fit.steps if step.batch_decay != 1}) > 1:
        raise UnsupportedError("rates of its steps shrink each in their own way")
    lifted = True
    try:
        steps = lower_steps(method, fit, target=target, lifted=True)
    except UnsupportedError:
        # A number may decide which way a loss goes: then there is a kernel for every number.
        lifted = False
        steps = lower_steps(method, fit, target=target, lifted=False)
    double = torch.get_default_dtype() == torch.float64
    name = f"{name_of(method)}_fit"
    code = fit_code(method, fit, steps, name=name, target=target, double=double, batch=batch)
    return replace(code, lifted=lifted)


def name_of(method: Model) -> str:
    """What kernels and messages call it."""
    return type(method).__name__.lower()


@lru_cache(maxsize=16)
def known_tables(
    steps: int, longest: int, decay: float, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """What a kernel knows of every mini-batch beforehand; most rounds of a run ask for the same."""
    bias1, bias2 = corrections(longest)
    lr_scale = shrinking(steps, decay)
    numbers = {"shrink": lr_scale.to(dtype), "slope": bias1.to(dtype), "root": bias2.to(dtype)}
    made = numbers | adam_tables(bias1, bias2, lr_scale)
    return {name: value.to(device) for name, value in made.items()}


@lru_cache(maxsize=64)
def doubles(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers as a kernel reads them."""
    # Not by torch.tensor: it would wait until a GPU has done all of its work.
    return torch.tensor([*values, 0.0], dtype=torch.float64).to(device, non_blocking=True)


def power_of_two(number: int) -> int:
    """The next one that is no smaller."""
    return 1 << max(0, number - 1).bit_length()


def shrinking(steps: int, decay: float) -> Tensor:
    """What rates that shrink are multiplied by, mini-batch by mini-batch from 1."""
    count = torch.arange(steps + 1, dtype=torch.float64)
    return torch.tensor(decay, dtype=torch.float64) ** (count - 1).clamp(min=0)
