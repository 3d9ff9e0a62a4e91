"""The loss of a step and its gradients as a graph, traced for one client.

The method's own loss is run on made-up tensors while the operators that torch performs, forward and backward,
are written down: each becomes a node.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor
from torch._decomp import core_aten_decompositions
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.federation.engines.fused.key import with_numbers
from fedrec.federation.engines.fused.nodes import (
    ROWS,
    SAMPLES,
    Constant,
    Count,
    Index,
    Input,
    Joined,
    Leaf,
    LossGraph,
    Node,
    OnDiagonal,
    Pointwise,
    Reduction,
    Reindexed,
    UnsupportedError,
)
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import Values
from fedrec.federation.model.weights import Loss, Weights


def traced(
    method: Method, loss: Loss, trained: Sequence[str], numbers: Sequence[float] | None = None
) -> LossGraph:
    """The graph of a loss; raise `UnsupportedError` where there is none.

    With `numbers` (see `key.numbers_of`), what the loss closes over may be others in other calls.
    """
    leaves = dict(_leaves(method, SAMPLES, ROWS))
    _check_sizes(leaves)
    run = _Run(method, loss, trained, numbers or (), leaves)
    recorder = _Recorder(run.given)
    value, gradients = run.under(recorder)
    _check_numbers(method, loss, trained, numbers or ())
    return LossGraph(
        recorder.node_of(value), {leaf: recorder.node_of(each) for leaf, each in gradients.items()}
    )


class _Run:
    """A loss and its gradients, computed once of made-up leaves."""

    def __init__(
        self,
        method: Method,
        loss: Loss,
        trained: Sequence[str],
        numbers: Sequence[float],
        leaves: Mapping[Leaf, Tensor],
    ) -> None:
        held = {Leaf("number", str(place)): torch.tensor(value) for place, value in enumerate(numbers)}
        self._method = method
        self._wanted = [leaf for leaf in leaves if leaf.name in trained and leaf.part in _TRAINED]
        # Plain autograd, as engines have it: its derivatives are written so that little is lost to rounding.
        self.given = {
            leaf: value.detach().requires_grad_(leaf in self._wanted)
            for leaf, value in {**leaves, **held}.items()
        }
        self._loss = with_numbers(loss, [self.given[leaf] for leaf in held])

    def under(self, mode: TorchDispatchMode) -> tuple[Tensor, dict[Leaf, Tensor]]:
        """The loss and its gradients, computed while `mode` looks on."""
        wanted = [self.given[leaf] for leaf in self._wanted]
        view, batch = cast(Weights, _view(self._method.parameters(), self.given)), _TracedBatch(self.given)
        try:
            with mode:
                value = self._loss(view, batch).sum()
                gradients = torch.autograd.grad(value, wanted, allow_unused=True, materialize_grads=True)
        except (RuntimeError, TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
            first = str(error).strip().splitlines()[0]
            raise UnsupportedError(f"its loss cannot be traced: {first}") from error
        return value, dict(zip(self._wanted, gradients, strict=True))


def _check_numbers(method: Method, loss: Loss, trained: Sequence[str], numbers: Sequence[float]) -> None:
    """Raise `UnsupportedError` where a number of a loss follows from how many samples or rows there are.

    Such a number would be the made-up client's for all. Multiples of a size are known for what they are.
    """
    told = []
    for samples, rows in _OTHER_SIZES:
        run = _Run(method, loss, trained, numbers, dict(_leaves(method, samples, rows)))
        listener = _Listener(run.given.values())
        run.under(listener)
        told.append(listener.numbers)
    first, second = told
    shares = [one / other for one, other in zip(*_OTHER_SIZES, strict=True)]
    same = len(first) == len(second) and all(
        one == other or any(math.isclose(one, share * other) for share in shares)
        for one, other in zip(first, second, strict=True)
    )
    if not same:
        raise UnsupportedError("its loss goes by the number of samples in an unusual way")


class _Watching(TorchDispatchMode):
    """Is told of every operator."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, which takes seconds, to be kept from compiling this."""
        return False


