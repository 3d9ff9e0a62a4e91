"""Where and when each tensor of a graph is computed: its stage, its turn there, and what is kept of it.

A sum over all samples is known when the last of them has been looked at: what follows from it comes in the
next stage. Inside of a stage, turns follow each other: loops over samples, and what is done with many of them
at once.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import replace

from fedrec.federation.engines.fused.gpu_samples import Tiled, outer_of, product_of
from fedrec.federation.engines.fused.moved_rows import check_moves
from fedrec.federation.engines.fused.nodes import (
    ROWS,
    SAMPLES,
    Constant,
    Count,
    Input,
    Joined,
    LossGraph,
    Node,
    Pointwise,
    Reduction,
    Reindexed,
    refused,
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
from fedrec.federation.engines.fused.target import TargetDevice

_DEAR = ("EXP", "LOG", "TANH", "POW", "sigmoid(", "entropy(")
"""What formulas have of functions that take long."""
_PLAIN, _THIN, _TILED = range(3)
"""Kinds of turns of a CPU: a loop over samples, one with one number of each, and tiles of a block of them."""
_KINDS = 3


class Placing:
    """The places of all tensors of a graph."""

    def __init__(self, graph: LossGraph, *, gpu: bool, target: TargetDevice) -> None:
        self._gpu = gpu
        self._target = target
        self.graph = graph = replace(
            graph, gradients={leaf: own_array(node) for leaf, node in graph.gradients.items()}
        )
        self.order = list(in_order([graph.loss, *graph.gradients.values()]))
        for node in self.order:
            check_node(node)
        by_samples = [node for leaf, node in graph.gradients.items() if leaf.part == "rows"]
        readers = readers_of(self.order, [graph.loss, *graph.gradients.values()])
        self.inlined = written_where_read(readers, by_samples if gpu else [])
        self.stage: dict[Node, int] = {}
        self.by_lanes: set[Node] = set()
        self.spread: set[Node] = set()
        """Of samples: products that lanes share out, and what follows from them number by number."""
        sums: dict[int, int] = {}
        for node in self.order:
            stage = self.stage[node] = max((self.ready(each) for each in node.inputs), default=0)
            if isinstance(node, Reduction) and gpu:
                before = sums.get(stage, 0)
                if self._is_for_lanes(node, before):
                    self.by_lanes.add(node)
                elif goes_over_varying(node):
                    sums[stage] = before + node.count
            if SAMPLES in node.shape and node.count > 1:
                follows = not isinstance(node, Reduction) and any(each in self.spread for each in node.inputs)
                if follows or node in self.by_lanes:
                    self.spread.add(node)
        self.tiled = {} if gpu else dict(self._tiled_on_cpu())
        """Products and sums over samples that a CPU does by tiles."""
        self.turn = self._turns_of_lanes() if gpu else self._turns()
        self._check_rows()
        check_moves(self.graph, self.inlined)
        self.kept = set(self._needed_later())
        self.direct = {node for node in by_samples if gpu and self._is_direct(node)}
        self.kept |= {
            source for node in self.direct for source in self.sources(node) if SAMPLES in source.shape
        }
        self.wide: set[Node] = set()
        for node in self.order:
            if gpu and node in self.kept and self._is_wide(node):
                self.wide.add(node)
        self.epilogue = dict(self._epilogues(readers))
        """Products of which nothing is left but a formula of them: computed where they are."""
        self.kept -= set(self.epilogue)
        self.turn |= {last: self.turn[node] for node, last in self.epilogue.items()}
        self.blocked = {self.stage[node] for node in self.by_lanes if self.is_by_tiles(node)}
        """Stages that go over samples block by block."""
        self.local = {node for node in self.kept if self._is_of_block(node, readers)}
        """What no other stage needs, nor rows."""

    def is_run(self, node: Node, index: Sequence[str], place: str, sums: Container[Node] = ()) -> bool:
        """Whether elements lie side by side as `place` goes up, the first at a multiple of four.

        Those of `sums` do not.
        """
        while isinstance(node, Reindexed):
            index, node = node.at(tuple(index)), node.inputs[0]
        if node in self.inlined or node in sums or isinstance(node, Constant | Count):
            return False
        if isinstance(node, Input) and node.leaf.part not in ("rows", "value"):
            return False
        places = [
            each for each, size in zip(index, node.shape, strict=True) if size not in (SAMPLES, ROWS, 1)
        ]
        return places[-1:] == [place] and places.count(place) == 1 and node.shape[-1] % 4 == 0

    def _epilogues(self, readers: Readers) -> Iterator[tuple[Node, Node]]:
        """Products by tiles with one reader, a formula of the same numbers and of what is known before."""
        for node in self.by_lanes & self.kept:
            assert isinstance(node, Reduction)
            last = self._only_reader(node, readers)
            if last is None or last not in self.wide or last.shape != node.shape or not product_of(node):
                continue
            others = [each for inner in last.inputs for each in self.sources(inner) if each is not node]
            known = all(self._is_before(each, node) for each in others)
            if isinstance(last, Pointwise) and known:
                yield node, last

    def _only_reader(self, node: Node, readers: Readers) -> Node | None:
        """What alone reads a node, through formulas that are written there; None if there are several."""
        reader: Node | None = node
        while reader is not None and (reader is node or reader in self.inlined):
            reader = readers[reader][0] if len(readers[reader]) == 1 else None
        return reader

    def ready(self, node: Node) -> int:
        """The first stage in which a tensor can be read."""
        if isinstance(node, Reduction) and goes_over_varying(node):
            return self.stage[node] + 1
        return self.stage[node]

    def _is_for_lanes(self, node: Reduction, sums: int) -> bool:
        """Whether lanes of a GPU share out a sum or product: where its numbers are too many for registers.

        `sums` are those over samples that are in registers already. What lanes have shared out lies where
        neighbours are fetched together, so that sums of it are shared out, too.
        """
        if SAMPLES in node.over:
            spread = any(each in self.spread for each in node.inputs)
            many = spread or sums + node.count > self._target.register_sums
            return node.count > 1 and many and not node.largest
        products = node.count * math.prod(node.over)
        return SAMPLES in node.shape and len(node.inputs) > 1 and products > self._target.lane_products

    def _is_wide(self, node: Node) -> bool:
        """Whether lanes can share out the numbers of all samples: where these follow from what is there."""
        return (
            isinstance(node, Pointwise | Joined)
            and SAMPLES in node.shape
            and node.count > 1
            and all(
                each in self.wide
                or self.stage[each] < self.stage[node]
                or (self.turn[each] < self.turn[node] and each in self.kept)
                for inner in node.inputs
                for each in self.sources(inner)
                if SAMPLES in each.shape
            )
        )

    def _is_direct(self, gradient: Node) -> bool:
        """Whether a row's lane can compute a gradient by samples: of what is kept, or one number of each.

        What it reads may not have moved by then, so it reads no table.
        """
        leaves = {each.leaf.part for each in self.read_by(gradient) if isinstance(each, Input)}
        sources = [each for each in self.sources(gradient) if SAMPLES in each.shape]
        return not leaves & {"rows", "whole", "training_sum"} and all(
            each.count == 1 or each in self.kept for each in sources
        )

    def output_stage(self, node: Node) -> int:
        """The first stage in which a gradient is known."""
        return max((self.ready(source) for source in self.sources(node)), default=0)

    def sources(self, node: Node) -> Iterator[Node]:
        """The arrays that an expression of `node` reads."""
        for each in self.read_by(node):
            if not isinstance(each, Input | Constant | Count):
                yield each

    def read_by(self, node: Node) -> Iterator[Node]:
        """What an expression of `node` reads: inputs, numbers and arrays."""
        if isinstance(node, Reindexed) or node in self.inlined:
            for each in node.inputs:
                yield from self.read_by(each)
        else:
            yield node

    def _check_rows(self) -> None:
        """Raise `UnsupportedError` where more of every row is needed later than its numbers."""
        readers = [(node, self.stage[node]) for node in self.order if not isinstance(node, Reindexed)]
        readers = [(node, stage) for node, stage in readers if node not in self.inlined]
        late = len(self.order)
        readers += [(node, late) for node in self.graph.gradients.values()]
        for node, stage in readers:
            inputs = [node] if stage == late else node.inputs
            for source in (source for each in inputs for source in self.sources(each)):
                if ROWS in source.shape and self.stage[source] < stage:
                    raise refused("computes something of every row of a table, and needs it twice", source)

    def _is_before(self, source: Node, node: Node) -> bool:
        """Whether a tensor is known when lanes begin with a product."""
        if SAMPLES in source.shape:
            return (self.stage[source], self.turn[source]) < (self.stage[node], self.turn[node])
        return self.ready(source) <= self.stage[node]

    def is_by_tiles(self, node: Node) -> bool:
        """Whether lanes do a product, or a sum of such over samples, by tiles."""
        return isinstance(node, Reduction) and bool(
            outer_of(node) if SAMPLES in node.over else product_of(node)
        )

    def _is_together(self, node: Node) -> bool:
        """Whether lanes compute a tensor together, if anything else is to read it."""
        return node in self.by_lanes or node in self.spread

    def _turns_of_lanes(self) -> dict[Node, int]:
        """Which of a stage's turns computes a tensor, on a GPU.

        A lane goes on by itself with what it has of its sample in registers. What lanes do together waits for
        what is left of all samples, and is waited for.
        """
        turns = dict.fromkeys(self.order, 0)
        for node in self.order:
            if isinstance(node, Input | Constant | Count | Reindexed) or node in self.inlined:
                continue
            if SAMPLES in node.shape or (isinstance(node, Reduction) and SAMPLES in node.over):
                if self._is_together(node):
                    turns[node] = 1 + self._latest(node.inputs, self.stage[node], turns)
                else:
                    turns[node] = self._turn_of_lane(node.inputs, self.stage[node], turns)
        return turns

    def _turn_of_lane(self, read: Sequence[Node], stage: int, turns: "Mapping[Node, int]") -> int:
        """The first turn in which a lane can read some tensors by itself."""
        sources = [source for each in read for source in self.sources(each)]
        return max(
            (
                turns[each] + self._is_together(each)
                for each in sources
                if SAMPLES in each.shape and self.stage[each] == stage
            ),
            default=0,
        )

    def _is_of_block(self, node: Node, readers: Readers) -> bool:
        """Whether a tensor of samples is made and needed in the blocks of one stage alone."""
        stage = self.stage[node]
        return (
            stage in self.blocked
            and self.turn[node] > 0
            and all(
                reader is not None and self.stage[reader] == stage
                for reader in self._readers_through(node, readers)
            )
        )

    def _readers_through(self, node: Node, readers: Readers) -> Iterator[Node | None]:
        """What reads a node, through formulas that are written there."""
        for reader in readers[node]:
            if reader is not None and reader in self.inlined:
                yield from self._readers_through(reader, readers)
            else:
                yield reader

    def last_turn(self, node: Node, stage: int) -> int:
        """The last turn of a stage that reads a tensor of samples."""
        return max(self._reading_turns(node, stage), default=0)

    def first_turn(self, node: Node, stage: int) -> int:
        """The first turn of a stage, behind that of lanes by themselves, which reads a tensor of samples."""
        return min((turn for turn in self._reading_turns(node, stage) if turn), default=1)

    def _reading_turns(self, node: Node, stage: int) -> list[int]:
        return [
            self.turn[reader]
            for reader in self.order
            if self.stage[reader] == stage
            and not isinstance(reader, Reindexed | Input)
            and reader not in self.inlined
            and any(each is node for inner in reader.inputs for each in self.read_by(inner))
        ]

    def _is_behind(self, reader: Node, source: Node) -> bool:
        """Whether another loop than that over samples which computes a tensor reads it."""
        places = [(self.stage[each], self.turn[each]) for each in (source, reader)]
        return places[0] < places[1] or reader in self.by_lanes or reader in self.tiled

    def _turns(self) -> dict[Node, int]:
        """Which of a stage's loops over samples computes a tensor, on a CPU.

        Thin loops have one number of each sample and nothing else, so that many samples are done at once: the
        functions in them are dear. Where there are none, and no tiles, one loop does it all.
        """
        turns = dict.fromkeys(self.order, 0)
        apart = bool(self.tiled)
        for node in self.order:
            if isinstance(node, Input | Constant | Count | Reindexed) or node in self.inlined:
                continue
            if SAMPLES in node.shape or (isinstance(node, Reduction) and SAMPLES in node.over):
                before = self._latest(node.inputs, self.stage[node], turns)
                kind = _TILED if node in self.tiled else _THIN if self._is_thin(node) else _PLAIN
                turns[node] = _next_turn(before, kind)
                apart = apart or (kind == _THIN and self._is_dear(node))
        return turns if apart else dict.fromkeys(self.order, 0)

    def _tiled_on_cpu(self) -> Iterator[tuple[Node, Tiled]]:
        """The products and sums over samples that are done by tiles, of numbers that lie side by side."""
        for node in self.order:
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
        sources = [source for each in read for source in self.sources(each)]
        waited = [turns[each] for each in sources if SAMPLES in each.shape and self.stage[each] == stage]
        return max(waited, default=0)

    def output_turn(self, gradient: Node) -> int:
        """The loop that leaves a gradient where its row will find it."""
        if self._gpu:
            return self._turn_of_lane([gradient], self.output_stage(gradient), self.turn)
        before = self._latest([gradient], self.output_stage(gradient), self.turn)
        return _next_turn(before, _PLAIN)

    def _is_thin(self, node: Node) -> bool:
        """Whether a tensor is one number of each sample, and made of such."""
        sizes = (*node.shape, *node.over) if isinstance(node, Reduction) else node.shape
        read = [each for source in node.inputs for each in self.read_by(source)]
        return static_count(sizes) == 1 and all(each.count == 1 for each in read if SAMPLES in each.shape)

    def _is_dear(self, node: Node) -> bool:
        """Whether a formula, or one that is written there, has a function that takes long."""
        own = isinstance(node, Pointwise) and any(name in node.formula for name in _DEAR)
        return own or any(
            self._is_dear(each) for each in node.inputs if each in self.inlined or isinstance(each, Reindexed)
        )

    def _needed_later(self) -> Iterator[Node]:
        """Arrays of one sample that are read in a later loop, or by lanes that go over all samples."""
        for node in self.order:
            if isinstance(node, Input | Constant | Count | Reindexed) or node in self.inlined:
                continue
            for each in node.inputs:
                for source in self.sources(each):
                    if SAMPLES in source.shape and self._is_behind(node, source):
                        yield source
            if (node in self.by_lanes or node in self.tiled) and SAMPLES in node.shape:
                yield node
        for leaf, node in self.graph.gradients.items():
            if leaf.part == "rows":
                stage, turn = self.output_stage(node), self.output_turn(node)
                for source in self.sources(node):
                    behind = (self.stage[source], self.turn[source]) < (stage, turn)
                    if SAMPLES in source.shape and behind:
                        yield source


def _next_turn(before: int, kind: int) -> int:
    """The first turn of a kind that is none before another one."""
    return before + (kind - before) % _KINDS
