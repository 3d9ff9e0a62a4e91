"""Rules that compute an operator by simpler operators.

The module reads an operator and gives its rule. Rules come from torch, or from this module where torch's own
would take seconds to load. The recorder runs the rule and records the simpler operators.
"""

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions, decomposition_table
from torch._ops import OpOverload

Rule = Callable[..., Any]
"""A function with the arguments and the result of an operator."""


def rule_for(func: OpOverload) -> Rule | None:
    """The rule for an operator; None if there is none."""
    name = str(func).removeprefix("aten.")
    return _OWN.get(name) or (None if "copy" in name or "clone" in name else _rules().get(func))


@cache
def _rules() -> dict[OpOverload, Rule]:
    return {**decomposition_table, **core_aten_decompositions()}


def _split(source: Tensor, sizes: Sequence[int], dim: int = 0) -> list[Tensor]:
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [
        torch.ops.aten.slice.Tensor(source, dim, end - size, end)
        for size, end in zip(sizes, ends, strict=True)
    ]


def _split_evenly(source: Tensor, size: int, dim: int = 0) -> list[Tensor]:
    length = source.shape[dim]
    return _split(source, [min(size, length - first) for first in range(0, length, size)], dim)


def _unbind(source: Tensor, dim: int = 0) -> list[Tensor]:
    return [torch.ops.aten.select.int(source, dim, place) for place in range(source.shape[dim])]


def _variance(
    source: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    axes = list(range(source.dim())) if dim is None else list(dim)
    count = math.prod(source.shape[axis] for axis in axes)
    squares = (source - source.mean(axes, keepdim=True)).square()
    left = max(0, count - (1 if correction is None else correction))
    return squares.sum(axes, keepdim=keepdim) / left


def _deviation(
    source: Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Tensor:
    return _variance(source, dim, correction=correction, keepdim=keepdim).sqrt()


def _layer_norm(
    source: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    axes = list(range(-len(shape), 0))
    mean = source.mean(axes, keepdim=True)
    centred = source - mean
    inverse = (centred.square().mean(axes, keepdim=True) + eps).rsqrt()
    normal = centred * inverse
    normal = normal if weight is None else normal * weight
    return normal if bias is None else normal + bias, mean, inverse


def _log_sigmoid(source: Tensor) -> tuple[Tensor, Tensor]:
    power = (-source.abs()).exp()
    return source.clamp(max=0) - power.log1p(), power


def _log_sigmoid_backward(gradient: Tensor, source: Tensor, _buffer: Tensor) -> Tensor:
    return gradient * (-source).sigmoid()


def _zeros(size: Sequence[int], **how: object) -> Tensor:
    """Zeros with memory: the zeros of some derivatives have none."""
    zeros: Tensor = torch.ops.aten.zeros.default(size, **how)
    return zeros


_OWN: dict[str, Rule] = {
    "_efficientzerotensor.default": _zeros,
    "split_with_sizes.default": _split,
    "split.Tensor": _split_evenly,
    "unbind.int": _unbind,
    "var.correction": _variance,
    "std.correction": _deviation,
    "native_layer_norm.default": _layer_norm,
    "log_sigmoid_forward.default": _log_sigmoid,
    "log_sigmoid_backward.default": _log_sigmoid_backward,
}
"""The rules of this module, by operator and overload."""