class _Listener(_Watching):
    """Writes down the numbers that operators are given beside tensors of the graph."""

    def __init__(self, leaves: Iterable[Tensor]) -> None:
        super().__init__()
        self.numbers: list[float] = []
        # Tensors are known by their identity, so all of them are kept.
        self._tensors = list(leaves)
        self._known = set(map(id, self._tensors))

    def __torch_dispatch__(
        self,
        func: OpOverload,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        self.numbers += [float(each) for each in args if self._is_number(each)]
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self._tensors.append(result)
            self._known.add(id(result))
        return result

    def _is_number(self, argument: object) -> bool:
        """Whether an argument is a number, or a tensor of one that is nothing of the graph."""
        if isinstance(argument, Tensor):
            return argument.numel() == 1 and id(argument) not in self._known
        return isinstance(argument, int | float)


_TRAINED = ("value", "rows", "whole", "training_sum")
"""Parts of a parameter that a gradient may be asked for."""
_OTHER_SIZES = ((23, 29), (31, 37))
"""Samples and rows of two clients, by which it is seen what follows from how many there are."""


@cache
def _decompositions() -> dict[Any, Any]:
    return {
        key: value
        for key, value in core_aten_decompositions().items()
        if "clone" not in str(key) and "copy" not in str(key)
    }


def _leaves(method: Method, samples: int, rows: int) -> Iterator[tuple[Leaf, Tensor]]:
    """Everything a loss may ask for, made up, of so many samples and rows."""
    parameters = {name: part for name, part in method.parameters().items() if part.location != "server"}
    shapes: dict[Leaf, tuple[int, ...]] = {}
    for name, part in parameters.items():
        if part.table:
            shapes[Leaf("rows", name)] = (samples, part.shape[1])
            shapes[Leaf("whole", name)] = (rows, part.shape[1])
            shapes[Leaf("training_sum", name)] = (1, part.shape[1])
        else:
            shapes[Leaf("value", name)] = tuple(part.shape)
    shapes |= {Leaf(of_samples): (samples,) for of_samples in ("labels", "occurrences", "distinct")}
    shapes |= {Leaf("size"): (1,), Leaf("interactions"): (1, 1), Leaf("held"): (1, 1)}
    values = {leaf: _made_up(shape) for leaf, shape in shapes.items()}
    with torch.no_grad():
        derived = method.derived(cast(Weights, _view(parameters, values)))
    yield from values.items()
    yield from ((Leaf("derived", name), value.detach().clone()) for name, value in derived.items())


def _made_up(shape: tuple[int, ...]) -> Tensor:
    return torch.linspace(0.1, 0.9, math.prod(shape)).reshape(shape)


def _check_sizes(leaves: Mapping[Leaf, Tensor]) -> None:
    for leaf, value in leaves.items():
        static = value.shape[1:] if leaf.part in ("rows", "whole") else value.shape
        if leaf.part not in ("labels", "occurrences", "distinct") and {SAMPLES, ROWS} & set(static):
            raise UnsupportedError(f"{leaf.name} is {tuple(static)} wide, a size that stands for another")


def _view(parameters: Mapping[str, Parameter], given: Mapping[Leaf, Tensor]) -> Values:
    values = Values({leaf.name: value for leaf, value in given.items() if leaf.part in ("value", "derived")})
    values |= {part: given[Leaf(part)] for part in ("interactions", "held")}
    for name, part in parameters.items():
        if part.table:
            values[name] = _TracedTable(given, name)
    return values


class _TracedTable:
    """A table as a loss sees it while it is traced."""

    def __init__(self, given: Mapping[Leaf, Tensor], name: str) -> None:
        self._given = given
        self._name = name

    def __getitem__(self, items: object) -> Tensor:
        if items is not _items(self._given):
            raise UnsupportedError(f"its loss looks up other rows of {self._name} than the mini-batch's")
        return self._given[Leaf("rows", self._name)]

    def whole(self) -> Tensor:
        """Every row."""
        return self._given[Leaf("whole", self._name)]

    def training_sum(self) -> Tensor:
        """The sum of the rows of training items."""
        return self._given[Leaf("training_sum", self._name)]

    def squared_norm(self) -> Tensor:
        """A number of the right shape: derived values are computed elsewhere, of true ones."""
        return torch.ones(1, 1)

    def row_sum(self) -> Tensor:
        """A vector of the right shape."""
        return torch.zeros_like(self.training_sum())


def _items(given: Mapping[Leaf, Tensor]) -> Tensor:
    """The items of a made-up mini-batch, always the same ones for so many samples."""
    return _first_items(len(given[Leaf("labels")]))


@cache
def _first_items(samples: int) -> Tensor:
    return torch.arange(samples)


class _TracedBatch:
    """A mini-batch as a loss sees it while it is traced."""

    def __init__(self, given: Mapping[Leaf, Tensor]) -> None:
        self._given = given
        self.items = _items(given)
        self.labels = given[Leaf("labels")]
        self.size = given[Leaf("size")]

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the batch."""
        return values.sum() / self.size

    def distinct(self) -> Tensor:
        """1 for one sample of every item."""
        return self._given[Leaf("distinct")]

    def occurrences(self) -> Tensor:
        """For each sample, how many are of the same item."""
        return self._given[Leaf("occurrences")]


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


class _Recorder(_Watching):
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
        return Reindexed(shape, (base,), _reshaping(base.shape, shape))

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


def _reshaping(before: tuple[int, ...], after: tuple[int, ...]) -> Callable[[Index], Index]:
    """How an index after a reshape finds its element before it."""
    groups = list(_groups(before, after))

    def at(index: Index) -> Index:
        found: list[str] = []
        for old, new in groups:
            found += _unravelled(_ravelled([index[axis] for axis in new], [after[axis] for axis in new]),
                                 [before[axis] for axis in old])  # fmt: skip
        return tuple(found)

    return at


def _groups(before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[tuple[list[int], list[int]]]:
    """Neighbouring axes on both sides that hold the same elements."""
    old, new = iter(range(len(before))), iter(range(len(after)))
    olds: list[int] = []
    news: list[int] = []
    for axis in itertools.chain(old, [None]):
        if axis is not None:
            olds.append(axis)
        while math.prod(before[a] for a in olds) > math.prod(after[a] for a in news) or axis is None:
            following = next(new, None)
            if following is None:
                break
            news.append(following)
        if math.prod(before[a] for a in olds) == math.prod(after[a] for a in news) and (olds or news):
            _check_group([before[a] for a in olds], [after[a] for a in news])
            yield olds, news
            olds, news = [], []


def _check_group(before: list[int], after: list[int]) -> None:
    varying = [size for size in (*before, *after) if size in (SAMPLES, ROWS)]
    # An axis of samples or rows goes over into one, with axes of size 1 beside it at most.
    plain = all(size in (1, SAMPLES, ROWS) for size in (*before, *after))
    if varying and not (plain and len(varying) == 2):
        raise UnsupportedError("its loss folds samples into another axis")


def _ravelled(index: Sequence[str], sizes: Sequence[int]) -> str:
    """The place of an index among all of neighbouring axes."""
    real = [(place, size) for place, size in zip(index, sizes, strict=True) if size != 1]
    if not real:
        return "0"
    text = real[0][0]
    for place, size in real[1:]:
        text = f"({text} * {size} + {place})"
    return text


def _unravelled(place: str, sizes: Sequence[int]) -> list[str]:
    """The index of a place among neighbouring axes."""
    real = [size for size in sizes if size != 1]
    index: list[str] = []
    for number, size in enumerate(sizes):
        if size == 1:
            index.append("0")
            continue
        real = real[1:]
        behind = math.prod(real)
        own = f"({place} / {behind})" if behind != 1 else place
        first = all(before == 1 for before in sizes[:number])
        index.append(own if first else f"({own} % {size})")
    return index
