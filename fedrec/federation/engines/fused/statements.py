"""Statements of C that compute one tensor: a sample's, a row's, the client's, or that of all samples."""

from collections.abc import Iterator

from fedrec.federation.engines.fused.expressions import Expressions
from fedrec.federation.engines.fused.gpu_samples import each_number_of_samples
from fedrec.federation.engines.fused.loops import (
    adding,
    apart,
    c_name,
    inner_index,
    loop_index,
    looped,
    of_any_sample,
)
from fedrec.federation.engines.fused.nodes import (
    Index,
    Joined,
    Node,
    OnDiagonal,
    Pointwise,
    Reduction,
    Reindexed,
)


def assigned(expressions: Expressions, node: Node) -> list[str]:
    """Statements that compute a tensor of one sample or row, or a number of the client."""
    name = expressions.name(node)
    if node in expressions.placing.kept:
        return computed(expressions, node, by_lanes=False)
    if node.count > 1:
        return [f"real {name}[{node.count}];", *computed(expressions, node, by_lanes=False)]
    if isinstance(node, Pointwise):
        return [f"const real {name} = {expressions.formula(node, loop_index(node.shape))};"]
    return [f"real {name};", *computed(expressions, node, by_lanes=False)]


def computed(expressions: Expressions, node: Node, *, by_lanes: bool) -> list[str]:
    """Statements that compute every element of a tensor; `by_lanes` divides them among lanes."""
    if isinstance(node, Joined):
        return list(_joined(expressions, node, by_lanes))
    if isinstance(node, Reduction) and len(node.inputs) == 2 and not by_lanes and node.count > 1:
        return _product(expressions, node)
    index = loop_index(node.shape)
    loops = looped(node.shape, index, _element(expressions, node, index), by_lanes)
    return loops if expressions.gpu or isinstance(node, Reduction) else apart(loops)


def _element(expressions: Expressions, node: Node, index: Index) -> list[str]:
    target = expressions.array_element(node, index)
    if isinstance(node, Pointwise):
        return [f"{target} = {expressions.formula(node, index)};"]
    if isinstance(node, OnDiagonal):
        base, line = node.inputs
        on, off = expressions.read(line, (index[0],)), expressions.read(base, index)
        return [f"{target} = {index[0]} == {index[1]} ? {on} : {off};"]
    assert isinstance(node, Reduction)
    inner = inner_index(node.over)
    term = expressions.term(node, index, inner)
    start = "-(real)INFINITY" if node.largest else "0"
    gather = f"total = most(total, {term});" if node.largest else f"total += {term};"
    loops = looped(node.over, inner, [gather], by_lanes=False)
    if not node.largest:
        loops = adding(loops)
    return [f"real total = {start};", *loops, f"{target} = total;"]


def _product(expressions: Expressions, node: Reduction) -> list[str]:
    """A product with a matrix, added up row by row of it, so that neighbours are done at once."""
    index, inner = loop_index(node.shape), inner_index(node.over)
    turned = isinstance(node.inputs[1], Reindexed) and node.inputs[1].turned
    if turned:
        return looped(node.shape, index, _element(expressions, node, index), by_lanes=False)
    target = expressions.array_element(node, index)
    zero = looped(node.shape, index, [f"{target} = 0;"], by_lanes=False)
    add = looped(node.shape, index, [f"{target} += {expressions.term(node, index, inner)};"], by_lanes=False)
    return [*zero, *looped(node.over, inner, add, by_lanes=False)]


def _joined(expressions: Expressions, node: Joined, by_lanes: bool) -> Iterator[str]:
    first = 0
    for part in node.inputs:
        index = loop_index(part.shape)
        if by_lanes:
            index = of_any_sample(index)
        moved = tuple(
            f"({place} + {first})" if axis == node.axis and first else place
            for axis, place in enumerate(index)
        )
        line = f"{expressions.array_element(node, moved)} = {expressions.read(part, index)};"
        loops = looped(part.shape, index, [line], by_lanes)
        yield from loops if expressions.gpu else apart(loops)
        first += part.shape[node.axis]


def of_all_samples(expressions: Expressions, node: Node) -> list[str]:
    """Statements that compute a tensor of all samples, number by number."""
    if isinstance(node, Joined):
        return list(_joined(expressions, node, by_lanes=True))
    assert isinstance(node, Pointwise)
    index = of_any_sample(loop_index(node.shape))
    return each_number_of_samples(expressions, node, index, expressions.formula(node, index))


def stored_gradient(expressions: Expressions, table: str, node: Node) -> list[str]:
    """Leave a sample's gradient where its row will find it."""
    index, width, target = loop_index(node.shape), node.shape[1], f"gradient_{c_name(table)}"
    if not expressions.gpu:
        line = f"{target}[i * {width} + {index[1]}] = {expressions.read(node, index)};"
        return apart(looped(node.shape, index, [line], by_lanes=False))
    lines = looped(node.shape, index, [f"own[{index[1]}] = {expressions.read(node, index)};"], by_lanes=False)
    return ["{", f"real own[{width}];", *lines, f"store<{width}>({target} + i * {width}, own);", "}"]
