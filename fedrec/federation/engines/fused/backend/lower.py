"""Turn the graph of a loss into statements of C, and add each statement to its stage.

The module reads a `LossGraph` and gives a `Lowered`. The schedule says in which stage and phase a tensor is
computed. `expressions` writes how it is read, `statements` how it is computed, and `cuda.cooperative` the
steps that lanes of a GPU do together.
"""

from fedrec.federation.engines.fused.backend.cpu import tiles
from fedrec.federation.engines.fused.backend.cuda.cooperative import CooperativeLowering
from fedrec.federation.engines.fused.backend.cuda.samples import lane_total
from fedrec.federation.engines.fused.backend.expressions import Expressions
from fedrec.federation.engines.fused.backend.loops import LoopKind, looped
from fedrec.federation.engines.fused.backend.reader import element
from fedrec.federation.engines.fused.backend.stages import Gradient, Lowered, Stage
from fedrec.federation.engines.fused.backend.statements import (
    assigned,
    computed,
    of_all_samples,
    stored_gradient,
)
from fedrec.federation.engines.fused.device import CPU, Device
from fedrec.federation.engines.fused.ir.dims import ROWS, SAMPLES, Symbol, static_count
from fedrec.federation.engines.fused.ir.index import ZERO, Variable, flat, inner_index, loop_index
from fedrec.federation.engines.fused.ir.nodes import LossGraph, Node, Reduction
from fedrec.federation.engines.fused.passes.schedule import Schedule, Strategy
from fedrec.federation.engines.fused.passes.tiling import INNER, Tiled


def lower_loss(graph: LossGraph, prefix: str, *, target: Device = CPU, first_constant: int = 0) -> Lowered:
    """Schedule and lower a graph; names of its arrays begin with `prefix`.

    Constants that are arguments of the kernel have numbers from `first_constant` on.
    """
    return Lowering(Schedule(graph, target), prefix, first_constant).result()


