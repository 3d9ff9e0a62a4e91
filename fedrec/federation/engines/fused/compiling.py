"""Compile one fit, from the losses of its steps to a kernel that can be launched.

The module reads a method, one of its fits and a device. It gives a `Compiled` fit, and the tables of numbers
that every launch of the kernel reads.
"""

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
    """A fit whose kernel is compiled."""

    code: FitCode
    """The text of the kernel, and the names and sizes of its inputs."""
    kernel: Kernel
    """The compiled program."""


def compiled_fit(
    method: Model, fit: Fit, device: torch.device, batch: int, *, soon: bool = False
) -> Compiled:
    """Compile a fit for mini-batches of `batch` samples; with `soon` faster, to a slower kernel.

    Raise `UnsupportedError` if fedrec's compiler refuses the fit, and `NoCompilerError` if no C compiler or
    NVRTC compiles the kernel.
    """
    target = replace(H200, block_bytes=memory_of_block(device)) if device.type == "cuda" else CPU
    code = code_of(method, fit, target=target, batch=batch)
    return Compiled(code, Kernel(code.source, device, lanes_for(batch), soon=soon))


def code_of(method: Model, fit: Fit, *, target: Device, batch: int) -> FitCode:
    """Write the kernel of a fit as text; raise `UnsupportedError` if the fit has none."""
    if any(step.gradient_noise for step in fit.steps):
        raise UnsupportedError("a step adds noise to the gradient of every row, so it changes every row")
    if any(step.optimiser not in ("adam", "sgd") for step in fit.steps):
        raise UnsupportedError("a step uses an optimiser other than adam and sgd")
    if len({step.batch_decay for step in fit.steps if step.batch_decay != 1}) > 1:
        raise UnsupportedError("two of its steps shrink their rates by different factors")
    lifted = True
    try:
        steps = lower_steps(method, fit, target=target, lifted=True)
    except UnsupportedError:
        # A number may decide which branch a loss takes. Then every value of the number needs its own kernel.
        lifted = False
        steps = lower_steps(method, fit, target=target, lifted=False)
    double = torch.get_default_dtype() == torch.float64
    name = f"{name_of(method)}_fit"
    code = fit_code(method, fit, steps, name=name, target=target, double=double, batch=batch)
    return replace(code, lifted=lifted)


def name_of(method: Model) -> str:
    """The name of a method in kernels and messages."""
    return type(method).__name__.lower()


@lru_cache(maxsize=16)
def known_tables(
    steps: int, longest: int, decay: float, device: torch.device, dtype: torch.dtype
) -> dict[str, Tensor]:
    """The tables that a kernel reads by the number of a mini-batch; most rounds of a run share them.

    `shrink` has the factors of rates (see `shrinking`), shape `(steps + 1,)`. `slope` and `root` are Adam's
    corrections bias1 and bias2, shape `(longest + 1,)`. The others are those of `adam_tables`.
    """
    bias1, bias2 = corrections(longest)
    lr_scale = shrinking(steps, decay)
    numbers = {"shrink": lr_scale.to(dtype), "slope": bias1.to(dtype), "root": bias2.to(dtype)}
    made = numbers | adam_tables(bias1, bias2, lr_scale)
    return {name: value.to(device) for name, value in made.items()}


@lru_cache(maxsize=64)
def doubles(values: tuple[float, ...], device: torch.device) -> Tensor:
    """Numbers as a tensor of doubles on `device`; a last 0 keeps it from being empty."""
    # `torch.tensor` on a GPU would wait until the GPU has finished all of its work.
    return torch.tensor([*values, 0.0], dtype=torch.float64).to(device, non_blocking=True)


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(0, number - 1).bit_length()


def shrinking(steps: int, decay: float) -> Tensor:
    """The factor of a rate that shrinks by `decay` in every mini-batch: `decay ** (t - 1)` at mini-batch t.

    Shape `(steps + 1,)`. Mini-batches count from 1; entry 0 is not used.
    """
    count = torch.arange(steps + 1, dtype=torch.float64)
    return torch.tensor(decay, dtype=torch.float64) ** (count - 1).clamp(min=0)
