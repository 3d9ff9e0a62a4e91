"""The schedule of a graph: the stage, the phase, the strategy and the storage of every tensor.

The module reads a `LossGraph` and a `Device`; the backend reads the finished `Schedule`. `PASSES` lists the
passes in their order. Each adds the facts that its docstring names, and changes nothing else.

The terms of the compiler:

- A *sample* is one entry of a mini-batch: an item, or a user and an item, with a label. A *row* is a row of a
  table, such as the vector of an item.
- A *lane* is one of the GPU's threads that train a client together. On a CPU a client has one lane.
- A *stage* is a part of the work on a mini-batch. It ends where a sum over all samples must be known. Tensors
  that follow from the sum are in the next stage.
- A *phase* is one loop over the samples of a stage, or one step that all lanes of a GPU do together.
- A *strategy* says how a tensor is computed, a *storage* where its numbers are until they are read.
- A *block* is a group of samples of a mini-batch. A stage with matrix products takes one block after the
  other, so that the numbers of a block stay in fast memory.
- A *tile* is a small rectangle of a matrix product whose numbers stay in registers.
- *Shared memory* is the fast memory that the lanes of a client share on a GPU. An array *spills* if it does
  not fit there, or on the stack of a CPU. Then it is in the slower memory of the worker.
- A *prologue* is the start of a kernel: it declares memory and loads start values. An *epilogue* is a formula
  that is computed with each number of a product, so that only its result is stored.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from enum import Enum

from fedrec.federation.engines.fused.device import Device
from fedrec.federation.engines.fused.ir.dims import SAMPLES, static_count
from fedrec.federation.engines.fused.ir.index import IndexExpr
from fedrec.federation.engines.fused.ir.nodes import (
    Concat,
    Constant,
    Count,
    Input,
    LossGraph,
    Node,
    Pointwise,
    Reduction,
    View,
)
from fedrec.federation.engines.fused.ir.ops import SLOW
from fedrec.federation.engines.fused.passes.inlining import inlined_nodes, with_own_gradients
from fedrec.federation.engines.fused.passes.tiling import INNER, Tiled, tiled_outer_sum, tiled_product
from fedrec.federation.engines.fused.passes.uses import Uses, outputs_of, topological_order, uses_of
from fedrec.federation.engines.fused.passes.verify import verify_moves, verify_nodes, verify_rows

_PLAIN, _THIN, _TILED = range(3)
"""The kinds of phases on a CPU: any loop over samples, a thin loop (one number per sample), tiles of a block.

The kind of a phase is the remainder of its number by `_KINDS`.
"""
_KINDS = 3


class Strategy(Enum):
    """How a tensor is computed."""

    SERIAL = "serial"
    """Each lane computes the tensors of its own samples or rows. Lanes divide a tensor of the client."""
    INLINED = "inlined"
    """Its formula is written wherever the tensor is read; nothing is stored."""
    TILED = "tiled"
    """On a CPU, a matrix product in tiles, block by block."""
    COOPERATIVE = "cooperative"
    """On a GPU, all lanes together compute a product of samples with a matrix, or a sum over samples."""
    ELEMENTWISE = "elementwise"
    """On a GPU, all lanes together compute a formula of all samples; a lane has numbers of any sample."""
    EPILOGUE = "epilogue"
    """On a GPU, a formula that is computed with each number of a product whose only reader it is."""


class Storage(Enum):
    """The place where the numbers of a tensor of samples are until they are read."""

    REGISTER = "register"
    """In variables inside the loop over samples."""
    MINI_BATCH = "mini-batch"
    """In an array with an entry for each sample of the mini-batch."""
    BLOCK = "block"
    """In an array with an entry for each sample of a block, in a GPU's shared memory."""


def _look_away(_name: str, _schedule: "Schedule") -> None:
    """The default for `look`: do nothing."""


