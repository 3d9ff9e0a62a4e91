"""A graph as statements of C: per client, per sample and per row, in stages.

A sum over all samples is known when the last of them has been looked at. What follows from it, and what every
sample makes of that, comes in the next stage: a stage is work on the client's own numbers, then a loop over
samples and one over rows. A tensor of one sample lives in registers, unless a later stage needs it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from fedrec.federation.engines.fused import cpu_samples
from fedrec.federation.engines.fused.gpu_blocks import Local, stride
from fedrec.federation.engines.fused.gpu_products import PRODUCT, Epilogue, outer, product, turned
from fedrec.federation.engines.fused.gpu_samples import (
    SIDE,
    Tiled,
    each_number_of_samples,
    grouped_sum,
    lane_total,
    outer_of,
    product_of,
)
from fedrec.federation.engines.fused.loops import (
    adding,
    apart,
    broadcast,
    c_name,
    flat,
    loop_index,
    looped,
    of_any_sample,
)
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
from fedrec.federation.engines.fused.placing import Placing
from fedrec.federation.engines.fused.readers import (
    goes_over_varying,
)
from fedrec.federation.engines.fused.target import H200, TargetDevice

NodeT = TypeVar("NodeT", bound=Node)
_LITERALS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5)
"""Numbers that are written into the code; others are given with each call, since rounds may change them."""


@dataclass
class Stage:
    """The statements of a stage, and the sums that its loops make: the first of each, and how many."""

    in_blocks: bool = False
    """Whether a GPU's lanes look at samples block by block."""
    client: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    """What lanes compute of all samples together, number by number, before anything else."""
    turns: dict[int, list[str]] = field(default_factory=dict)
    """What is done with a sample, by the loop over samples that does it."""
    tiles: dict[int, list[str]] = field(default_factory=dict)
    """What a CPU does with a block of samples at once, by its turn among those loops."""
    row: list[str] = field(default_factory=list)
    together: dict[int, list[str]] = field(default_factory=dict)
    """What lanes of a GPU do together with samples, by its turn; none of it comes in the first."""
    sums: int = 0
    late_sums: int = 0
    """Those that a GPU's loops behind the first make."""
    turned: dict[str, str] = field(default_factory=dict)
    """Matrices that lie the other way for products, and where they are turned to."""
    multiplied: Counter[int] = field(default_factory=Counter)
    """Products of every sample with a matrix that a turn has so far."""
    before: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)
    """What lanes do before the first and behind the last block, for sums over all of them."""

    @property
    def loops(self) -> list[list[str]]:
        """What each loop over samples does, in the order of the loops."""
        return [lines for _, lines in sorted(self.turns.items())]

    @property
    def parts(self) -> list[tuple[int, list[str], bool]]:
        """All that is done with samples, by turns, and whether it is done with a block of them at once."""
        both = [(turn, lines, False) for turn, lines in self.turns.items()]
        both += [(turn, lines, True) for turn, lines in self.tiles.items()]
        return sorted(both, key=lambda part: part[0])

    @property
    def sample(self) -> list[str]:
        """All that is done with a sample."""
        return [line for lines in self.loops for line in lines]


@dataclass
class Lowered:
    """The code of a step's loss and gradients."""

    stages: list[Stage]
    leaves: dict[Leaf, tuple[int, ...]]
    """What it reads, and its shape."""
    arrays: dict[str, int]
    """Arrays of the client, by name, and their numbers."""
    kept: dict[str, int]
    """Arrays of one entry per sample, by name, and the numbers in an entry."""
    locals: list[Local]
    """Arrays of a block of samples."""
    constants: list[float]
    """Numbers to be given with each call."""
    loss: str
    gradients: dict[Leaf, "Gradient"]


@dataclass(frozen=True)
class Gradient:
    """The gradient by a leaf: an expression for each element of a client or row; of samples it is stored."""

    node: Node
    lowering: "Lowering"
    is_direct: bool = False
    """Whether it is an expression for samples, too, and nothing is stored."""

    def at(self, *index: str) -> str:
        """The expression of an element."""
        return self.lowering.read(self.node, index)

    @property
    def is_zero(self) -> bool:
        """Whether the loss does not depend on the leaf."""
        node = self.node
        while isinstance(node, Reindexed):
            (node,) = node.inputs
        return isinstance(node, Constant) and node.value == 0


