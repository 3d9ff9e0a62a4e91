"""Statements of C that compute one tensor.

The module reads a node and `Expressions`. It gives lines of C for a tensor of a sample, a row, the client or
all samples.
"""

from collections.abc import Iterator

from fedrec.federation.engines.fused.backend.cuda.samples import each_number_of_samples
from fedrec.federation.engines.fused.backend.expressions import Expressions
from fedrec.federation.engines.fused.backend.loops import LoopKind, c_name, looped
from fedrec.federation.engines.fused.ir.index import (
    Index,
    Number,
    inner_index,
    loop_index,
    of_any_sample,
    plus,
)
from fedrec.federation.engines.fused.ir.nodes import Concat, DiagonalSet, Node, Pointwise, Reduction, View


def assigned(expressions: Expressions, node: Node) -> list[str]:
    """Statements that declare and compute a tensor of one sample or row, or a number of the client."""
    name = expressions.name(node)
    if expressions.schedule.is_stored(node):
        return computed(expressions, node, by_lanes=False)
    if node.count > 1:
        return [f"real {name}[{node.count}];", *computed(expressions, node, by_lanes=False)]
    if isinstance(node, Pointwise):
        return [f"const real {name} = {expressions.formula(node, loop_index(node.shape))};"]
    return [f"real {name};", *computed(expressions, node, by_lanes=False)]


def computed(expressions: Expressions, node: Node, *, by_lanes: bool) -> list[str]:
    """Statements that compute every element of a tensor; with `by_lanes` lanes divide the elements."""
    if isinstance(node, Concat):
        return list(_concatenated(expressions, node, by_lanes))
    if isinstance(node, Reduction) and len(node.inputs) == 2 and not by_lanes and node.count > 1:
        return _product(expressions, node)
    index = loop_index(node.shape)
    innermost = LoopKind.UNROLLED if isinstance(node, Reduction) else _elements(expressions)
    return looped(node.shape, index, _element(expressions, node, index), by_lanes, innermost)


def _elements(expressions: Expressions) -> LoopKind:
    """The kind of an innermost loop that computes one element in each iteration."""
    return LoopKind.UNROLLED if expressions.gpu else LoopKind.INDEPENDENT


def _element(expressions: Expressions, node: Node, index: Index) -> list[str]:
    target = expressions.array_element(node, index)
    if isinstance(node, Pointwise):
        return [f"{target} = {expressions.formula(node, index)};"]
    if isinstance(node, DiagonalSet):
        base, line = node.inputs
        on, off = expressions.read(line, (index[0],)), expressions.read(base, index)
        return [f"{target} = {index[0]} == {index[1]} ? {on} : {off};"]
    assert isinstance(node, Reduction)
    inner = inner_index(node.over)
    term = expressions.term(node, index, inner)
    start = "-(real)INFINITY" if node.largest else "0"
    gather = f"total = most(total, {term});" if node.largest else f"total += {term};"
    innermost = LoopKind.UNROLLED if node.largest else LoopKind.SUMMED
    loops = looped(node.over, inner, [gather], by_lanes=False, innermost=innermost)
    return [f"real total = {start};", *loops, f"{target} = total;"]


def _product(expressions: Expressions, node: Reduction) -> list[str]:
    """A product with a matrix, summed row by row of the matrix, so that the C compiler vectorises it."""
    index, inner = loop_index(node.shape), inner_index(node.over)
    if isinstance(node.inputs[1], View) and node.inputs[1].transposed:
        return looped(node.shape, index, _element(expressions, node, index), by_lanes=False)
    target = expressions.array_element(node, index)
    zero = looped(node.shape, index, [f"{target} = 0;"], by_lanes=False)
    add = looped(node.shape, index, [f"{target} += {expressions.term(node, index, inner)};"], by_lanes=False)
    return [*zero, *looped(node.over, inner, add, by_lanes=False)]


def _concatenated(expressions: Expressions, node: Concat, by_lanes: bool) -> Iterator[str]:
    first = 0
    for part in node.inputs:
        index = loop_index(part.shape)
        if by_lanes:
            index = of_any_sample(index)
        moved = tuple(
            plus(place, Number(first)) if axis == node.axis and first else place
            for axis, place in enumerate(index)
        )
        line = f"{expressions.array_element(node, moved)} = {expressions.read(part, index)};"
        yield from looped(part.shape, index, [line], by_lanes, _elements(expressions))
        size = part.shape[node.axis]
        assert isinstance(size, int), "samples are never concatenated"
        first += size


def of_all_samples(expressions: Expressions, node: Node) -> list[str]:
    """Statements by which lanes compute a tensor of all samples together."""
    if isinstance(node, Concat):
        return list(_concatenated(expressions, node, by_lanes=True))
    assert isinstance(node, Pointwise)
    index = of_any_sample(loop_index(node.shape))
    return each_number_of_samples(expressions, node, index, expressions.formula(node, index))


def stored_gradient(expressions: Expressions, table: str, node: Node) -> list[str]:
    """Statements that store a sample's gradient in the array from which the loop over rows reads it."""
    index, width, target = loop_index(node.shape), node.count, f"gradient_{c_name(table)}"
    if not expressions.gpu:
        line = f"{target}[i * {width} + {index[1]}] = {expressions.read(node, index)};"
        return looped(node.shape, index, [line], by_lanes=False, innermost=LoopKind.INDEPENDENT)
    lines = looped(node.shape, index, [f"own[{index[1]}] = {expressions.read(node, index)};"], by_lanes=False)
    return ["{", f"real own[{width}];", *lines, f"store<{width}>({target} + i * {width}, own);", "}"]
