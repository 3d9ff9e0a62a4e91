"""The operators that torch performs, as nodes of a graph."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from torch import Tensor
from torch._decomp import core_aten_decompositions
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.federation.engines.fused.nodes import (
    ROWS,
    SAMPLES,
    Constant,
    Count,
    Index,
    Input,
    Joined,
    Leaf,
    Node,
    OnDiagonal,
    Pointwise,
    Reduction,
    Reindexed,
    UnsupportedError,
)
from fedrec.federation.engines.fused.reshaping import reshaping

_FORMULAS = {
    "neg": "(-{0})", "exp": "EXP({0})", "log": "LOG({0})", "log1p": "LOG1P({0})", "abs": "ABS({0})",
    "sqrt": "SQRT({0})", "sigmoid": "sigmoid({0})", "relu": "relu({0})", "sign": "sign({0})",
    "sgn": "sign({0})",
    "tanh": "TANH({0})", "sub": "({0} - {1})", "mul": "({0} * {1})", "div": "({0} / {1})",
    "add": "({0} + {1})",
    "rsub": "({1} - {0})", "minimum": "least({0}, {1})", "maximum": "most({0}, {1})",
    "ge": "(real)({0} >= {1})", "le": "(real)({0} <= {1})", "gt": "(real)({0} > {1})",
    "lt": "(real)({0} < {1})", "eq": "(real)({0} == {1})", "ne": "(real)({0} != {1})",
    "where": "({0} != 0 ? {1} : {2})", "reciprocal": "(1 / {0})", "rsqrt": "(1 / SQRT({0}))",
    "clamp_min": "at_least({0}, {1})", "sigmoid_backward": "({0} * ((1 - {1}) * {1}))",
    "threshold_backward": "let_through({0}, {1}, {2})", "masked_fill": "({1} != 0 ? {2} : {0})",
    "clone": "{0}", "alias": "{0}", "detach": "{0}", "_to_copy": "{0}", "lift_fresh_copy": "{0}",
}  # fmt: skip
"""Operators that go element by element, as formulas of C."""
_SAME = ("clone", "alias", "detach", "_to_copy", "lift_fresh_copy")
_POWERS = {2.0: "square({0})", 1.0: "{0}", 0.5: "SQRT({0})", -1.0: "(1 / {0})", -0.5: "(1 / SQRT({0}))"}


class Watching(TorchDispatchMode):
    """Is told of every operator."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, which takes seconds, to be kept from compiling this."""
        return False


