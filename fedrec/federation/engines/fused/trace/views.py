"""The nodes of operators that move elements, or join tensors.

Each function reads a `Call` and gives its node, most often a `View` that computes nothing.
"""

from collections.abc import Sequence

from fedrec.federation.engines.fused.ir.dims import Shape, Symbol
from fedrec.federation.engines.fused.ir.index import ZERO, Axis, IndexMap, Number, plus, same_axes, times
from fedrec.federation.engines.fused.ir.nodes import (
    Concat,
    Constant,
    DiagonalSet,
    Node,
    Origin,
    UnsupportedError,
    View,
)
from fedrec.federation.engines.fused.ir.ops import Op
from fedrec.federation.engines.fused.trace.calls import Call
from fedrec.federation.engines.fused.trace.reshaping import reshaping
from fedrec.federation.engines.fused.trace.sizes import unusual


def same(call: Call) -> Node:
    """The tensor itself."""
    return call.node("self")


_CASTS = {("real", "bool"): Op.IS_NONZERO, ("count", "bool"): Op.IS_NONZERO, ("real", "count"): Op.TRUNC}
"""The operators of casts that change numbers, by the kinds before and after."""


def cast(call: Call) -> Node:
    """A tensor with numbers of another type."""
    base, kinds = call.node("self"), (call.kind_of("self"), call.kind)
    return call.pointwise(_CASTS[kinds], base) if kinds in _CASTS else base


def _view(call: Call, base: Node, index_map: IndexMap) -> Node:
    return View(call.shape, (base,), index_map, origin=call.origin)


def expanded(shape: Shape, base: Node, origin: Origin) -> Node:
    """A tensor, repeated along its axes of size 1 and along new axes in front."""
    ahead = len(shape) - len(base.shape)
    index_map = tuple(ZERO if size == 1 else Axis(ahead + axis) for axis, size in enumerate(base.shape))
    return View(shape, (base,), index_map, origin=origin)


def expand(call: Call) -> Node:
    """See `expanded`."""
    return expanded(call.shape, call.node("self"), call.origin)


def unsqueeze(call: Call) -> Node:
    """A tensor with a further axis of size 1."""
    axes = same_axes(len(call.shape))
    place = call.plain("dim") % len(axes)
    return _view(call, call.node("self"), axes[:place] + axes[place + 1 :])


