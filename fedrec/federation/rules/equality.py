"""Comparison of a function's numbers for synthetic clients; search for the first torch call that differs."""

from collections.abc import Iterable, Sequence
from itertools import chain

import torch
from torch import Tensor

from fedrec.federation.rules.torch_calls import TorchCall

_FAR_SMALLER = 1e-3
_ORDINARY = 1e4
"""Largest number that counts in estimates of rounding; larger ones are usually masks."""


def first_other_call(first: Sequence[TorchCall], second: Sequence[TorchCall]) -> TorchCall | None:
    """The first call whose name or line differs; None if all agree."""
    for one, other in zip(first, second, strict=False):
        if (one.name, one.source_line) != (other.name, other.source_line):
            return one
    if len(first) == len(second):
        return None
    return max(first, second, key=len)[min(len(first), len(second))]


def of_real(filled: Tensor, plain: Tensor, real: Tensor) -> Tensor:
    """The values of a padded client's real samples, selected along every axis that padding lengthens."""
    for axis, (long, short) in enumerate(zip(filled.shape, plain.shape, strict=False)):
        if long == len(real) != short == real.count_nonzero():
            filled = filled.index_select(axis, real.nonzero().squeeze(1))
    return filled


def is_close(first: Tensor, second: Tensor, beside: float = 0.0) -> bool:
    """Whether tensors are equal up to rounding.

    `beside` is the largest number in their computation. A far smaller number may be only its rounding, such
    as a gradient that is 0 by its formula.
    """
    if first.shape != second.shape:
        return False
    one, other = first.double(), second.double()
    within = 1e-8 if torch.get_default_dtype() == torch.float64 else 1e-2
    scale = max(largest_of((one,)), _FAR_SMALLER * beside)
    return torch.allclose(one, other, rtol=0.0, atol=within * scale, equal_nan=True)


def largest_of(tensors: Iterable[Tensor]) -> float:
    """The largest finite absolute value of some tensors; 0 if there is none."""
    finite = (each[each.isfinite()].double().abs() for each in tensors)
    return max((float(each.max()) for each in finite if each.numel()), default=0.0)


def first_unequal(plain: Sequence[TorchCall], filled: Sequence[TorchCall], real: Tensor) -> int | None:
    """The index of the first call whose numbers padding changes; None if padding changes none."""
    beside = 0.0
    for number, (one, other) in enumerate(zip(plain, filled, strict=True)):
        beside = max(beside, min(largest_of(one.results), _ORDINARY))
        if any(
            not is_close(a, of_real(b, a, real), beside)
            for a, b in zip(one.results, other.results, strict=True)
        ):
            return number
    return None


def first_with_mixed_clients(
    front: Sequence[TorchCall], each: Sequence[Sequence[TorchCall]]
) -> TorchCall | None:
    """The call after which the leading axis is no longer that of clients; None if there is none.

    Another axis may precede it for a while, for example if tables are stacked.
    """
    found: TorchCall | None = None
    for together, *alone in zip(front, *each, strict=False):
        pairs = list(zip(together.results, *(one.results for one in alone), strict=False))
        if all(_clients_first(many, own) for many, *own in pairs):
            found = None
            continue
        found = found or together
        if not all(_clients_anywhere(many, own) for many, *own in pairs):
            return found
    return found


def _clients_first(many: Tensor, own: Sequence[Tensor]) -> bool:
    if any(one.shape != own[0].shape for one in own):
        return False
    common = len(own) > 1 and all(is_close(own[0], one) for one in own)
    return (common and is_close(own[0], many)) or is_close(torch.stack(list(own)), many)


def _clients_anywhere(many: Tensor, own: Sequence[Tensor]) -> bool:
    axes = [axis for axis, size in enumerate(many.shape) if size == len(own)]
    found = (all(map(is_close, many.unbind(axis), own)) for axis in axes)
    return any(chain(found, [_clients_first(many, own)]))
