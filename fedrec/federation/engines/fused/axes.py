"""Operators that give the elements of a tensor other places, or lay tensors side by side."""

from collections.abc import Sequence

from fedrec.federation.engines.fused.calls import Call, unusual
from fedrec.federation.engines.fused.nodes import (
    ROWS,
    SAMPLES,
    Constant,
    Index,
    Joined,
    Node,
    OnDiagonal,
    Pointwise,
    Reindexed,
    UnsupportedError,
)
from fedrec.federation.engines.fused.reshaping import reshaping


def same(call: Call) -> Node:
    """The tensor itself."""
    return call.node("self")


def cast(call: Call) -> Node:
    """A tensor with another type: real numbers become whole ones towards 0, or true where they are not 0."""
    base, kinds = call.node("self"), (call.kind_of("self"), call.kind)
    text = {("real", "bool"): "(real)({0} != 0)", ("count", "bool"): "(real)({0} != 0)",
            ("real", "count"): "TRUNC({0})"}.get(kinds)  # fmt: skip
    return Pointwise(call.shape, (base,), text) if text else base


def expanded(shape: tuple[int, ...], base: Node) -> Node:
    """A tensor, repeated along axes of size 1 and new ones."""
    ahead = len(shape) - len(base.shape)

    def at(index: Index) -> Index:
        return tuple("0" if size == 1 else own for own, size in zip(index[ahead:], base.shape, strict=True))

    return Reindexed(shape, (base,), at)


def expand(call: Call) -> Node:
    """See `expanded`."""
    return expanded(call.shape, call.node("self"))


def unsqueeze(call: Call) -> Node:
    """An axis more."""
    place = call.plain("dim") % len(call.shape)
    return Reindexed(call.shape, (call.node("self"),), lambda index: index[:place] + index[place + 1 :])


def squeeze(call: Call) -> Node:
    """Without some axes of size 1."""
    base, axes = call.node("self"), call.plain("dim")
    asked = {axis % len(base.shape) for axis in ([axes] if isinstance(axes, int) else axes)}
    gone = {axis for axis in asked if base.shape[axis] == 1}

    def at(index: Index) -> Index:
        left = iter(index)
        return tuple("0" if axis in gone else next(left) for axis in range(len(base.shape)))

    return Reindexed(call.shape, (base,), at)


def matrix_transpose(call: Call) -> Node:
    """Two axes in each other's place."""
    axes = list(range(len(call.shape)))
    return _permuted(call, axes[::-1])


def transpose(call: Call) -> Node:
    """Two axes in each other's place."""
    axes, first, second = list(range(len(call.shape))), call.plain("dim0"), call.plain("dim1")
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return _permuted(call, axes)


def permute(call: Call) -> Node:
    """Axes in another order."""
    return _permuted(call, call.plain("dims"))


def _permuted(call: Call, axes: Sequence[int]) -> Node:
    order = [axis % len(call.shape) for axis in axes]
    return Reindexed(
        call.shape,
        (call.node("self"),),
        lambda index: tuple(index[order.index(axis)] for axis in range(len(order))),
        True,
    )


def view(call: Call) -> Node:
    """The same elements in another shape."""
    base = call.node("self")
    return Reindexed(call.shape, (base,), reshaping(base.shape, call.shape))


def slice_(call: Call) -> Node:
    """Some neighbours along an axis, or every so many of them."""
    base = call.node("self")
    place, first, step = _place(call, base), *_first_and_step(call, base)
    return _cut(base, call.shape, place, first, step)


def _cut(base: Node, shape: tuple[int, ...], place: int, first: int, step: int = 1) -> Node:
    if base.shape[place] in (SAMPLES, ROWS) and (shape != base.shape or first or step != 1):
        raise UnsupportedError("its loss picks some samples or rows")

    def at(index: Index) -> Index:
        moved = f"({index[place]} * {step})" if step != 1 else index[place]
        moved = f"({moved} + {first})" if first else moved
        return (*index[:place], moved, *index[place + 1 :])

    return Reindexed(shape, (base,), at)


