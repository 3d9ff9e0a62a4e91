"""Turns the graph of a loss into statements of C, and adds each to its stage.

`placing` says in which stage and turn a tensor is computed, `expressions` how it is read, `statements` how it
is computed, and `gpu_cooperative` what lanes of a GPU do together.
"""

import math

from fedrec.federation.engines.fused import cpu_samples
from fedrec.federation.engines.fused.expressions import Expressions
from fedrec.federation.engines.fused.gpu_cooperative import CooperativeLowering
from fedrec.federation.engines.fused.gpu_samples import Tiled, lane_total
from fedrec.federation.engines.fused.loops import apart, flat, inner_index, loop_index, looped
from fedrec.federation.engines.fused.nodes import (
    ROWS,
    SAMPLES,
    Constant,
    Count,
    Input,
    LossGraph,
    Node,
    Reduction,
    Reindexed,
)
from fedrec.federation.engines.fused.placing import Placing
from fedrec.federation.engines.fused.readers import goes_over_varying
from fedrec.federation.engines.fused.stages import Gradient, Lowered, Stage
from fedrec.federation.engines.fused.statements import assigned, computed, of_all_samples, stored_gradient
from fedrec.federation.engines.fused.target import H200, TargetDevice


def lowered(
    graph: LossGraph, prefix: str, *, gpu: bool, target: TargetDevice = H200, first_constant: int = 0
) -> Lowered:
    """The code of a graph; names of its arrays begin with `prefix`."""
    return Lowering(graph, prefix, gpu, target, first_constant).result()


class Lowering:
    """Adds the statements of every tensor of a graph to the stage that computes it."""

    def __init__(
        self, graph: LossGraph, prefix: str, gpu: bool, target: TargetDevice, first_constant: int
    ) -> None:
        self._gpu = gpu
        self._target = target
        self._placing = Placing(graph, gpu=gpu, target=target)
        self._graph = self._placing.graph
        self._expressions = Expressions(self._placing, prefix, gpu, first_constant)
        self._arrays: dict[str, int] = {}
        self._cooperative = CooperativeLowering(self._expressions, self._arrays)

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
            if leaf.part == "rows" and not (
                node in self._placing.direct or Gradient(node, self._expressions).is_zero
            ):
                stage = stages[self._placing.output_stage(node)]
                stage.turns.setdefault(self._placing.output_turn(node), []).extend(
                    stored_gradient(self._expressions, leaf.name, node)
                )
        gradients = {
            leaf: Gradient(node, self._expressions, leaf.part == "rows" and node in self._placing.direct)
            for leaf, node in self._graph.gradients.items()
        }
        loss = self._expressions.read(self._graph.loss, ("0",) * len(self._graph.loss.shape))
        for leaf, gradient in gradients.items():
            if leaf.part != "rows" or gradient.is_direct:
                # Reads what it needs: leaves and constants are noted.
                gradient.at(*("0" for _ in gradient.node.shape))
        kept = {
            self._expressions.name(node): node.count
            for node in self._placing.order
            if node in self._placing.kept and node not in self._placing.local
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
        if node in self._placing.by_lanes or (node in self._placing.wide and self._placing.turn[node]):
            self._cooperative.emit(node, stage)
        elif node in self._placing.tiled:
            assert isinstance(node, Reduction)
            self._emit_tiles(node, self._placing.tiled[node], stage)
        elif isinstance(node, Reduction) and goes_over_varying(node):
            self._emit_sum(node, stage)
        elif node in self._placing.wide:
            stage.wide += [*of_all_samples(self._expressions, node), "SYNC();"]
        elif SAMPLES in node.shape:
            stage.turns.setdefault(self._placing.turn[node], []).extend(assigned(self._expressions, node))
        elif ROWS in node.shape:
            stage.row += assigned(self._expressions, node)
        else:
            stage.client += self._client_statements(node)

    def _emit_tiles(self, node: Reduction, tiled: Tiled, stage: Stage) -> None:
        """A product of all samples, or a sum of such over them, block by block of samples."""
        lines = stage.tiles.setdefault(self._placing.turn[node], [])
        if SAMPLES in node.over:
            lines += cpu_samples.block_outer(self._expressions, tiled, self._reserved_sums(node, stage))
            return
        matrix, right = f"{self._expressions.name(node)}_matrix", tiled.right
        if self._expressions.is_run(right.node, right.index, tiled.of_right):
            matrix = f"(&{right.at(self._expressions, {'s0': '0', tiled.of_right: '0'})})"
        else:
            self._arrays[matrix] = math.prod(node.over) * node.count
            stage.client += cpu_samples.matrix_by_rows(self._expressions, tiled, matrix)
        first = tuple("i0" if size == SAMPLES else "0" for size in node.shape)
        lines += cpu_samples.block_product(
            self._expressions, tiled, matrix, f"&{self._expressions.array_element(node, first)}"
        )

    def _reserved_sums(self, node: Reduction, stage: Stage) -> str:
        """Where the sums of a reduction over samples or rows begin."""
        kind = ("late_" if self._expressions.is_late_sum(node) else "") + (
            "highest" if node.largest else "sums"
        )
        first = self._expressions.sum_offset[node] = getattr(stage, kind)
        setattr(stage, kind, first + node.count)
        return f"{self._expressions.sum_array(node, of_lane=True)} + {first}"

    def _emit_sum(self, node: Reduction, stage: Stage) -> None:
        """A sum over samples or rows, and perhaps over axes of each of them."""
        first = self._reserved_sums(node, stage)
        index = loop_index(node.shape)
        inner = inner_index(node.over)
        term, place = self._expressions.term(node, index, inner), f"({first})[{flat(index, node.shape)}]"
        line = f"{place} = most({term}, {place});" if node.largest else f"{place} += {term};"
        static = tuple(1 if size in (SAMPLES, ROWS) else size for size in node.over)
        body = looped(static, inner, [line], by_lanes=False)
        lines = looped(node.shape, index, body, by_lanes=False)
        if not self._gpu and math.prod(static) == 1:
            lines = apart(lines)
        by_samples = SAMPLES in node.over
        (stage.turns.setdefault(self._placing.turn[node], []) if by_samples else stage.row).extend(lines)

    def _client_statements(self, node: Node) -> list[str]:
        """Statements that compute a tensor of the client: each lane some, or all lanes one number."""
        if node.count == 1:
            return (
                self._long_sum(node)
                if self._gpu and self._is_long_sum(node)
                else assigned(self._expressions, node)
            )
        self._arrays[self._expressions.name(node)] = node.count
        return [*computed(self._expressions, node, by_lanes=True), "SYNC();"]

    def _long_sum(self, node: Node) -> list[str]:
        """Statements for a number that is a sum of many: each lane adds up some."""
        assert isinstance(node, Reduction)
        inner = inner_index(node.over)
        term = self._expressions.term(node, loop_index(node.shape), inner)
        return lane_total(node, term, inner, self._expressions.name(node))

    def _is_long_sum(self, node: Node) -> bool:
        """Whether a number of the client is a sum of many."""
        many = self._target.shared_sum
        return isinstance(node, Reduction) and not node.largest and math.prod(node.over) >= many