class Lowering:
    """Adds the statements of every tensor of a graph to the stage that computes it."""

    def __init__(self, schedule: Schedule, prefix: str, first_constant: int) -> None:
        self._target = schedule.target
        self._schedule = schedule
        self._graph = schedule.graph
        self._expressions = Expressions(schedule, prefix, first_constant)
        """Writes how each tensor is read."""
        self._arrays: dict[str, int] = {}
        """The arrays of the client, by name, with their count of numbers."""
        self._cooperative = CooperativeLowering(self._expressions, self._arrays)
        """Adds the joint steps of a GPU's lanes."""

    def result(self) -> Lowered:
        """Lower every node and give the result."""
        outputs = list(self._graph.gradients.values())
        count = 1 + max((self._schedule.ready(node) for node in (self._graph.loss, *outputs)), default=0)
        stages = [Stage(number in self._schedule.blocked) for number in range(count)]
        elsewhere = set(self._schedule.epilogue.values())
        for node in self._schedule.order:
            if self._schedule.is_computed(node) and node not in elsewhere:
                self._emit(node, stages[self._schedule.stage[node]])
        for leaf, node in self._graph.gradients.items():
            if leaf.part == "rows" and not (
                node in self._schedule.direct or Gradient(node, self._expressions).is_zero
            ):
                with self._expressions.noting_rows() as rows_read:
                    lines = stored_gradient(self._expressions, leaf.name, node)
                stage = stages[self._schedule.output_stage(node)]
                stage.add(self._schedule.output_phase(node), lines, rows_read)
        gradients = {
            leaf: Gradient(node, self._expressions, leaf.part == "rows" and node in self._schedule.direct)
            for leaf, node in self._graph.gradients.items()
        }
        loss = self._expressions.read(self._graph.loss, (ZERO,) * len(self._graph.loss.shape))
        for leaf, gradient in gradients.items():
            if leaf.part != "rows" or gradient.is_direct:
                # Write its expression once, so that the inputs and constants that it reads are recorded.
                gradient.at(*(ZERO for _ in gradient.node.shape))
        kept = {
            self._expressions.name(node): node.count
            for node in self._schedule.order
            if self._schedule.is_stored(node) and not self._schedule.is_of_block(node)
        }
        return Lowered(
            stages,
            self._expressions.leaves,
            self._cooperative.arrays_by_need(),
            kept,
            self._expressions.block_arrays(),
            self._expressions.constants,
            loss,
            gradients,
        )

    def _emit(self, node: Node, stage: Stage) -> None:
        strategy, phase = self._schedule.strategy.get(node), self._schedule.phase[node]
        if strategy is Strategy.COOPERATIVE or (strategy is Strategy.ELEMENTWISE and phase):
            self._cooperative.emit(node, stage)
        elif strategy is Strategy.TILED:
            assert isinstance(node, Reduction)
            self._emit_tiles(node, self._schedule.tiled[node], stage)
        elif isinstance(node, Reduction) and node.is_global:
            self._emit_sum(node, stage)
        elif strategy is Strategy.ELEMENTWISE:
            stage.wide += [*of_all_samples(self._expressions, node), "SYNC();"]
        elif SAMPLES in node.shape:
            with self._expressions.noting_rows() as rows_read:
                lines = assigned(self._expressions, node)
            stage.add(phase, lines, rows_read)
        elif ROWS in node.shape:
            stage.row += assigned(self._expressions, node)
        else:
            stage.client += self._client_statements(node)

    def _emit_tiles(self, node: Reduction, tiled: Tiled, stage: Stage) -> None:
        """Add a product of all samples, or a sum over samples of products, in tiles, block by block."""
        lines = stage.tiles.setdefault(self._schedule.phase[node], [])
        if SAMPLES in node.over:
            lines += tiles.block_outer(self._expressions, tiled, self._reserved_sums(node, stage))
            return
        matrix, right = f"{self._expressions.name(node)}_matrix", tiled.right
        if self._expressions.is_contiguous(right.node, right.index, tiled.of_right):
            matrix = f"(&{element(self._expressions, right, {INNER: ZERO, tiled.of_right: ZERO})})"
        else:
            self._arrays[matrix] = static_count(node.over) * node.count
            stage.client += tiles.matrix_by_rows(self._expressions, tiled, matrix)
        first = tuple(Variable("i0") if isinstance(size, Symbol) else ZERO for size in node.shape)
        lines += tiles.block_product(
            self._expressions, tiled, matrix, f"&{self._expressions.array_element(node, first)}"
        )

    def _reserved_sums(self, node: Reduction, stage: Stage) -> str:
        """Reserve places for the sums of a reduction over samples or rows; give the first place."""
        kind = ("late_" if self._expressions.is_late_sum(node) else "") + (
            "highest" if node.largest else "sums"
        )
        first = self._expressions.sum_offset[node] = getattr(stage, kind)
        setattr(stage, kind, first + node.count)
        return f"{self._expressions.sum_array(node, of_lane=True)} + {first}"

    def _emit_sum(self, node: Reduction, stage: Stage) -> None:
        """Add a sum or maximum over samples or rows, and over further axes if the reduction covers them."""
        first = self._reserved_sums(node, stage)
        index, inner = loop_index(node.shape), inner_index(node.over)
        with self._expressions.noting_rows() as rows_read:
            term = self._expressions.term(node, index, inner)
        place = f"({first})[{flat(index, node.shape)}]"
        line = f"{place} = most({term}, {place});" if node.largest else f"{place} += {term};"
        is_single = static_count(node.over) == 1
        body = looped(node.over, inner, [line], by_lanes=False)
        innermost = LoopKind.INDEPENDENT if is_single and not self._target.is_gpu else LoopKind.UNROLLED
        lines = looped(node.shape, index, body, by_lanes=False, innermost=innermost)
        if SAMPLES in node.over:
            stage.add(self._schedule.phase[node], lines, rows_read)
        else:
            stage.row += lines

    def _client_statements(self, node: Node) -> list[str]:
        """Statements that compute a tensor of the client: lanes divide its numbers, but all compute one."""
        if node.count == 1:
            return (
                self._long_sum(node)
                if self._target.is_gpu and self._is_long_sum(node)
                else assigned(self._expressions, node)
            )
        self._arrays[self._expressions.name(node)] = node.count
        return [*computed(self._expressions, node, by_lanes=True), "SYNC();"]

    def _long_sum(self, node: Node) -> list[str]:
        """Statements for one number that is a long sum: each lane adds some of the terms."""
        assert isinstance(node, Reduction)
        inner = inner_index(node.over)
        term = self._expressions.term(node, loop_index(node.shape), inner)
        return lane_total(node, term, inner, self._expressions.name(node))

    def _is_long_sum(self, node: Node) -> bool:
        """Whether a number of the client is a sum of so many terms that lanes share it."""
        many = self._target.shared_sum
        return isinstance(node, Reduction) and not node.largest and static_count(node.over) >= many