class OperatorRecorder(Watching):
    """Turns the operators that torch performs, forward and backward, into nodes."""

    def __init__(self, given: Mapping[Leaf, Tensor]) -> None:
        super().__init__()
        # Tensors are known by their identity, so all of them are kept.
        self._tensors: list[Tensor] = []
        self._nodes: dict[int, Node] = {}
        for leaf, value in given.items():
            self._keep(value, Input(tuple(value.shape), leaf=leaf))

    def __torch_dispatch__(
        self,
        func: OpOverload,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        kwargs = kwargs or {}
        for simpler in (None if self._is_known(func) else _decompositions().get(func), func.decompose):
            if simpler is not None:
                with self:
                    result = simpler(*args, **kwargs)
                if result is not NotImplemented:
                    return result
        result = func(*args, **kwargs)
        if isinstance(result, Tensor):
            self._keep(result, self._called(func, tuple(result.shape), args, kwargs))
            return result
        raise UnsupportedError(f"its loss uses the operator {func}")

    def node_of(self, value: Tensor) -> Node:
        """The node of a tensor; one that nothing of the graph made is a number."""
        if id(value) in self._nodes:
            return self._nodes[id(value)]
        if value.numel() != 1:
            raise UnsupportedError("its loss uses a tensor that is no parameter")
        return _number(tuple(value.shape), float(value))

    def _is_known(self, func: OpOverload) -> bool:
        """Whether an operator needs no simpler ones; some of torch's rules for those take seconds to load."""
        name = str(func).split(".")[1]
        return name in _FORMULAS or (not name.endswith("_") and hasattr(self, f"_{name.lstrip('_')}"))

    def _keep(self, value: Tensor, node: Node) -> None:
        self._tensors.append(value)
        self._nodes[id(value)] = node

    def _called(
        self, func: OpOverload, shape: tuple[int, ...], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Node:
        name = str(func).split(".")[1]
        if name in _SAME:
            return self.node_of(args[0])
        if name in _FORMULAS:
            if kwargs.get("alpha", 1) != 1:
                raise UnsupportedError(f"its loss uses {func} with a factor")
            return Pointwise(shape, tuple(map(self._operand, args)), _FORMULAS[name])
        if name == "copy_":
            return self._overwritten(shape, *args)
        special = getattr(self, f"_{name.lstrip('_')}", None)
        if special is None or name.endswith("_"):
            raise UnsupportedError(f"its loss uses the operator {func}")
        made: Node = special(shape, *args, **kwargs)
        return made

    def _overwritten(self, shape: tuple[int, ...], target: Tensor, source: Tensor, *_how: object) -> Node:
        """What a tensor is from now on: nodes that were made of it before stay as they are."""
        memory = target.untyped_storage().data_ptr()
        # A view of it would change with it, and its node would not know.
        if any(one is not target and one.untyped_storage().data_ptr() == memory for one in self._tensors):
            raise UnsupportedError("its loss changes a tensor in place that it also sees in another shape")
        return self._expand(shape, source, shape)

    def _operand(self, argument: Any) -> Node:  # noqa: ANN401 - a tensor or a number
        return self.node_of(argument) if isinstance(argument, Tensor) else _number((), float(argument))

    def _pow(self, shape: tuple[int, ...], base: Tensor, exponent: float) -> Node:
        if exponent not in _POWERS:
            inputs = (self.node_of(base), _number((), float(exponent)))
            return Pointwise(shape, inputs, "POW({0}, {1})")
        return Pointwise(shape, (self.node_of(base),), _POWERS[float(exponent)])

    def _clamp(
        self, shape: tuple[int, ...], base: Tensor, low: float | None = None, high: float | None = None
    ) -> Node:
        value = self.node_of(base)
        if low is not None:
            value = Pointwise(shape, (value, Constant((), value=float(low))), "at_least({0}, {1})")
        if high is not None:
            value = Pointwise(shape, (value, Constant((), value=float(high))), "at_most({0}, {1})")
        return value

    def _binary_cross_entropy_with_logits(
        self,
        shape: tuple[int, ...],
        scores: Tensor,
        labels: Tensor,
        weight: Tensor | None = None,
        positive: Tensor | None = None,
        reduction: int = 1,
    ) -> Node:
        if weight is not None or positive is not None or reduction:
            raise UnsupportedError("its loss weighs or sums up the entropy of samples inside of torch")
        return Pointwise(shape, (self.node_of(scores), self.node_of(labels)), "entropy({0}, {1})")

    def _zeros_like(self, shape: tuple[int, ...], *_like: object, **_how: object) -> Node:
        return Constant(shape, value=0.0)

    _new_zeros = _zeros_like

    def _ones_like(self, shape: tuple[int, ...], *_like: object, **_how: object) -> Node:
        return Constant(shape, value=1.0)

    def _t(self, shape: tuple[int, ...], source: Tensor) -> Node:
        return self._permute(shape, source, (1, 0) if len(shape) == 2 else (0,))

    def _transpose(self, shape: tuple[int, ...], source: Tensor, first: int, second: int) -> Node:
        axes = list(range(len(shape)))
        axes[first], axes[second] = axes[second], axes[first]
        return self._permute(shape, source, axes)

    def _full_like(self, shape: tuple[int, ...], _like: Tensor, value: float, **_how: object) -> Node:
        return _number(shape, float(value))

    def _full(self, shape: tuple[int, ...], _size: object, value: float, **_how: object) -> Node:
        return _number(shape, float(value))

    def _scalar_tensor(self, shape: tuple[int, ...], value: float, **_how: object) -> Node:
        return _number(shape, float(value))

    def _empty_permuted(self, shape: tuple[int, ...], *_size: object, **_how: object) -> Node:
        return Constant(shape, value=0.0)

    def _expand(self, shape: tuple[int, ...], source: Tensor, _size: object) -> Node:
        base = self.node_of(source)
        ahead = len(shape) - len(base.shape)

        def at(index: Index) -> Index:
            return tuple(
                "0" if size == 1 else own for own, size in zip(index[ahead:], base.shape, strict=True)
            )

        return Reindexed(shape, (base,), at)

    def _unsqueeze(self, shape: tuple[int, ...], source: Tensor, axis: int) -> Node:
        place = axis % len(shape)
        return Reindexed(shape, (self.node_of(source),), lambda index: index[:place] + index[place + 1 :])

    def _squeeze(self, shape: tuple[int, ...], source: Tensor, axes: Sequence[int] | int) -> Node:
        base = self.node_of(source)
        asked = {axis % len(base.shape) for axis in ([axes] if isinstance(axes, int) else axes)}
        gone = {axis for axis in asked if base.shape[axis] == 1}

        def at(index: Index) -> Index:
            left = iter(index)
            return tuple("0" if axis in gone else next(left) for axis in range(len(base.shape)))

        return Reindexed(shape, (base,), at)

    def _permute(self, shape: tuple[int, ...], source: Tensor, axes: Sequence[int]) -> Node:
        base = self.node_of(source)
        order = [axis % len(shape) for axis in axes]
        return Reindexed(
            shape, (base,), lambda index: tuple(index[order.index(axis)] for axis in range(len(order))), True
        )

    def _view(self, shape: tuple[int, ...], source: Tensor, _size: object) -> Node:
        base = self.node_of(source)
        return Reindexed(shape, (base,), reshaping(base.shape, shape))

    _reshape = _unsafe_view = _view

    def _slice(
        self,
        shape: tuple[int, ...],
        source: Tensor,
        axis: int = 0,
        start: int | None = None,
        _end: int | None = None,
        step: int = 1,
    ) -> Node:
        base = self.node_of(source)
        place, first = axis % len(shape), start or 0
        if step != 1 or first < 0 or (base.shape[place] in (SAMPLES, ROWS) and shape != base.shape):
            raise UnsupportedError("its loss cuts a tensor in an unusual way")

        def at(index: Index) -> Index:
            moved = f"({index[place]} + {first})" if first else index[place]
            return (*index[:place], moved, *index[place + 1 :])

        return Reindexed(shape, (base,), at)

    def _diagonal(self, shape: tuple[int, ...], source: Tensor, *where: int) -> Node:
        base = self.node_of(source)
        if len(base.shape) != 2 or (where and where[0] != 0):
            raise UnsupportedError("its loss takes a diagonal in an unusual way")
        return Reindexed(shape, (base,), lambda index: (index[0], index[0]))

    def _diagonal_scatter(self, shape: tuple[int, ...], source: Tensor, value: Tensor, *where: int) -> Node:
        if len(shape) != 2 or (where and where[0] != 0):
            raise UnsupportedError("its loss sets a diagonal in an unusual way")
        return OnDiagonal(shape, (self.node_of(source), self.node_of(value)))

    def _cat(self, shape: tuple[int, ...], parts: Sequence[Tensor], axis: int = 0) -> Node:
        place = axis % len(shape)
        if any(part.shape[place] in (SAMPLES, ROWS) for part in parts):
            raise UnsupportedError("its loss joins samples")
        return Joined(shape, tuple(self.node_of(part) for part in parts), place)

    def _sum(
        self,
        shape: tuple[int, ...],
        source: Tensor,
        axes: Sequence[int] = (),
        keep: bool = False,
        **_how: object,
    ) -> Node:
        return self._reduced(shape, self.node_of(source), axes, keep)

    def _mean(
        self,
        shape: tuple[int, ...],
        source: Tensor,
        axes: Sequence[int] = (),
        keep: bool = False,
        **_how: object,
    ) -> Node:
        base = self.node_of(source)
        total: Node = self._reduced(shape, base, axes, keep)
        for axis in _axes(axes, base.shape):
            size = base.shape[axis]
            total = Pointwise(shape, (total, _number((), float(size))), "({0} / {1})")
        return total

    def _amax(
        self, shape: tuple[int, ...], source: Tensor, axes: Sequence[int] = (), keep: bool = False
    ) -> Node:
        return self._reduced(shape, self.node_of(source), axes, keep, largest=True)

    def _linalg_vector_norm(
        self, shape: tuple[int, ...], source: Tensor, order: float, axes: Sequence[int], keep: bool = False
    ) -> Node:
        if order != 2:
            raise UnsupportedError(f"its loss uses a norm of order {order}")
        base = self.node_of(source)
        squares = Pointwise(base.shape, (base,), "square({0})")
        return Pointwise(shape, (self._reduced(shape, squares, axes, keep),), "SQRT({0})")

    def _reduced(
        self, shape: tuple[int, ...], base: Node, axes: Sequence[int], keep: bool, largest: bool = False
    ) -> Node:
        gone = _axes(axes, base.shape)
        own = iter(range(len(shape)))
        places: list[int | None] = []
        over: list[int] = []
        for axis, size in enumerate(base.shape):
            if axis in gone:
                places.append(len(shape) + len(over))
                over.append(size)
                if keep:
                    next(own)
            else:
                places.append(next(own))
        return Reduction(shape, (base,), tuple(over), (tuple(places),), largest)

    def _mm(self, shape: tuple[int, ...], left: Tensor, right: Tensor) -> Node:
        a, b = self.node_of(left), self.node_of(right)
        return Reduction(shape, (a, b), (a.shape[1],), ((0, 2), (2, 1)))


@cache
def _decompositions() -> dict[Any, Any]:
    return {
        key: value
        for key, value in core_aten_decompositions().items()
        if "clone" not in str(key) and "copy" not in str(key)
    }


def _number(shape: tuple[int, ...], value: float) -> Node:
    """A number; one that torch has computed from the size of a made-up tensor stands for the true size."""
    for size in (SAMPLES, ROWS):
        if value and math.isfinite(value) and value % size == 0:
            times = Constant((), value=value / size)
            return Pointwise(shape, (Count((), of=size), times), "({0} * {1})")
        if 0 < abs(value) < 1 and abs(1 / value / size - round(1 / value / size)) < 1e-9:
            raise UnsupportedError("its loss divides by the number of samples in an unusual way")
    return Constant(shape, value=value)


def _axes(axes: Sequence[int], shape: tuple[int, ...]) -> list[int]:
    """The axes that are meant: none given are all."""
    return sorted({axis % len(shape) for axis in axes} or range(len(shape))) if shape else []