def lowered(
    graph: LossGraph, prefix: str, *, gpu: bool, target: TargetDevice = H200, first_constant: int = 0
) -> Lowered:
    """The code of a graph; names of its arrays begin with `prefix`."""
    return Lowering(graph, prefix, gpu, target, first_constant).result()


class Lowering:
    """Turns a graph into statements."""

    def __init__(
        self, graph: LossGraph, prefix: str, gpu: bool, target: TargetDevice, first_constant: int
    ) -> None:
        self._prefix = prefix
        self._gpu = gpu
        self._first_constant = first_constant
        self._target = target
        self._placing = Placing(graph, gpu=gpu, target=target)
        self._graph = self._placing.graph
        self._number = {node: number for number, node in enumerate(self._placing.order)}
        self._sum_place: dict[Node, int] = {}
        self._here: dict[tuple[int, Node], Local] = {}
        """What a stage has near of what others made or need, too."""
        self._block: int | None = None
        """The stage whose lanes work together on a block, while that is written."""
        self._standing_for: dict[Node, str] = {}
        self._arrays: dict[str, int] = {}
        self._turned: dict[str, int] = {}
        self._matrices: set[str] = set()
        """Arrays of the client that every sample is multiplied with: first where memory is short."""
        self._constants: list[Constant] = []
        self._leaves: dict[Leaf, tuple[int, ...]] = {}

    def result(self) -> Lowered:
        """All statements."""
        outputs = list(self._graph.gradients.values())
        count = 1 + max((self._placing.ready(node) for node in (self._graph.loss, *outputs)), default=0)
        stages = [Stage(number in self._placing.blocked) for number in range(count)]
        elsewhere = self._placing.inlined | set(self._placing.epilogue.values())
        for node in self._placing.order:
            if not isinstance(node, Input | Constant | Count | Reindexed) and node not in elsewhere:
                self._emit(node, stages[self._placing.stage[node]])
        for leaf, node in self._graph.gradients.items():
            if leaf.part == "rows" and not (node in self._placing.direct or Gradient(node, self).is_zero):
                stage = stages[self._placing.output_stage(node)]
                stage.turns.setdefault(self._placing.output_turn(node), []).extend(
                    self._store(leaf.name, node)
                )
        gradients = {
            leaf: Gradient(node, self, leaf.part == "rows" and node in self._placing.direct)
            for leaf, node in self._graph.gradients.items()
        }
        loss = self.read(self._graph.loss, ("0",) * len(self._graph.loss.shape))
        for leaf, gradient in gradients.items():
            if leaf.part != "rows" or gradient.is_direct:
                # Reads what it needs: leaves and constants are noted.
                gradient.at(*("0" for _ in gradient.node.shape))
        kept = {
            self._name(node): node.count
            for node in self._placing.order
            if node in self._placing.kept and node not in self._placing.local
        }
        constants = [node.value for node in self._constants]
        matrices = {name: size for name, size in self._arrays.items() if name in self._matrices}
        arrays = self._turned | matrices | self._arrays
        return Lowered(stages, self._leaves, arrays, kept, self._locals(), constants, loss, gradients)

    def read(self, node: Node, index: Sequence[str]) -> str:
        """The expression of an element of a tensor; `i` is the sample or row at hand."""
        if isinstance(node, Reindexed):
            return self.read(node.inputs[0], node.at(tuple(index)))
        if node in self._standing_for:
            return self._standing_for[node]
        if isinstance(node, Constant):
            return self._constant(node)
        if isinstance(node, Count):
            return "(real)n" if node.of == SAMPLES else "(real)rows"
        if isinstance(node, Input):
            return self._read_leaf(node, tuple(index))
        if node in self._placing.inlined:
            assert isinstance(node, Pointwise)
            return self._formula(node, tuple(index))
        return self._read_array(node, tuple(index))

    def _formula(self, node: Pointwise, index: Index) -> str:
        parts = [self.read(each, broadcast(index, each.shape)) for each in node.inputs]
        return node.formula.format(*parts)

    def _read_leaf(self, node: Input, index: Index) -> str:
        leaf = node.leaf
        self._leaves[leaf] = node.shape
        name = c_name(leaf.name)
        if leaf.part == "rows":
            sample, place = index
            here = self._nearby(node)
            if here:
                return f"{here}[({sample} - i0) * {stride(node.count)} + {place}]"
            if sample == "i":
                return f"row_{name}[{place}]"
            return f"table_{name}[(integer){self._slots(leaf)}[{sample}] * {node.shape[1]} + {place}]"
        if leaf.part == "whole":
            return f"table_{name}[(integer){index[0]} * {node.shape[1]} + {index[1]}]"
        if leaf.part == "training_sum":
            return f"sum_{name}[{index[1]}]"
        if leaf.part in ("labels", "occurrences", "distinct"):
            return f"{leaf.part}[{index[0]}]"
        if leaf.part in ("interactions", "held"):
            return leaf.part
        if leaf.part == "number":
            return f"{self._prefix}number{leaf.name}"
        if leaf.part == "size":
            return "(real)n"
        letter = "x" if leaf.part == "value" else "derived"
        return f"{letter}_{name}[{flat(index, node.shape)}]"

    def _slots(self, leaf: Leaf) -> str:
        """The array that tells which row of a table a sample is about."""
        return "user_slot" if leaf.name in self._graph.by_user else "slot"

    def _read_array(self, node: Node, index: Index) -> str:
        name = self._name(node)
        static = flat(index, node.shape)
        if SAMPLES in node.shape:
            sample = index[node.shape.index(SAMPLES)]
            here = name if node in self._placing.local else self._nearby(node)
            if here:
                return f"{here}[({sample} - i0) * {stride(node.count)} + {static}]"
            if node in self._placing.kept:
                return f"{name}[{sample} * {node.count} + {static}]"
            assert sample == "i", "only what is kept is known of other samples"
            return name if node.count == 1 else f"{name}[{static}]"
        if node in self._sum_place:
            return f"{self._sums(node)}[{self._sum_place[node]} + {static}]"
        return name if node.count == 1 else f"{name}[{static}]"

    def _name(self, node: Node) -> str:
        return f"{self._prefix}{self._number[node]}"

    def _sums(self, node: Node) -> str:
        return f"{self._prefix}total{self._placing.stage[node]}{'_late' if self._is_late(node) else ''}"

    def _is_late(self, node: Node) -> bool:
        """Whether a GPU's loop over samples behind the first one makes a sum."""
        return self._gpu and self._placing.turn[node] > 0

    def _constant(self, node: Constant) -> str:
        value = node.value
        if value in _LITERALS:
            return f"(real){value!r}" if value >= 0 else f"((real){value!r})"
        if value == float("inf"):
            return "(real)INFINITY"
        if value == float("-inf"):
            return "(-(real)INFINITY)"
        # The same number twice may be two numbers in the next round: every place has its own.
        if node not in self._constants:
            self._constants.append(node)
        return f"constant{self._first_constant + self._constants.index(node)}"

    def _emit(self, node: Node, stage: Stage) -> None:
        if node in self._placing.by_lanes:
            assert isinstance(node, Reduction)
            self._emit_together(node, stage, self._shared_out)
        elif node in self._placing.tiled:
            assert isinstance(node, Reduction)
            self._emit_tiles(node, self._placing.tiled[node], stage)
        elif isinstance(node, Reduction) and goes_over_varying(node):
            self._emit_sum(node, stage)
        elif node in self._placing.wide and self._placing.turn[node]:
            self._emit_together(node, stage, self._numbers_of_block)
        elif node in self._placing.wide:
            stage.wide += [*self._of_all_samples(node), "SYNC();"]
        elif SAMPLES in node.shape:
            stage.turns.setdefault(self._placing.turn[node], []).extend(self._assigned(node))
        elif ROWS in node.shape:
            stage.row += self._assigned(node)
        else:
            stage.client += self._of_client(node)

    def _emit_together(self, node: NodeT, stage: Stage, written: Callable[[NodeT, Stage], list[str]]) -> None:
        """What lanes do together with samples."""
        number, turn = self._placing.stage[node], self._placing.turn[node]
        if number in self._placing.blocked:
            self._block = number
        stage.together.setdefault(turn, []).extend(written(node, stage))
        self._block = None

    def _emit_tiles(self, node: Reduction, tiled: Tiled, stage: Stage) -> None:
        """A product of all samples, or a sum of such over them, block by block of samples."""
        lines = stage.tiles.setdefault(self._placing.turn[node], [])
        if SAMPLES in node.over:
            lines += cpu_samples.block_outer(self, tiled, self._summed(node, stage))
            return
        matrix, right = f"{self._name(node)}_matrix", tiled.right
        if self.is_run(right.node, right.index, tiled.of_right):
            matrix = f"(&{right.at(self, {'s0': '0', tiled.of_right: '0'})})"
        else:
            self._arrays[matrix] = math.prod(node.over) * node.count
            stage.client += cpu_samples.matrix_by_rows(self, tiled, matrix)
        first = tuple("i0" if size == SAMPLES else "0" for size in node.shape)
        lines += cpu_samples.block_product(self, tiled, matrix, f"&{self._read_array(node, first)}")

    def _summed(self, node: Reduction, stage: Stage) -> str:
        """Where the sums of a reduction over samples or rows begin."""
        if self._is_late(node):
            self._sum_place[node] = stage.late_sums
            stage.late_sums += node.count
        else:
            self._sum_place[node] = stage.sums
            stage.sums += node.count
        return f"{self._sums(node).replace('total', 'sum')} + {self._sum_place[node]}"

    def _assigned(self, node: Node) -> list[str]:
        """Statements that compute a tensor of one sample or row, or a number of the client."""
        name = self._name(node)
        if node in self._placing.kept:
            return self._computed(node, by_lanes=False)
        if node.count > 1:
            return [f"real {name}[{node.count}];", *self._computed(node, by_lanes=False)]
        if isinstance(node, Pointwise):
            return [f"const real {name} = {self._formula(node, loop_index(node.shape))};"]
        return [f"real {name};", *self._computed(node, by_lanes=False)]

    def _of_client(self, node: Node) -> list[str]:
        """Statements that compute a tensor of the client: each lane some, or all lanes one number."""
        if node.count == 1:
            return self._total(node) if self._gpu and self._adds_many(node) else self._assigned(node)
        self._arrays[self._name(node)] = node.count
        return [*self._computed(node, by_lanes=True), "SYNC();"]

    def _total(self, node: Node) -> list[str]:
        """Statements for a number that is a sum of many: each lane adds up some."""
        assert isinstance(node, Reduction)
        inner = tuple(f"s{number}" for number in range(len(node.over)))
        return lane_total(node, self._term(node, loop_index(node.shape), inner), inner, self._name(node))

    def _of_all_samples(self, node: Node) -> list[str]:
        """Statements that compute a tensor of all samples, number by number."""
        if isinstance(node, Joined):
            return list(self._joined(node, by_lanes=True))
        assert isinstance(node, Pointwise)
        index = of_any_sample(loop_index(node.shape))
        return each_number_of_samples(self, node, index, self._formula(node, index))

    def _numbers_of_block(self, node: Node, _stage: Stage) -> list[str]:
        """Statements that compute a tensor of a block, number by number."""
        sources = [
            each for inner in node.inputs for each in self._placing.sources(inner) if SAMPLES in each.shape
        ]
        place = (self._placing.stage[node], self._placing.turn[node])
        waits = any((self._placing.stage[each], self._placing.turn[each]) == place for each in sources)
        return [*(["SYNC();"] if waits else []), *self._of_all_samples(node)]

    def is_run(self, node: Node, index: Sequence[str], place: str) -> bool:
        """Whether elements lie side by side as `place` goes up, the first at a multiple of four."""
        return self._placing.is_run(node, index, place, self._sum_place)

    def _computed(self, node: Node, *, by_lanes: bool) -> list[str]:
        if isinstance(node, Joined):
            return list(self._joined(node, by_lanes))
        if isinstance(node, Reduction) and len(node.inputs) == 2 and not by_lanes and node.count > 1:
            return self._product(node)
        index = loop_index(node.shape)
        loops = looped(node.shape, index, self._element(node, index), by_lanes)
        return loops if self._gpu or isinstance(node, Reduction) else apart(loops)

    def _element(self, node: Node, index: Index) -> list[str]:
        target = self._read_array(node, index)
        if isinstance(node, Pointwise):
            return [f"{target} = {self._formula(node, index)};"]
        if isinstance(node, OnDiagonal):
            base, line = node.inputs
            on, off = self.read(line, (index[0],)), self.read(base, index)
            return [f"{target} = {index[0]} == {index[1]} ? {on} : {off};"]
        assert isinstance(node, Reduction)
        inner = tuple(f"s{number}" for number in range(len(node.over)))
        term = self._term(node, index, inner)
        start = "-(real)INFINITY" if node.largest else "0"
        gather = f"total = most(total, {term});" if node.largest else f"total += {term};"
        loops = looped(node.over, inner, [gather], by_lanes=False)
        if not node.largest:
            loops = adding(loops)
        return [f"real total = {start};", *loops, f"{target} = total;"]

    def _product(self, node: Reduction) -> list[str]:
        """A product with a matrix, added up row by row of it, so that neighbours are done at once."""
        index, inner = loop_index(node.shape), ("s0",)
        turned = isinstance(node.inputs[1], Reindexed) and node.inputs[1].turned
        if turned:
            return looped(node.shape, index, self._element(node, index), by_lanes=False)
        target = self._read_array(node, index)
        zero = looped(node.shape, index, [f"{target} = 0;"], by_lanes=False)
        add = looped(node.shape, index, [f"{target} += {self._term(node, index, inner)};"], by_lanes=False)
        return [*zero, *looped(node.over, inner, add, by_lanes=False)]

    def _term(self, node: Reduction, index: Index, inner: Index) -> str:
        every = (*index, *inner)
        parts = []
        for each, places in zip(node.inputs, node.places, strict=True):
            own = tuple("0" if place is None else every[place] for place in places)
            parts.append(self.read(each, own))
        return " * ".join(parts)

    def _joined(self, node: Joined, by_lanes: bool) -> Iterator[str]:
        first = 0
        for part in node.inputs:
            index = loop_index(part.shape)
            if by_lanes:
                index = of_any_sample(index)
            moved = tuple(
                f"({place} + {first})" if axis == node.axis and first else place
                for axis, place in enumerate(index)
            )
            line = f"{self._read_array(node, moved)} = {self.read(part, index)};"
            loops = looped(part.shape, index, [line], by_lanes)
            yield from loops if self._gpu else apart(loops)
            first += part.shape[node.axis]

    def _emit_sum(self, node: Reduction, stage: Stage) -> None:
        """A sum over samples or rows, and perhaps over axes of each of them."""
        if node.largest:
            raise UnsupportedError("its loss looks for the largest of all samples")
        first = self._summed(node, stage)
        index = loop_index(node.shape)
        inner = tuple(
            "i" if size in (SAMPLES, ROWS) else f"s{number}" for number, size in enumerate(node.over)
        )
        line = f"({first})[{flat(index, node.shape)}] += {self._term(node, index, inner)};"
        static = tuple(1 if size in (SAMPLES, ROWS) else size for size in node.over)
        body = looped(static, inner, [line], by_lanes=False)
        lines = looped(node.shape, index, body, by_lanes=False)
        if not self._gpu and math.prod(static) == 1:
            lines = apart(lines)
        by_samples = SAMPLES in node.over
        (stage.turns.setdefault(self._placing.turn[node], []) if by_samples else stage.row).extend(lines)

    def _shared_out(self, node: Reduction, stage: Stage) -> list[str]:
        """A sum or product that lanes share out, once every sample has left what it has."""
        if SAMPLES in node.over:
            return self._sum_of_blocks(node, stage)
        tiled = product_of(node)
        if tiled:
            left = self._left_over(node)
            matrix = self._matrix(tiled, stage)
            return product(self, tiled, matrix, left, self._targets(left), self._half(node, stage))
        index = of_any_sample(loop_index(node.shape))
        inner = tuple(f"s{number}" for number in range(len(node.over)))
        add = [f"total += {self._term(node, index, inner)};"]
        loops = looped(node.over, inner, add, by_lanes=False, unroll=False)
        body = ["real total = 0;", *loops, f"{self._read_array(node, index)} = total;"]
        return looped(node.shape, index, body, by_lanes=True)

    def _sum_of_blocks(self, node: Reduction, stage: Stage) -> list[str]:
        """A sum over samples that lanes share out."""
        name, both = self._name(node), outer_of(node)
        self._arrays[name] = node.count
        total = outer(self, node, both, name) if both else grouped_sum(self, node, name)
        stage.before += total.before
        stage.behind += total.behind
        return total.block

    def _half(self, node: Reduction, stage: Stage) -> int:
        """Which half of the lanes begins with a product: those that others of its turn leave free."""
        turn = self._placing.turn[node]
        number, stage.multiplied[turn] = stage.multiplied[turn], stage.multiplied[turn] + 1
        return number % 2

    def _matrix(self, tiled: Tiled, stage: Stage) -> str:
        """Where a matrix lies row by row; one that does not is turned before samples are looked at."""
        right, column = tiled.right, tiled.of_right
        if self.is_run(right.node, right.index, column):
            self._matrices.update(self._name(each) for each in self._placing.sources(right.node))
            return f"(&{right.at(self, {'s0': '0', column: '0'})})"
        key = right.at(self, {"s0": "s", column: "k"})
        if key not in stage.turned:
            stage.turned[key] = f"{self._prefix}turned{len(self._turned)}"
            self._turned[stage.turned[key]] = tiled.sizes[column] * tiled.sizes["s0"]
            stage.client += turned(self, tiled, stage.turned[key])
        return stage.turned[key]

    def _targets(self, left: Epilogue) -> list[str]:
        """Where lanes leave what a product came to: for other stages, for the block at hand, or for both."""
        index = [{"j": "j"}.get(place, "column" if place != "0" else "0") for place in left.index]
        near = self.read(left.result, index)
        self._block, block = None, self._block
        far = self.read(left.result, index)
        self._block = block
        return [far] if near == far else [far, near]

    def _left_over(self, node: Reduction) -> Epilogue:
        """What is stored of a product: itself, or the formula that alone reads it."""
        index = of_any_sample(loop_index(node.shape))
        if node not in self._placing.epilogue:
            return Epilogue(node, index, PRODUCT)
        result = self._placing.epilogue[node]
        assert isinstance(result, Pointwise)
        self._standing_for[node] = PRODUCT
        formula = self._formula(result, index)
        del self._standing_for[node]
        return Epilogue(result, index, formula)

    def _store(self, table: str, node: Node) -> list[str]:
        """Leave a sample's gradient where its row will find it."""
        index, width, target = ("i", "k1"), node.shape[1], f"gradient_{c_name(table)}"
        if not self._gpu:
            line = f"{target}[i * {width} + k1] = {self.read(node, index)};"
            return apart(looped(node.shape, index, [line], by_lanes=False))
        lines = looped(node.shape, index, [f"own[k1] = {self.read(node, index)};"], by_lanes=False)
        return ["{", f"real own[{width}];", *lines, f"store<{width}>({target} + i * {width}, own);", "}"]

    def _nearby(self, node: Node) -> str:
        """The array of the block at hand that has a tensor of others, which is noted; empty if none has."""
        stage = self._block
        if stage is None or node.count % SIDE or not self._is_fetched_or_left(node, stage):
            return ""
        known = self._here.get((stage, node))
        return known.name if known else self._noted(stage, node)

    def _is_fetched_or_left(self, node: Node, stage: int) -> bool:
        """Whether a block fetches a tensor of samples when it begins, or leaves it near, too."""
        if isinstance(node, Input):
            return True
        if self._placing.stage[node] < stage or not self._placing.turn[node]:
            return True
        made = [each for each, last in self._placing.epilogue.items() if last is node] or [node]
        return (
            self._placing.is_by_tiles(made[0])
            and self._placing.last_turn(node, stage) > self._placing.turn[node]
        )

    def _noted(self, stage: int, node: Node) -> str:
        name = f"{self._prefix}here{stage}_{self._number[node]}"
        made_here = (
            not isinstance(node, Input)
            and self._placing.stage[node] == stage
            and self._placing.turn[node] > 0
        )
        source = f"table_{c_name(node.leaf.name)}" if isinstance(node, Input) else self._name(node)
        self._here[stage, node] = Local(
            name,
            node.count,
            stage,
            born=self._placing.turn[node] if made_here else 0,
            dies=self._placing.last_turn(node, stage),
            source="" if made_here else source,
            slots=self._slots(node.leaf) if isinstance(node, Input) else "",
            reads=self._placing.first_turn(node, stage),
        )
        return name

    def _locals(self) -> list[Local]:
        """The arrays of blocks."""
        own = [
            Local(
                self._name(node), node.count, self._placing.stage[node], self._placing.turn[node],
                max(self._placing.turn[node], self._placing.last_turn(node, self._placing.stage[node])),
            )
            for node in self._placing.order
            if node in self._placing.local
        ]  # fmt: skip
        return [*own, *self._here.values()]

    def _adds_many(self, node: Node) -> bool:
        """Whether a number of the client is a sum of many."""
        many = self._target.shared_sum
        return isinstance(node, Reduction) and not node.largest and math.prod(node.over) >= many
