"""The elements of tensors, as the code of one device asks for them."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedrec.federation.engines.fused.ir.index import IndexExpr, Number, plus
from fedrec.federation.engines.fused.ir.nodes import Node
from fedrec.federation.engines.fused.passes.tiling import SIDE, Factor

Places = Mapping[IndexExpr, IndexExpr]
"""The variables that stand for places of a product."""


class Reader(Protocol):
    """Knows the expressions of tensors."""

    def read(self, node: Node, index: Sequence[IndexExpr]) -> str:
        """The expression of an element."""
        ...

    def is_contiguous(self, node: Node, index: Sequence[IndexExpr], place: IndexExpr) -> bool:
        """Whether elements lie side by side as `place` goes up, the first at a multiple of four."""
        ...


def element(reader: Reader, factor: Factor, given: Places) -> str:
    """The expression of an element of a factor."""
    return reader.read(factor.node, [given.get(place, place) for place in factor.index])


def fetched(reader: Reader, factor: Factor, into: str, along: IndexExpr, given: Places) -> list[str]:
    """Statements that fetch four elements of a factor, from `given[along]` on."""
    if reader.is_contiguous(factor.node, factor.index, along):
        return [f"load<{SIDE}>({into}, &{element(reader, factor, given)});"]
    first = given[along]
    return [
        f"{into}[{number}] = {element(reader, factor, {**given, along: plus(first, Number(number))})};"
        for number in range(SIDE)
    ]