def squeeze(call: Call) -> Node:
    """A tensor without some axes of size 1."""
    base, axes = call.node("self"), call.plain("dim")
    asked = {axis % len(base.shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    gone = {axis for axis in asked if base.shape[axis] == 1}
    left = iter(same_axes(len(call.shape)))
    index_map = tuple(ZERO if axis in gone else next(left) for axis in range(len(base.shape)))
    return _view(call, base, index_map)


def matrix_transpose(call: Call) -> Node:
    """A matrix with its two axes exchanged."""
    axes = list(range(len(call.shape)))
    return _permuted(call, axes[::-1])


def transpose(call: Call) -> Node:
    """A tensor with two axes exchanged."""
    axes, first, second = list(range(len(call.shape))), call.plain("dim0"), call.plain("dim1")
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return _permuted(call, axes)


def permute(call: Call) -> Node:
    """A tensor with its axes in another order."""
    return _permuted(call, call.plain("dims"))


def _permuted(call: Call, axes: Sequence[int]) -> Node:
    order = [axis % len(call.shape) for axis in axes]
    index_map = tuple(Axis(order.index(axis)) for axis in range(len(order)))
    return View(call.shape, (call.node("self"),), index_map, transposed=True, origin=call.origin)


def view(call: Call) -> Node:
    """The same elements in another shape."""
    base = call.node("self")
    return _view(call, base, reshaping(base.shape, call.shape))


def slice_(call: Call) -> Node:
    """Neighbours along an axis, or every `step`-th of them."""
    base = call.node("self")
    place, first, step = _place(call, base), *_first_and_step(call, base)
    return _cut(call, base, call.shape, place, first, step)


def _cut(call: Call, base: Node, shape: Shape, place: int, first: int, step: int = 1) -> Node:
    if isinstance(base.shape[place], Symbol) and (shape != base.shape or first or step != 1):
        raise UnsupportedError("its loss picks some samples or rows")
    axes = same_axes(len(shape))
    moved = times(axes[place], step) if step != 1 else axes[place]
    moved = plus(moved, Number(first)) if first else moved
    return View(shape, (base,), (*axes[:place], moved, *axes[place + 1 :]), origin=call.origin)


def select(call: Call) -> Node:
    """The elements at one place of an axis."""
    base = call.node("self")
    place = _place(call, base)
    size = base.shape[place]
    if isinstance(size, Symbol):
        raise UnsupportedError("its loss picks one of all samples or rows")
    axes, chosen = same_axes(len(call.shape)), Number(call.plain("index") % size)
    return _view(call, base, (*axes[:place], chosen, *axes[place:]))


def slice_backward(call: Call) -> Node:
    """Zeros, except for some neighbours along an axis."""
    base = Constant(call.shape, value=0.0, origin=call.origin)
    place, first, step = _place(call, base), *_first_and_step(call, base)
    return _with_part(call, base, call.node("grad_output"), place, first, step)


def slice_scatter(call: Call) -> Node:
    """A tensor with some neighbours along an axis replaced."""
    base = call.node("self")
    place, first, step = _place(call, base), *_first_and_step(call, base)
    return _with_part(call, base, call.node("src"), place, first, step)


def select_backward(call: Call) -> Node:
    """Zeros, except for one place of an axis."""
    return _with_one(call, Constant(call.shape, value=0.0, origin=call.origin), call.node("grad_output"))


def select_scatter(call: Call) -> Node:
    """A tensor with the elements at one place of an axis replaced."""
    return _with_one(call, call.node("self"), call.node("src"))


def _with_one(call: Call, base: Node, part: Node) -> Node:
    place = _place(call, base)
    size = call.shape[place]
    if isinstance(size, Symbol):
        raise UnsupportedError("its loss picks one of all samples or rows")
    shape = (*part.shape[:place], 1, *part.shape[place:])
    axes = same_axes(len(shape))
    lone = View(shape, (part,), axes[:place] + axes[place + 1 :], origin=call.origin)
    return _with_part(call, base, lone, place, call.plain("index") % size, 1)


def _with_part(call: Call, base: Node, part: Node, place: int, first: int, step: int) -> Node:
    shape = call.shape
    if step != 1:
        raise UnsupportedError("its loss changes every n-th number of an axis")
    if part.shape == shape:
        return part
    size, own_size = shape[place], part.shape[place]
    if isinstance(size, Symbol) or isinstance(own_size, Symbol):
        raise UnsupportedError("its loss picks some samples or rows")

    def rest(start: int, end: int) -> Node:
        own = (*shape[:place], end - start, *shape[place + 1 :])
        if isinstance(base, Constant):
            return Constant(own, value=base.value, origin=call.origin)
        return _cut(call, base, own, place, start)

    parts = [rest(0, first), part, rest(first + own_size, size)]
    return Concat(shape, tuple(each for each in parts if each.shape[place]), place, origin=call.origin)


def _place(call: Call, base: Node) -> int:
    return int(call.plain("dim")) % len(base.shape)


def _first_and_step(call: Call, base: Node) -> tuple[int, int]:
    """The first place of a slice and its step; of samples or rows a loss may only take the whole axis."""
    size, step = base.shape[_place(call, base)], call.plain("step")
    start, other = call.either("start")
    if start != other:
        raise unusual()
    first = start or 0
    if first < 0 and isinstance(size, Symbol):
        raise UnsupportedError("its loss picks some samples or rows")
    return max(0, first + size if first < 0 and isinstance(size, int) else first), step


def diagonal(call: Call) -> Node:
    """The diagonal of a matrix."""
    base = call.node("self")
    _check_diagonal(call, base.shape)
    return _view(call, base, (Axis(0), Axis(0)))


def diagonal_scatter(call: Call) -> Node:
    """A matrix with another diagonal."""
    _check_diagonal(call, call.shape)
    return DiagonalSet(call.shape, (call.node("self"), call.node("src")), origin=call.origin)


def _check_diagonal(call: Call, shape: Shape) -> None:
    axes = sorted(call.plain(name) % len(shape) for name in ("dim1", "dim2"))
    if axes != [0, 1] or len(shape) != 2 or shape[0] != shape[1] or call.plain("offset"):
        raise UnsupportedError("its loss reads a diagonal other than the main one of a square matrix")


def cat(call: Call) -> Node:
    """Tensors joined along an axis."""
    place, parts = call.plain("dim") % len(call.shape), call.nodes("tensors")
    if any(isinstance(part.shape[place], Symbol) for part in parts):
        raise UnsupportedError("its loss joins samples")
    return Concat(call.shape, tuple(parts), place, origin=call.origin)
