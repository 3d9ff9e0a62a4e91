"""The elements of tensors, for statements that only one device has.

`Reader` is the part of `Expressions` that `cpu` and `cuda` use.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from fedrec.federation.engines.fused.ir.index import IndexExpr, Number, plus
from fedrec.federation.engines.fused.ir.nodes import Node
from fedrec.federation.engines.fused.passes.tiling import SIDE, Factor

Places = Mapping[IndexExpr, IndexExpr]
"""The places that replace the variables of a product."""


class Reader(Protocol):
    """Gives the expressions of tensors."""

    def read(self, node: Node, index: Sequence[IndexExpr]) -> str:
        """The expression of an element."""
        ...

    def is_contiguous(self, node: Node, index: Sequence[IndexExpr], place: IndexExpr) -> bool:
        """Whether elements are neighbours in memory along `place`, and the first is at a multiple of four."""
        ...


def element(reader: Reader, factor: Factor, given: Places) -> str:
    """The expression of an element of a factor."""
    return reader.read(factor.node, [given.get(place, place) for place in factor.index])


def fetched(reader: Reader, factor: Factor, into: str, along: IndexExpr, given: Places) -> list[str]:
    """Statements that load `SIDE` elements of a factor into the array `into`, from `given[along]` on."""
    if reader.is_contiguous(factor.node, factor.index, along):
        return [f"load<{SIDE}>({into}, &{element(reader, factor, given)});"]
    first = given[along]
    return [
        f"{into}[{number}] = {element(reader, factor, {**given, along: plus(first, Number(number))})};"
        for number in range(SIDE)
    ]