def select(call: Call) -> Node:
    """One place along an axis."""
    base = call.node("self")
    place = _place(call, base)
    size = base.shape[place]
    if size in (SAMPLES, ROWS):
        raise UnsupportedError("its loss picks one of all samples or rows")
    chosen = str(call.plain("index") % size)
    return Reindexed(call.shape, (base,), lambda index: (*index[:place], chosen, *index[place:]))


def slice_backward(call: Call) -> Node:
    """Zeros, but for some neighbours along an axis."""
    base = Constant(call.shape, value=0.0)
    place, first, step = _place(call, base), *_first_and_step(call, base)
    return _with_part(call.shape, base, call.node("grad_output"), place, first, step)


def slice_scatter(call: Call) -> Node:
    """A tensor with another one in the place of some neighbours along an axis."""
    base = call.node("self")
    place, first, step = _place(call, base), *_first_and_step(call, base)
    return _with_part(call.shape, base, call.node("src"), place, first, step)


def select_backward(call: Call) -> Node:
    """Zeros, but for one place along an axis."""
    return _with_one(call, Constant(call.shape, value=0.0), call.node("grad_output"))


def select_scatter(call: Call) -> Node:
    """A tensor with another one in one place along an axis."""
    return _with_one(call, call.node("self"), call.node("src"))


def _with_one(call: Call, base: Node, part: Node) -> Node:
    place = _place(call, base)
    if call.shape[place] in (SAMPLES, ROWS):
        raise UnsupportedError("its loss picks one of all samples or rows")
    shape = (*part.shape[:place], 1, *part.shape[place:])
    lone = Reindexed(shape, (part,), lambda index: index[:place] + index[place + 1 :])
    return _with_part(call.shape, base, lone, place, call.plain("index") % call.shape[place], 1)


def _with_part(shape: tuple[int, ...], base: Node, part: Node, place: int, first: int, step: int) -> Node:
    if step != 1:
        raise UnsupportedError("its loss picks every so many numbers of an axis")
    if part.shape == shape:
        return part
    size, behind = shape[place], first + part.shape[place]
    if size in (SAMPLES, ROWS):
        raise UnsupportedError("its loss picks some samples or rows")

    def rest(start: int, end: int) -> Node:
        own = (*shape[:place], end - start, *shape[place + 1 :])
        return (
            Constant(own, value=base.value) if isinstance(base, Constant) else _cut(base, own, place, start)
        )

    parts = [rest(0, first), part, rest(behind, size)]
    return Joined(shape, tuple(each for each in parts if each.shape[place]), place)


def _place(call: Call, base: Node) -> int:
    return int(call.plain("dim")) % len(base.shape)


def _first_and_step(call: Call, base: Node) -> tuple[int, int]:
    """Where a slice begins, and its step; an axis of samples or rows may be there as a whole."""
    size, step = base.shape[_place(call, base)], call.plain("step")
    start, other = call.either("start")
    if start != other:
        raise unusual()
    first = start or 0
    return max(0, first + size if first < 0 else first), step


def diagonal(call: Call) -> Node:
    """The diagonal of a matrix."""
    base = call.node("self")
    _check_diagonal(call, base.shape)
    return Reindexed(call.shape, (base,), lambda index: (index[0], index[0]))


def diagonal_scatter(call: Call) -> Node:
    """A matrix with another diagonal."""
    _check_diagonal(call, call.shape)
    return OnDiagonal(call.shape, (call.node("self"), call.node("src")))


def _check_diagonal(call: Call, shape: tuple[int, ...]) -> None:
    axes = sorted(call.plain(name) % len(shape) for name in ("dim1", "dim2"))
    if axes != [0, 1] or len(shape) != 2 or shape[0] != shape[1] or call.plain("offset"):
        raise UnsupportedError("its loss takes another diagonal than that of a square matrix")


def cat(call: Call) -> Node:
    """Tensors side by side."""
    place, parts = call.plain("dim") % len(call.shape), call.nodes("tensors")
    if any(part.shape[place] in (SAMPLES, ROWS) for part in parts):
        raise UnsupportedError("its loss joins samples")
    return Joined(call.shape, tuple(parts), place)