class Schedule:
    """The schedule of a graph for a device; making one runs all passes."""

    def __init__(
        self, graph: LossGraph, target: Device, look: Callable[[str, "Schedule"], None] = _look_away
    ) -> None:
        """Run all passes. `look` is called before the first pass and after every pass, with its name."""
        self.target = target
        self.graph = graph
        """The loss and its gradients; the first pass replaces it by a copy."""
        self.order: list[Node] = list(topological_order(outputs_of(graph)))
        """All nodes, each after its inputs."""
        self.inlined: set[Node] = set()
        """The formulas that are written where they are read."""
        self.stage: dict[Node, int] = {}
        """The stage that computes a node, from 0."""
        self.phase: dict[Node, int] = {}
        """The phase within its stage, from 0."""
        self.strategy: dict[Node, Strategy] = {}
        """The strategy of a node; SERIAL if it has no entry."""
        self.storage: dict[Node, Storage] = {}
        """The storage of a tensor of samples; REGISTER if it has no entry."""
        self.tiled: dict[Node, Tiled] = {}
        """The factors of each TILED node."""
        self.direct: set[Node] = set()
        """Gradients of samples that are not stored: the loop over rows computes each when it adds it up."""
        self.epilogue: dict[Node, Node] = {}
        """The epilogue of a product, by the product."""
        self.blocked: set[int] = set()
        """The stages that take one block of samples after the other on a GPU."""
        self._uses: Uses = {}
        """The readers of every node, through views."""
        self._spread: set[Node] = set()
        """Tensors of samples whose numbers lanes share: products, and tensors that follow from them."""
        look("trace", self)
        for each in PASSES:
            each(self)
            look(each.__name__.removeprefix("_"), self)

    def is_cooperative(self, node: Node) -> bool:
        """Whether lanes compute a product or sum together."""
        return self.strategy.get(node) is Strategy.COOPERATIVE

    def is_elementwise(self, node: Node) -> bool:
        """Whether lanes compute all samples of a formula together."""
        return self.strategy.get(node) in (Strategy.ELEMENTWISE, Strategy.EPILOGUE)

    def is_stored(self, node: Node) -> bool:
        """Whether a tensor of samples has an array, for the mini-batch or for a block."""
        return self.storage.get(node) in (Storage.MINI_BATCH, Storage.BLOCK)

    def is_of_block(self, node: Node) -> bool:
        """Whether a tensor of samples is stored block by block."""
        return self.storage.get(node) is Storage.BLOCK

    def is_computed(self, node: Node) -> bool:
        """Whether a node has statements of its own."""
        return not isinstance(node, Input | Constant | Count | View) and node not in self.inlined

    def is_contiguous(
        self, node: Node, index: Sequence[IndexExpr], place: IndexExpr, sums: Container[Node] = ()
    ) -> bool:
        """Whether elements are neighbours in memory along `place`, and the first is at a multiple of four.

        False for tensors of `sums`.
        """
        while isinstance(node, View):
            index, node = node.at(tuple(index)), node.inputs[0]
        if node in self.inlined or node in sums or isinstance(node, Constant | Count):
            return False
        if isinstance(node, Input) and node.leaf.part not in ("rows", "value"):
            return False
        static = [(at, size) for at, size in zip(index, node.shape, strict=True) if isinstance(size, int)]
        places = [at for at, size in static if size != 1]
        last = node.shape[-1] if node.shape else 1
        is_last = places[-1:] == [place] and places.count(place) == 1
        return is_last and isinstance(last, int) and last % 4 == 0

    def ready(self, node: Node) -> int:
        """The first stage in which a tensor can be read."""
        return self.stage[node] + (isinstance(node, Reduction) and node.is_global)

    def output_stage(self, node: Node) -> int:
        """The first stage in which an output of the graph can be read."""
        return max((self.ready(source) for source in self.sources(node)), default=0)

    def output_phase(self, gradient: Node) -> int:
        """The phase that stores a sample's gradient for its row."""
        if self.target.is_gpu:
            return self._phase_of_lane([gradient], self.output_stage(gradient), self.phase)
        before = self._latest([gradient], self.output_stage(gradient), self.phase)
        return _next_phase(before, _PLAIN)

    def sources(self, node: Node) -> Iterator[Node]:
        """The arrays that an expression of `node` reads."""
        for each in self.read_by(node):
            if not isinstance(each, Input | Constant | Count):
                yield each

    def read_by(self, node: Node) -> Iterator[Node]:
        """All that an expression of `node` reads: inputs, numbers and arrays."""
        if isinstance(node, View) or node in self.inlined:
            for each in node.inputs:
                yield from self.read_by(each)
        else:
            yield node

    def sample_sources(self, nodes: Sequence[Node]) -> list[Node]:
        """The arrays of samples that expressions of `nodes` read."""
        return [source for each in nodes for source in self.sources(each) if SAMPLES in source.shape]

    def is_by_tiles(self, node: Node) -> bool:
        """Whether a reduction is a product of samples, or a sum over samples of products, that tiles fit."""
        if not isinstance(node, Reduction):
            return False
        return (tiled_outer_sum(node) if SAMPLES in node.over else tiled_product(node)) is not None

    def last_phase(self, node: Node, stage: int) -> int:
        """The last phase of a stage that reads a tensor of samples."""
        return max(self._reading_phases(node, stage), default=0)

    def first_phase(self, node: Node, stage: int) -> int:
        """The first phase from 1 on in which a stage reads a tensor of samples; 1 if none does."""
        return min((phase for phase in self._reading_phases(node, stage) if phase), default=1)

    def _reading_phases(self, node: Node, stage: int) -> list[int]:
        return [
            self.phase[user]
            for user in self.order
            if self.stage[user] == stage
            and not isinstance(user, View | Input)
            and user not in self.inlined
            and any(each is node for inner in user.inputs for each in self.read_by(inner))
        ]

    # The passes, in their order.

    def _own_gradients(self) -> None:
        """Add a node that copies a gradient if this is a parameter's value; find the readers of all nodes."""
        self.graph = with_own_gradients(self.graph)
        self.order = list(topological_order(outputs_of(self.graph)))
        self._uses = uses_of(self.order, outputs_of(self.graph))

    def _verify(self) -> None:
        """Refuse tensors with more than one axis of samples or rows."""
        verify_nodes(self.order)

    def _inline(self) -> None:
        """Find the formulas that are written where they are read, and make them INLINED."""
        self.inlined = inlined_nodes(self._uses, self._gradients_by_samples() if self.target.is_gpu else ())
        self.strategy |= dict.fromkeys(self.inlined, Strategy.INLINED)

    def _stages(self) -> None:
        """Find the stage of every node. On a GPU, make the reductions that lanes share COOPERATIVE."""
        sums: dict[int, int] = {}
        for node in self.order:
            stage = self.stage[node] = max((self.ready(each) for each in node.inputs), default=0)
            if isinstance(node, Reduction) and self.target.is_gpu:
                before = sums.get(stage, 0)
                if self._is_for_lanes(node, before):
                    self.strategy[node] = Strategy.COOPERATIVE
                elif node.is_global:
                    sums[stage] = before + node.count
            if SAMPLES in node.shape and node.count > 1:
                follows = not isinstance(node, Reduction) and any(
                    each in self._spread for each in node.inputs
                )
                if follows or self.is_cooperative(node):
                    self._spread.add(node)

    def _tiles(self) -> None:
        """On a CPU, make the reductions that tiles fit TILED."""
        self.tiled = {} if self.target.is_gpu else dict(self._tiled_on_cpu())
        self.strategy |= dict.fromkeys(self.tiled, Strategy.TILED)

    def _phases(self) -> None:
        """Find the phase of every node within its stage."""
        self.phase = self._phases_of_lanes() if self.target.is_gpu else self._phases_of_loops()

    def _verify_rows(self) -> None:
        """Refuse tensors of all rows that a later stage reads, and gradients that read changed numbers."""
        users = [node for node in self.order if not isinstance(node, View) and node not in self.inlined]
        reads = [
            (self.stage[node], source)
            for node in users
            for each in node.inputs
            for source in self.sources(each)
        ]
        late = len(self.order)
        reads += [(late, source) for node in self.graph.gradients.values() for source in self.sources(node)]
        verify_rows(reads, self.stage)
        verify_moves(self.graph, self.inlined)

    def _stored_samples(self) -> None:
        """Store the tensors of samples that a later phase reads. On a GPU, find direct gradients."""
        self.storage |= dict.fromkeys(self._needed_later(), Storage.MINI_BATCH)
        if self.target.is_gpu:
            self.direct = {node for node in self._gradients_by_samples() if self._is_direct(node)}
            self.storage |= dict.fromkeys(self.sample_sources(list(self.direct)), Storage.MINI_BATCH)

    def _elementwise(self) -> None:
        """On a GPU, make stored formulas of samples ELEMENTWISE where lanes can share them."""
        for node in self.order if self.target.is_gpu else ():
            if self.is_stored(node) and self._can_be_elementwise(node):
                self.strategy[node] = Strategy.ELEMENTWISE

    def _epilogues(self) -> None:
        """Make the only reader of a product its EPILOGUE, and do not store the product then."""
        self.epilogue = dict(self._found_epilogues())
        for product, last in self.epilogue.items():
            del self.storage[product]
            self.strategy[last] = Strategy.EPILOGUE
        self.phase |= {last: self.phase[product] for product, last in self.epilogue.items()}

    def _blocks(self) -> None:
        """Find the stages that take samples block by block, and store tensors of one such stage by BLOCK."""
        self.blocked = {
            self.stage[node] for node in self.order if self.is_cooperative(node) and self.is_by_tiles(node)
        }
        of_block = [node for node in self.storage if self._is_of_block(node)]
        self.storage |= dict.fromkeys(of_block, Storage.BLOCK)

    # The conditions of the passes.

    def _gradients_by_samples(self) -> list[Node]:
        return [node for leaf, node in self.graph.gradients.items() if leaf.part == "rows"]

    def _is_for_lanes(self, node: Reduction, sums: int) -> bool:
        """Whether lanes of a GPU share a sum or product, because its numbers do not fit into registers.

        `sums` is the number of sums over samples that are in registers already. Numbers that lanes share are
        stored sample by sample, so that lanes load neighbouring numbers of a sample together. So lanes share
        sums of such numbers, too.
        """
        if SAMPLES in node.over:
            spread = any(each in self._spread for each in node.inputs)
            many = spread or sums + node.count > self.target.register_sums
            return node.count > 1 and many and not node.largest
        products = node.count * static_count(node.over)
        return SAMPLES in node.shape and len(node.inputs) > 1 and products > self.target.lane_products

    def _can_be_elementwise(self, node: Node) -> bool:
        """Whether lanes can share a formula of all samples: its inputs must be stored before."""
        return (
            isinstance(node, Pointwise | Concat)
            and SAMPLES in node.shape
            and node.count > 1
            and all(
                self.is_elementwise(each)
                or self.stage[each] < self.stage[node]
                or (self.phase[each] < self.phase[node] and self.is_stored(each))
                for each in self.sample_sources(node.inputs)
            )
        )

    def _is_direct(self, gradient: Node) -> bool:
        """Whether a loop over rows can compute a gradient of samples.

        Each tensor of samples that it reads must be stored, or have one number per sample. It must read no
        table, because a step of the optimiser may have changed the table by then.
        """
        leaves = {each.leaf.part for each in self.read_by(gradient) if isinstance(each, Input)}
        return not leaves & {"rows", "whole", "training_sum"} and all(
            each.count == 1 or self.is_stored(each) for each in self.sample_sources([gradient])
        )

    def _found_epilogues(self) -> Iterator[tuple[Node, Node]]:
        """The products in tiles that have one reader, and this reader.

        The reader must be a formula of the same shape whose other inputs are known before the product.
        """
        for node in self.order:
            if not (self.is_cooperative(node) and self.is_stored(node)):
                continue
            assert isinstance(node, Reduction)
            last = self._only_reader(node)
            if last is None or not self.is_elementwise(last) or last.shape != node.shape:
                continue
            others = [each for inner in last.inputs for each in self.sources(inner) if each is not node]
            known = all(self._is_before(each, node) for each in others)
            if tiled_product(node) is not None and isinstance(last, Pointwise) and known:
                yield node, last

    def _only_reader(self, node: Node) -> Node | None:
        """The only reader of a node, through inlined formulas; None if there are several."""
        reader: Node | None = node
        while reader is not None and (reader is node or reader in self.inlined):
            reader = self._uses[reader][0] if len(self._uses[reader]) == 1 else None
        return reader

    def _is_before(self, source: Node, node: Node) -> bool:
        """Whether `source` is known when lanes begin to compute the product `node`."""
        if SAMPLES in source.shape:
            return self._place(source) < self._place(node)
        return self.ready(source) <= self.stage[node]

    def _place(self, node: Node) -> tuple[int, int]:
        return self.stage[node], self.phase[node]

    def _is_shared(self, node: Node) -> bool:
        """Whether a reader of a tensor must wait until all lanes have written it."""
        return self.is_cooperative(node) or node in self._spread

    def _is_of_samples(self, node: Node) -> bool:
        """Whether a loop over samples computes a node."""
        return SAMPLES in node.shape or (isinstance(node, Reduction) and SAMPLES in node.over)

    def _phases_of_lanes(self) -> dict[Node, int]:
        """The phases on a GPU.

        A lane continues in the same phase while it reads only registers of its own sample. A step that lanes
        do together needs the stored tensors of all samples, so it is in a new phase, and so are its readers.
        """
        phases = dict.fromkeys(self.order, 0)
        for node in self.order:
            if self.is_computed(node) and self._is_of_samples(node):
                if self._is_shared(node):
                    phases[node] = 1 + self._latest(node.inputs, self.stage[node], phases)
                else:
                    phases[node] = self._phase_of_lane(node.inputs, self.stage[node], phases)
        return phases

    def _phase_of_lane(self, read: Sequence[Node], stage: int, phases: Mapping[Node, int]) -> int:
        """The first phase in which a lane can read the tensors `read` without the other lanes."""
        return max(
            (
                phases[each] + self._is_shared(each)
                for each in self.sample_sources(read)
                if self.stage[each] == stage
            ),
            default=0,
        )

    def _phases_of_loops(self) -> dict[Node, int]:
        """The phases on a CPU.

        A thin loop computes one number per sample and nothing else, so the C compiler vectorises its slow
        functions over samples. Without slow functions and tiles, one loop computes everything.
        """
        phases = dict.fromkeys(self.order, 0)
        apart = bool(self.tiled)
        for node in self.order:
            if self.is_computed(node) and self._is_of_samples(node):
                before = self._latest(node.inputs, self.stage[node], phases)
                kind = _TILED if node in self.tiled else _THIN if self._is_thin(node) else _PLAIN
                phases[node] = _next_phase(before, kind)
                apart = apart or (kind == _THIN and self._is_slow(node))
        return phases if apart else dict.fromkeys(self.order, 0)

    def _latest(self, read: Sequence[Node], stage: int, phases: Mapping[Node, int]) -> int:
        """The last phase of `stage` that computes one of the tensors `read`; 0 if none does."""
        waited = [phases[each] for each in self.sample_sources(read) if self.stage[each] == stage]
        return max(waited, default=0)

    def _tiled_on_cpu(self) -> Iterator[tuple[Node, Tiled]]:
        """The products and sums over samples whose factors are neighbours in memory, so that tiles fit."""
        for node in self.order:
            if not isinstance(node, Reduction):
                continue
            by_samples = SAMPLES in node.over
            tiled = tiled_outer_sum(node) if by_samples else tiled_product(node)
            if tiled is None:
                continue
            runs = [(tiled.left, tiled.of_left if by_samples else INNER)]
            runs += [(tiled.right, tiled.of_right)] if by_samples else []
            if all(self.is_contiguous(factor.node, factor.index, place) for factor, place in runs):
                yield node, tiled

    def _is_thin(self, node: Node) -> bool:
        """Whether a tensor has one number per sample, and reads one number per sample."""
        sizes = (*node.shape, *node.over) if isinstance(node, Reduction) else node.shape
        read = [each for source in node.inputs for each in self.read_by(source)]
        return static_count(sizes) == 1 and all(each.count == 1 for each in read if SAMPLES in each.shape)

    def _is_slow(self, node: Node) -> bool:
        """Whether a formula, or a formula inlined into it, has a slow operator."""
        own = isinstance(node, Pointwise) and node.op in SLOW
        return own or any(
            self._is_slow(each) for each in node.inputs if each in self.inlined or isinstance(each, View)
        )

    def _needed_later(self) -> Iterator[Node]:
        """The tensors of samples that need an array, since another loop than their own reads them."""
        for node in self.order:
            if not self.is_computed(node):
                continue
            for source in self.sample_sources(node.inputs):
                if self._is_behind(node, source):
                    yield source
            if (self.is_cooperative(node) or node in self.tiled) and SAMPLES in node.shape:
                yield node
        for node in self._gradients_by_samples():
            place = self.output_stage(node), self.output_phase(node)
            for source in self.sample_sources([node]):
                if self._place(source) < place:
                    yield source

    def _is_behind(self, reader: Node, source: Node) -> bool:
        """Whether `reader` reads `source` in another loop than the one that computes `source`."""
        is_later = self._place(source) < self._place(reader)
        return is_later or self.is_cooperative(reader) or reader in self.tiled

    def _is_of_block(self, node: Node) -> bool:
        """Whether a tensor of samples is computed and read only in the blocks of one stage."""
        stage = self.stage[node]
        return (
            stage in self.blocked
            and self.phase[node] > 0
            and all(
                reader is not None and self.stage[reader] == stage for reader in self._readers_through(node)
            )
        )

    def _readers_through(self, node: Node) -> Iterator[Node | None]:
        """The nodes that read a node, through inlined formulas."""
        for reader in self._uses[node]:
            if reader is not None and reader in self.inlined:
                yield from self._readers_through(reader)
            else:
                yield reader


PASSES: Sequence[Callable[[Schedule], None]] = (
    Schedule._own_gradients,
    Schedule._verify,
    Schedule._inline,
    Schedule._stages,
    Schedule._tiles,
    Schedule._phases,
    Schedule._verify_rows,
    Schedule._stored_samples,
    Schedule._elementwise,
    Schedule._epilogues,
    Schedule._blocks,
)
"""The passes in their order: each reads facts that earlier passes have added."""


def _next_phase(before: int, kind: int) -> int:
    """The first phase of a kind (`_PLAIN`, `_THIN` or `_TILED`) that is not before the phase `before`."""
    return before + (kind - before) % _KINDS
