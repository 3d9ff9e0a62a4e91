"""A graph as statements of C: per client, per sample and per row, in stages.

A sum over all samples is known when the last of them has been looked at. What follows from it, and what every
sample makes of that, comes in the next stage: a stage is work on the client's own numbers, then a loop over
samples and one over rows. A tensor of one sample lives in registers, unless a later stage needs it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fedrec.federation.engines.fused import cpu_samples
from fedrec.federation.engines.fused.gpu_samples import (
    PRODUCT,
    Epilogue,
    Tiled,
    each_number_of_samples,
    grouped_sum,
    lane_total,
    outer,
    outer_of,
    product,
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
from fedrec.federation.engines.fused.readers import (
    Readers,
    check_node,
    goes_over_varying,
    in_order,
    own_array,
    readers_of,
    static_count,
    written_where_read,
)

_LITERALS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5)
"""Numbers that are written into the code; others are given with each call, since rounds may change them."""
_FEW = 40
"""Sums over samples that every lane of a GPU keeps in registers; of more, each lane adds up some."""
_SMALL = 256
"""Products of numbers that one lane of a GPU does for its sample; larger ones are shared out."""
_DEAR = ("EXP", "LOG", "TANH", "POW", "sigmoid(", "entropy(")
"""What formulas have of functions that take long."""
_MANY = 64
"""Numbers of a client that lanes of a GPU add up together, and not each for itself."""
_PLAIN, _THIN, _TILED = range(3)
"""Kinds of turns of a CPU: a loop over samples, one with one number of each, and tiles of a block of them."""
_KINDS = 3


@dataclass
class Stage:
    """The statements of a stage, and the sums that its loops make: the first of each, and how many."""

    client: list[str] = field(default_factory=list)
    wide: list[str] = field(default_factory=list)
    """What lanes compute of all samples together, number by number."""
    turns: dict[int, list[str]] = field(default_factory=dict)
    """What is done with a sample, by the loop over samples that does it."""
    tiles: dict[int, list[str]] = field(default_factory=dict)
    """What a CPU does with a block of samples at once, by its turn among those loops."""
    row: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)
    """What lanes add up once every sample has left what it has."""
    sums: int = 0

    @property
    def loops(self) -> list[list[str]]:
        """What each loop over samples does, in the order of the loops."""
        return [lines for _, lines in sorted(self.turns.items())]

    @property
    def parts(self) -> list[tuple[list[str], bool]]:
        """All that is done with samples, in order, and whether it is done with a block of them at once."""
        both = [(turn, lines, False) for turn, lines in self.turns.items()]
        both += [(turn, lines, True) for turn, lines in self.tiles.items()]
        return [(lines, at_once) for _, lines, at_once in sorted(both, key=lambda part: part[0])]

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


def lowered(graph: LossGraph, prefix: str, *, gpu: bool, first_constant: int = 0) -> Lowered:
    """The code of a graph; names of its arrays begin with `prefix`."""
    return Lowering(graph, prefix, gpu, first_constant).result()


class Lowering:
    """Turns a graph into statements."""

    def __init__(self, graph: LossGraph, prefix: str, gpu: bool, first_constant: int) -> None:
        self._prefix = prefix
        self._gpu = gpu
        self._first_constant = first_constant
        self._graph = graph = replace(
            graph, gradients={leaf: own_array(node) for leaf, node in graph.gradients.items()}
        )
        self._order = list(in_order([graph.loss, *graph.gradients.values()]))
        for node in self._order:
            check_node(node)
        by_samples = [node for leaf, node in graph.gradients.items() if leaf.part == "rows"]
        readers = readers_of(self._order, [graph.loss, *graph.gradients.values()])
        self._inlined = written_where_read(readers, by_samples if gpu else [])
        self._number = {node: number for number, node in enumerate(self._order)}
        self._stage: dict[Node, int] = {}
        self._by_lanes: set[Node] = set()
        self._spread: set[Node] = set()
        """Of samples: products that lanes share out, and what follows from them number by number."""
        sums: dict[int, int] = {}
        for node in self._order:
            stage = self._stage[node] = max((self._ready(each) for each in node.inputs), default=0)
            if isinstance(node, Reduction) and gpu:
                before = sums.get(stage, 0)
                if self._is_for_lanes(node, before):
                    self._by_lanes.add(node)
                elif goes_over_varying(node):
                    sums[stage] = before + node.count
            if SAMPLES in node.shape and node.count > 1:
                follows = not isinstance(node, Reduction) and any(
                    each in self._spread for each in node.inputs
                )
                if follows or node in self._by_lanes:
                    self._spread.add(node)
        self._sum_place: dict[Node, int] = {}
        self._tiled = {} if gpu else dict(self._tiled_on_cpu())
        """Products and sums over samples that a CPU does by tiles."""
        self._turn = dict.fromkeys(self._order, 0) if gpu else self._turns()
        self._check_rows()
        self._kept = set(self._needed_later())
        self._direct = {node for node in by_samples if gpu and self._is_direct(node)}
        self._kept |= {
            source for node in self._direct for source in self._sources(node) if SAMPLES in source.shape
        }
        self._wide: set[Node] = set()
        for node in self._order:
            if gpu and node in self._kept and self._is_wide(node):
                self._wide.add(node)
        self._epilogue = dict(self._epilogues(readers))
        """Products of which nothing is left but a formula of them: computed where they are."""
        self._kept -= set(self._epilogue)
        self._standing_for: dict[Node, str] = {}
        self._arrays: dict[str, int] = {}
        self._constants: list[Constant] = []
        self._leaves: dict[Leaf, tuple[int, ...]] = {}

    def result(self) -> Lowered:
        """All statements."""
        outputs = list(self._graph.gradients.values())
        count = 1 + max((self._ready(node) for node in (self._graph.loss, *outputs)), default=0)
        stages = [Stage() for _ in range(count)]
        elsewhere = self._inlined | set(self._epilogue.values())
        for node in self._order:
            if not isinstance(node, Input | Constant | Count | Reindexed) and node not in elsewhere:
                self._emit(node, stages[self._stage[node]])
        for leaf, node in self._graph.gradients.items():
            if leaf.part == "rows" and not (node in self._direct or Gradient(node, self).is_zero):
                stage = stages[self._output_stage(node)]
                stage.turns.setdefault(self._output_turn(node), []).extend(self._store(leaf.name, node))
        gradients = {
            leaf: Gradient(node, self, leaf.part == "rows" and node in self._direct)
            for leaf, node in self._graph.gradients.items()
        }
        loss = self.read(self._graph.loss, ("0",) * len(self._graph.loss.shape))
        for leaf, gradient in gradients.items():
            if leaf.part != "rows" or gradient.is_direct:
                # Reads what it needs: leaves and constants are noted.
                gradient.at(*("0" for _ in gradient.node.shape))
        kept = {self._name(node): node.count for node in self._order if node in self._kept}
        constants = [node.value for node in self._constants]
        return Lowered(stages, self._leaves, self._arrays, kept, constants, loss, gradients)

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
        if node in self._inlined:
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
            if sample == "i":
                return f"row_{name}[{place}]"
            slot = "user_slot" if leaf.name in self._graph.by_user else "slot"
            return f"table_{name}[(integer){slot}[{sample}] * {node.shape[1]} + {place}]"
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

    def _read_array(self, node: Node, index: Index) -> str:
        name = self._name(node)
        static = flat(index, node.shape)
        if SAMPLES in node.shape:
            sample = index[node.shape.index(SAMPLES)]
            if node in self._kept:
                return f"{name}[{sample} * {node.count} + {static}]"
            assert sample == "i", "only what is kept is known of other samples"
            return name if node.count == 1 else f"{name}[{static}]"
        if node in self._sum_place:
            return f"{self._sums(self._stage[node])}[{self._sum_place[node]} + {static}]"
        return name if node.count == 1 else f"{name}[{static}]"

    def _name(self, node: Node) -> str:
        return f"{self._prefix}{self._number[node]}"

    def _sums(self, stage: int) -> str:
        return f"{self._prefix}total{stage}"

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
        if node in self._by_lanes:
            assert isinstance(node, Reduction)
            stage.after += self._shared_out(node)
        elif node in self._tiled:
            assert isinstance(node, Reduction)
            self._emit_tiles(node, self._tiled[node], stage)
        elif isinstance(node, Reduction) and goes_over_varying(node):
            self._emit_sum(node, stage)
        elif node in self._wide:
            stage.wide += [*self._of_all_samples(node), "SYNC();"]
        elif SAMPLES in node.shape:
            stage.turns.setdefault(self._turn[node], []).extend(self._assigned(node))
        elif ROWS in node.shape:
            stage.row += self._assigned(node)
        else:
            stage.client += self._of_client(node)

    def _emit_tiles(self, node: Reduction, tiled: Tiled, stage: Stage) -> None:
        """A product of all samples, or a sum of such over them, block by block of samples."""
        lines = stage.tiles.setdefault(self._turn[node], [])
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
        self._sum_place[node] = stage.sums
        stage.sums += node.count
        return f"{self._prefix}sum{self._stage[node]} + {self._sum_place[node]}"

    def _assigned(self, node: Node) -> list[str]:
        """Statements that compute a tensor of one sample or row, or a number of the client."""
        name = self._name(node)
        if node in self._kept:
            return self._computed(node, by_lanes=False)
        if node.count > 1:
            return [f"real {name}[{node.count}];", *self._computed(node, by_lanes=False)]
        if isinstance(node, Pointwise):
            return [f"const real {name} = {self._formula(node, loop_index(node.shape))};"]
        return [f"real {name};", *self._computed(node, by_lanes=False)]

    def _of_client(self, node: Node) -> list[str]:
        """Statements that compute a tensor of the client: each lane some, or all lanes one number."""
        if node.count == 1:
            return self._total(node) if self._gpu and _adds_many(node) else self._assigned(node)
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

    def is_run(self, node: Node, index: Sequence[str], place: str) -> bool:
        """Whether elements lie side by side as `place` goes up, the first at a multiple of four."""
        while isinstance(node, Reindexed):
            index, node = node.at(tuple(index)), node.inputs[0]
        if node in self._inlined or node in self._sum_place or isinstance(node, Constant | Count):
            return False
        if isinstance(node, Input) and node.leaf.part not in ("rows", "value"):
            return False
        places = [
            each for each, size in zip(index, node.shape, strict=True) if size not in (SAMPLES, ROWS, 1)
        ]
        return places[-1:] == [place] and places.count(place) == 1 and node.shape[-1] % 4 == 0

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
        (stage.turns.setdefault(self._turn[node], []) if by_samples else stage.row).extend(lines)

    def _shared_out(self, node: Reduction) -> list[str]:
        """A sum or product that lanes share out, once every sample has left what it has."""
        if SAMPLES in node.over:
            self._arrays[self._name(node)] = node.count
            both = outer_of(node)
            return outer(self, node, both) if both else grouped_sum(self, node)
        tiled = product_of(node)
        if tiled:
            turned = f"{self._prefix}turned"
            self._arrays[turned] = max(self._arrays.get(turned, 0), math.prod(node.over) * node.count)
            return product(self, tiled, turned, self._left_over(node))
        index = of_any_sample(loop_index(node.shape))
        inner = tuple(f"s{number}" for number in range(len(node.over)))
        add = [f"total += {self._term(node, index, inner)};"]
        loops = looped(node.over, inner, add, by_lanes=False, unroll=False)
        body = ["real total = 0;", *loops, f"{self._read_array(node, index)} = total;"]
        return looped(node.shape, index, body, by_lanes=True)

    def _left_over(self, node: Reduction) -> Epilogue:
        """What is stored of a product: itself, or the formula that alone reads it."""
        index = of_any_sample(loop_index(node.shape))
        if node not in self._epilogue:
            return Epilogue(node, index, PRODUCT)
        result = self._epilogue[node]
        assert isinstance(result, Pointwise)
        self._standing_for[node] = PRODUCT
        formula = self._formula(result, index)
        del self._standing_for[node]
        return Epilogue(result, index, formula)

    def _epilogues(self, readers: Readers) -> Iterator[tuple[Node, Node]]:
        """Products by tiles with one reader, a formula of the same numbers and of what is known before."""
        for node in self._by_lanes & self._kept:
            assert isinstance(node, Reduction)
            last = self._only_reader(node, readers)
            if last is None or last not in self._wide or last.shape != node.shape or not product_of(node):
                continue
            others = [each for inner in last.inputs for each in self._sources(inner) if each is not node]
            known = all(self._ready(each) <= self._stage[node] for each in others)
            if isinstance(last, Pointwise) and known:
                yield node, last

    def _only_reader(self, node: Node, readers: Readers) -> Node | None:
        """What alone reads a node, through formulas that are written there; None if there are several."""
        reader: Node | None = node
        while reader is not None and (reader is node or reader in self._inlined):
            reader = readers[reader][0] if len(readers[reader]) == 1 else None
        return reader

    def _store(self, table: str, node: Node) -> list[str]:
        """Leave a sample's gradient where its row will find it."""
        index, width, target = ("i", "k1"), node.shape[1], f"gradient_{c_name(table)}"
        if not self._gpu:
            line = f"{target}[i * {width} + k1] = {self.read(node, index)};"
            return apart(looped(node.shape, index, [line], by_lanes=False))
        lines = looped(node.shape, index, [f"own[k1] = {self.read(node, index)};"], by_lanes=False)
        return ["{", f"real own[{width}];", *lines, f"store<{width}>({target} + i * {width}, own);", "}"]

    def _ready(self, node: Node) -> int:
        """The first stage in which a tensor can be read."""
        if node in self._by_lanes or (isinstance(node, Reduction) and goes_over_varying(node)):
            return self._stage[node] + 1
        return self._stage[node]

    def _is_for_lanes(self, node: Reduction, sums: int) -> bool:
        """Whether lanes of a GPU share out a sum or product: where its numbers are too many for registers.

        `sums` are those over samples that are in registers already. What lanes have shared out lies where
        neighbours are fetched together, so that sums of it are shared out, too.
        """
        if SAMPLES in node.over:
            spread = any(each in self._spread for each in node.inputs)
            return node.count > 1 and (spread or sums + node.count > _FEW)
        return SAMPLES in node.shape and len(node.inputs) > 1 and node.count * math.prod(node.over) > _SMALL

    def _is_wide(self, node: Node) -> bool:
        """Whether lanes can share out the numbers of all samples: where these follow from what is there."""
        return (
            isinstance(node, Pointwise | Joined)
            and SAMPLES in node.shape
            and node.count > 1
            and all(
                each in self._wide or self._ready(each) < self._stage[node] or each in self._by_lanes
                for inner in node.inputs
                for each in self._sources(inner)
                if SAMPLES in each.shape
            )
        )

    def _is_direct(self, gradient: Node) -> bool:
        """Whether a row's lane can compute a gradient by samples: of what is kept, or one number of each.

        What it reads may not have moved by then, so it reads no table.
        """
        leaves = {each.leaf.part for each in self._read_by(gradient) if isinstance(each, Input)}
        sources = [each for each in self._sources(gradient) if SAMPLES in each.shape]
        return not leaves & {"rows", "whole", "training_sum"} and all(
            each.count == 1 or each in self._kept for each in sources
        )

    def _output_stage(self, node: Node) -> int:
        return max((self._ready(source) for source in self._sources(node)), default=0)

    def _sources(self, node: Node) -> Iterator[Node]:
        """The arrays that an expression of `node` reads."""
        for each in self._read_by(node):
            if not isinstance(each, Input | Constant | Count):
                yield each

    def _read_by(self, node: Node) -> Iterator[Node]:
        """What an expression of `node` reads: inputs, numbers and arrays."""
        if isinstance(node, Reindexed) or node in self._inlined:
            for each in node.inputs:
                yield from self._read_by(each)
        else:
            yield node

    def _check_rows(self) -> None:
        """Raise `UnsupportedError` where more of every row is needed later than its numbers."""
        readers = [(node, self._stage[node]) for node in self._order if not isinstance(node, Reindexed)]
        readers = [(node, stage) for node, stage in readers if node not in self._inlined]
        late = len(self._order)
        readers += [(node, late) for node in self._graph.gradients.values()]
        for node, stage in readers:
            inputs = [node] if stage == late else node.inputs
            for source in (source for each in inputs for source in self._sources(each)):
                if ROWS in source.shape and self._stage[source] < stage:
                    raise UnsupportedError(
                        "its loss computes something of every row of a table, and needs it twice"
                    )

    def _is_behind(self, reader: Node, source: Node) -> bool:
        """Whether another loop than that over samples which computes a tensor reads it."""
        places = [(self._stage[each], self._turn[each]) for each in (source, reader)]
        return places[0] < places[1] or reader in self._by_lanes or reader in self._tiled

    def _turns(self) -> dict[Node, int]:
        """Which of a stage's loops over samples computes a tensor, on a CPU.

        Thin loops have one number of each sample and nothing else, so that many samples are done at once: the
        functions in them are dear. Where there are none, and no tiles, one loop does it all.
        """
        turns = dict.fromkeys(self._order, 0)
        apart = bool(self._tiled)
        for node in self._order:
            if isinstance(node, Input | Constant | Count | Reindexed) or node in self._inlined:
                continue
            if SAMPLES in node.shape or (isinstance(node, Reduction) and SAMPLES in node.over):
                before = self._latest(node.inputs, self._stage[node], turns)
                kind = _TILED if node in self._tiled else _THIN if self._is_thin(node) else _PLAIN
                turns[node] = _next_turn(before, kind)
                apart = apart or (kind == _THIN and self._is_dear(node))
        return turns if apart else dict.fromkeys(self._order, 0)

    def _tiled_on_cpu(self) -> Iterator[tuple[Node, Tiled]]:
        """The products and sums over samples that are done by tiles, of numbers that lie side by side."""
        for node in self._order:
            if not isinstance(node, Reduction):
                continue
            by_samples = SAMPLES in node.over
            tiled = outer_of(node) if by_samples else product_of(node)
            if tiled is None:
                continue
            runs = [(tiled.left, tiled.of_left if by_samples else "s0")]
            runs += [(tiled.right, tiled.of_right)] if by_samples else []
            if all(self.is_run(factor.node, factor.index, place) for factor, place in runs):
                yield node, tiled

    def _latest(self, read: Sequence[Node], stage: int, turns: "Mapping[Node, int]") -> int:
        """The last of a stage's loops that one which reads some tensors waits for."""
        sources = [source for each in read for source in self._sources(each)]
        waited = [turns[each] for each in sources if SAMPLES in each.shape and self._stage[each] == stage]
        return max(waited, default=0)

    def _output_turn(self, gradient: Node) -> int:
        """The loop that leaves a gradient where its row will find it."""
        before = self._latest([gradient], self._output_stage(gradient), self._turn)
        return _next_turn(before, _PLAIN)

    def _is_thin(self, node: Node) -> bool:
        """Whether a tensor is one number of each sample, and made of such."""
        sizes = (*node.shape, *node.over) if isinstance(node, Reduction) else node.shape
        read = [each for source in node.inputs for each in self._read_by(source)]
        return static_count(sizes) == 1 and all(each.count == 1 for each in read if SAMPLES in each.shape)

    def _is_dear(self, node: Node) -> bool:
        """Whether a formula, or one that is written there, has a function that takes long."""
        own = isinstance(node, Pointwise) and any(name in node.formula for name in _DEAR)
        return own or any(
            self._is_dear(each)
            for each in node.inputs
            if each in self._inlined or isinstance(each, Reindexed)
        )

    def _needed_later(self) -> Iterator[Node]:
        """Arrays of one sample that are read in a later loop, or by lanes that go over all samples."""
        for node in self._order:
            if isinstance(node, Input | Constant | Count | Reindexed) or node in self._inlined:
                continue
            for each in node.inputs:
                for source in self._sources(each):
                    if SAMPLES in source.shape and self._is_behind(node, source):
                        yield source
            if (node in self._by_lanes or node in self._tiled) and SAMPLES in node.shape:
                yield node
        for leaf, node in self._graph.gradients.items():
            if leaf.part == "rows":
                stage, turn = self._output_stage(node), self._output_turn(node)
                for source in self._sources(node):
                    behind = (self._stage[source], self._turn[source]) < (stage, turn)
                    if SAMPLES in source.shape and behind:
                        yield source


def _next_turn(before: int, kind: int) -> int:
    """The first turn of a kind that is none before another one."""
    return before + (kind - before) % _KINDS


def _adds_many(node: Node) -> bool:
    """Whether a number of the client is a sum of many."""
    return isinstance(node, Reduction) and not node.largest and math.prod(node.over) >= _MANY
