"""The expression of C that reads an element of a tensor, for every place where the kernel may store it.

The module reads a `Schedule` and gives texts to the statements. It also records what they read: inputs,
constants that are arguments of the kernel, and tensors that a block of samples needs in shared memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from fedrec.federation.engines.fused.backend.c_operators import operator_text
from fedrec.federation.engines.fused.backend.cuda.blocks import Local, stride
from fedrec.federation.engines.fused.backend.loops import c_name
from fedrec.federation.engines.fused.ir.dims import SAMPLES, Shape
from fedrec.federation.engines.fused.ir.index import CURRENT, ZERO, Index, IndexExpr, broadcast, flat
from fedrec.federation.engines.fused.ir.nodes import (
    Constant,
    Count,
    Input,
    Leaf,
    Node,
    Pointwise,
    Reduction,
    View,
)
from fedrec.federation.engines.fused.passes.schedule import Schedule
from fedrec.federation.engines.fused.passes.tiling import SIDE

_LITERALS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5)
"""Numbers that are literals of the code. Others are arguments of the kernel, since rounds may change them."""


class Expressions:
    """Writes the expressions of the tensors of one graph."""

    def __init__(self, schedule: Schedule, prefix: str, first_constant: int) -> None:
        self.schedule = schedule
        """The schedule of the graph."""
        self.prefix = prefix
        """The beginning of all names in C, such as `s0_` for the first step of the fit."""
        self.gpu = schedule.target.is_gpu
        """Whether the device is a GPU."""
        self._first_constant = first_constant
        """The number of the first constant among all constants of the kernel."""
        self._number = {node: number for number, node in enumerate(schedule.order)}
        """The number of each node, which ends its name in C."""
        self.sum_offset: dict[Node, int] = {}
        """The place of a sum over samples or rows among all numbers of the sums of its stage."""
        self._block_copies: dict[tuple[int, Node], Local] = {}
        """The array in a stage's blocks of a tensor that other stages compute or read, too."""
        self._block_stage: int | None = None
        """The stage whose blocks the current statements are for; None outside of blocks."""
        self._substitutes: dict[Node, str] = {}
        """Expressions that replace tensors in the formula that is being written."""
        self._constants: list[Constant] = []
        """The constants that are arguments of the kernel, in order."""
        self.leaves: dict[Leaf, Shape] = {}
        """The inputs that were read, with their shapes."""
        self._rows_read: set[str] = set()
        """The tables of which the row of the current sample was read."""

    @property
    def constants(self) -> list[float]:
        """The constants that are arguments of the kernel, in order."""
        return [node.value for node in self._constants]

    @contextmanager
    def in_block(self, stage: int | None) -> Iterator[None]:
        """Inside the `with`, expressions read the arrays of this stage's blocks; None for no block."""
        outer, self._block_stage = self._block_stage, stage
        try:
            yield
        finally:
            self._block_stage = outer

    @contextmanager
    def substituted(self, node: Node, expression: str) -> Iterator[None]:
        """Inside the `with`, an expression replaces every element of a tensor."""
        self._substitutes[node] = expression
        try:
            yield
        finally:
            del self._substitutes[node]

    @contextmanager
    def noting_rows(self) -> Iterator[set[str]]:
        """Give the set of tables of which expressions inside the `with` read the current sample's row."""
        outer, self._rows_read = self._rows_read, set()
        try:
            yield self._rows_read
        finally:
            self._rows_read = outer

    def read(self, node: Node, index: Sequence[IndexExpr]) -> str:
        """The expression of an element of a tensor; in it `i` is the current sample or row."""
        if isinstance(node, View):
            return self.read(node.inputs[0], node.at(tuple(index)))
        if node in self._substitutes:
            return self._substitutes[node]
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, Count):
            return "(real)n" if node.of == SAMPLES else "(real)rows"
        if isinstance(node, Input):
            return self._read_leaf(node, tuple(index))
        if node in self.schedule.inlined:
            assert isinstance(node, Pointwise)
            return self.formula(node, tuple(index))
        return self.array_element(node, tuple(index))

    def formula(self, node: Pointwise, index: Index) -> str:
        """The expression that computes an element of a formula."""
        parts = [self.read(each, broadcast(index, each.shape)) for each in node.inputs]
        return operator_text(node.op, parts)

    def term(self, node: Reduction, index: Index, inner: Index) -> str:
        """The product of inputs that a reduction sums; `inner` has the places on the axes that it covers."""
        every = (*index, *inner)
        parts = []
        for each, places in zip(node.inputs, node.places, strict=True):
            own = tuple(ZERO if place is None else every[place] for place in places)
            parts.append(self.read(each, own))
        return " * ".join(parts)

    def is_contiguous(self, node: Node, index: Sequence[IndexExpr], place: IndexExpr) -> bool:
        """Whether elements are neighbours in memory along `place`, and the first is at a multiple of four."""
        return self.schedule.is_contiguous(node, index, place, self.sum_offset)

    def _read_leaf(self, node: Input, index: Index) -> str:
        leaf = node.leaf
        self.leaves[leaf] = node.shape
        name = c_name(leaf.name)
        if leaf.part == "rows":
            sample, place = index
            here = self._block_copy(node)
            if here:
                return f"{here}[({sample} - i0) * {stride(node.count)} + {place}]"
            if sample == CURRENT:
                self._rows_read.add(leaf.name)
                return f"row_{name}[{place}]"
            return f"table_{name}[(integer){self._row_numbers(leaf)}[{sample}] * {node.count} + {place}]"
        if leaf.part == "whole":
            return f"table_{name}[(integer){index[0]} * {node.count} + {index[1]}]"
        if leaf.part == "training_sum":
            return f"sum_{name}[{index[1]}]"
        if leaf.part in ("labels", "occurrences", "distinct"):
            return f"{leaf.part}[{index[0]}]"
        if leaf.part in ("interactions", "held"):
            return leaf.part
        if leaf.part == "number":
            return f"{self.prefix}number{leaf.name}"
        if leaf.part == "size":
            return "(real)n"
        letter = "x" if leaf.part == "value" else "derived"
        return f"{letter}_{name}[{flat(index, node.shape)}]"

    def _row_numbers(self, leaf: Leaf) -> str:
        """The array with the row of each sample in a table."""
        return "user_slot" if leaf.name in self.schedule.graph.by_user else "slot"

    def array_element(self, node: Node, index: Index) -> str:
        """The expression of an element of a tensor that has its own array or variable."""
        name = self.name(node)
        static = flat(index, node.shape)
        if SAMPLES in node.shape:
            sample = index[node.shape.index(SAMPLES)]
            here = name if self.schedule.is_of_block(node) else self._block_copy(node)
            if here:
                return f"{here}[({sample} - i0) * {stride(node.count)} + {static}]"
            if self.schedule.is_stored(node):
                return f"{name}[{sample} * {node.count} + {static}]"
            assert sample == CURRENT, "only stored tensors can be read for other samples"
            return name if node.count == 1 else f"{name}[{static}]"
        if node in self.sum_offset:
            return f"{self.sum_array(node)}[{self.sum_offset[node]} + {static}]"
        return name if node.count == 1 else f"{name}[{static}]"

    def name(self, node: Node) -> str:
        """The name of the array or variable of a tensor."""
        return f"{self.prefix}{self._number[node]}"

    def sum_array(self, node: Node, *, of_lane: bool = False) -> str:
        """The array with a sum or maximum over samples or rows; with `of_lane` that of one lane's part."""
        own, all_ = ("high", "highest") if isinstance(node, Reduction) and node.largest else ("sum", "total")
        late = "_late" if self.is_late_sum(node) else ""
        return f"{self.prefix}{own if of_lane else all_}{self.schedule.stage[node]}{late}"

    def is_late_sum(self, node: Node) -> bool:
        """Whether a loop over samples after phase 0 computes a sum, on a GPU."""
        return self.gpu and self.schedule.phase[node] > 0

    def _constant(self, node: Constant) -> str:
        value = node.value
        if value in _LITERALS:
            return f"(real){value!r}" if value >= 0 else f"((real){value!r})"
        if value == float("inf"):
            return "(real)INFINITY"
        if value == float("-inf"):
            return "(-(real)INFINITY)"
        # Two equal constants may differ in the next round, so each is its own argument.
        if node not in self._constants:
            self._constants.append(node)
        return f"constant{self._first_constant + self._constants.index(node)}"

    def _block_copy(self, node: Node) -> str:
        """The array of the current block for a tensor that is stored elsewhere, too; empty if it has none."""
        stage = self._block_stage
        if stage is None or node.count % SIDE or not self._is_fetched_or_left(node, stage):
            return ""
        known = self._block_copies.get((stage, node))
        return known.name if known else self._new_block_copy(stage, node)

    def _is_fetched_or_left(self, node: Node, stage: int) -> bool:
        """Whether a block loads a tensor of samples when it begins, or stores it in shared memory as well."""
        if isinstance(node, Input):
            return True
        if self.schedule.stage[node] < stage or not self.schedule.phase[node]:
            return True
        made = [each for each, last in self.schedule.epilogue.items() if last is node] or [node]
        return (
            self.schedule.is_by_tiles(made[0])
            and self.schedule.last_phase(node, stage) > self.schedule.phase[node]
        )

    def _new_block_copy(self, stage: int, node: Node) -> str:
        name = f"{self.prefix}here{stage}_{self._number[node]}"
        made_here = (
            not isinstance(node, Input)
            and self.schedule.stage[node] == stage
            and self.schedule.phase[node] > 0
        )
        source = f"table_{c_name(node.leaf.name)}" if isinstance(node, Input) else self.name(node)
        self._block_copies[stage, node] = Local(
            name,
            node.count,
            stage,
            born=self.schedule.phase[node] if made_here else 0,
            dies=self.schedule.last_phase(node, stage),
            source="" if made_here else source,
            slots=self._row_numbers(node.leaf) if isinstance(node, Input) else "",
            reads=self.schedule.first_phase(node, stage),
        )
        return name

    def block_arrays(self) -> list[Local]:
        """The arrays of the blocks of all stages."""
        own = [
            Local(
                self.name(node), node.count, self.schedule.stage[node], self.schedule.phase[node],
                max(self.schedule.phase[node], self.schedule.last_phase(node, self.schedule.stage[node])),
            )
            for node in self.schedule.order
            if self.schedule.is_of_block(node)
        ]  # fmt: skip
        return [*own, *self._block_copies.values()]
