"""The tensors that lanes of a GPU compute together: products, sums over samples, and formulas of all samples.

The module reads COOPERATIVE and ELEMENTWISE nodes, and adds statements to their stages.
"""

from fedrec.federation.engines.fused.backend.cuda.products import PRODUCT, Epilogue, outer, product, turned
from fedrec.federation.engines.fused.backend.cuda.samples import grouped_sum
from fedrec.federation.engines.fused.backend.expressions import Expressions
from fedrec.federation.engines.fused.backend.loops import LoopKind, looped
from fedrec.federation.engines.fused.backend.reader import element
from fedrec.federation.engines.fused.backend.stages import Stage
from fedrec.federation.engines.fused.backend.statements import of_all_samples
from fedrec.federation.engines.fused.ir.dims import SAMPLES
from fedrec.federation.engines.fused.ir.index import (
    ANY_SAMPLE,
    ZERO,
    Variable,
    inner_index,
    loop_index,
    of_any_sample,
)
from fedrec.federation.engines.fused.ir.nodes import Node, Pointwise, Reduction
from fedrec.federation.engines.fused.passes.tiling import INNER, Tiled, tiled_outer_sum, tiled_product


class CooperativeLowering:
    """Adds the joint steps of lanes to stages, and collects the matrices by which samples are multiplied."""

    def __init__(self, expressions: Expressions, arrays: dict[str, int]) -> None:
        self._expressions = expressions
        self._schedule = expressions.schedule
        self._arrays = arrays
        self._transposed: dict[str, int] = {}
        """The arrays of transposed matrices, with their count of numbers."""
        self._matrices: set[str] = set()
        """The arrays of the client by which every sample is multiplied."""

    def emit(self, node: Node, stage: Stage) -> None:
        """Add the statements by which lanes compute a tensor together."""
        number, phase = self._schedule.stage[node], self._schedule.phase[node]
        with self._expressions.in_block(number if number in self._schedule.blocked else None):
            lines = (
                self._reduction(node, stage) if isinstance(node, Reduction) else self._formula_of_block(node)
            )
        stage.together.setdefault(phase, []).extend(lines)

    def arrays_by_need(self) -> dict[str, int]:
        """All arrays of the client with their count of numbers: matrices first, so they get shared memory."""
        matrices = {name: size for name, size in self._arrays.items() if name in self._matrices}
        return self._transposed | matrices | self._arrays

    def _reduction(self, node: Reduction, stage: Stage) -> list[str]:
        """Statements for a sum or product that lanes share; its inputs are stored for all samples."""
        if SAMPLES in node.over:
            return self._sum_over_samples(node, stage)
        tiled = tiled_product(node)
        if tiled:
            left = self._epilogue(node)
            matrix = self._matrix(tiled, stage)
            return product(
                self._expressions, tiled, matrix, left, self._targets(left), self._first_half(node, stage)
            )
        index = of_any_sample(loop_index(node.shape))
        inner = inner_index(node.over)
        add = [f"total += {self._expressions.term(node, index, inner)};"]
        loops = looped(node.over, inner, add, by_lanes=False, innermost=LoopKind.PLAIN, outer=LoopKind.PLAIN)
        body = ["real total = 0;", *loops, f"{self._expressions.array_element(node, index)} = total;"]
        return looped(node.shape, index, body, by_lanes=True)

    def _sum_over_samples(self, node: Reduction, stage: Stage) -> list[str]:
        """Statements for a sum over samples that lanes share."""
        name, both = self._expressions.name(node), tiled_outer_sum(node)
        self._arrays[name] = node.count
        total = (
            outer(self._expressions, node, both, name) if both else grouped_sum(self._expressions, node, name)
        )
        stage.before += total.before
        stage.behind += total.behind
        return total.block

    def _first_half(self, node: Reduction, stage: Stage) -> int:
        """The half of the lanes that begins with a product: products of one phase alternate."""
        phase = self._schedule.phase[node]
        number, stage.multiplied[phase] = stage.multiplied[phase], stage.multiplied[phase] + 1
        return number % 2

    def _matrix(self, tiled: Tiled, stage: Stage) -> str:
        """The address of a matrix that is stored row by row; any other is first copied, transposed."""
        right, column = tiled.right, tiled.of_right
        if self._expressions.is_contiguous(right.node, right.index, column):
            self._matrices.update(self._expressions.name(each) for each in self._schedule.sources(right.node))
            return f"(&{element(self._expressions, right, {INNER: ZERO, column: ZERO})})"
        key = element(self._expressions, right, {INNER: Variable("s"), column: Variable("k")})
        if key not in stage.turned:
            stage.turned[key] = f"{self._expressions.prefix}turned{len(self._transposed)}"
            self._transposed[stage.turned[key]] = tiled.sizes[column] * tiled.sizes[INNER]
            stage.client += turned(self._expressions, tiled, stage.turned[key])
        return stage.turned[key]

    def _targets(self, left: Epilogue) -> list[str]:
        """The elements that store the result of a product: for other stages, for the block, or both."""
        index = [place if place in (ANY_SAMPLE, ZERO) else Variable("column") for place in left.index]
        near = self._expressions.read(left.result, index)
        with self._expressions.in_block(None):
            far = self._expressions.read(left.result, index)
        return [far] if near == far else [far, near]

    def _epilogue(self, node: Reduction) -> Epilogue:
        """The epilogue of a product: the scheduled formula, or the product itself."""
        index = of_any_sample(loop_index(node.shape))
        if node not in self._schedule.epilogue:
            return Epilogue(node, index, PRODUCT)
        result = self._schedule.epilogue[node]
        assert isinstance(result, Pointwise)
        with self._expressions.substituted(node, PRODUCT):
            formula = self._expressions.formula(result, index)
        return Epilogue(result, index, formula)

    def _formula_of_block(self, node: Node) -> list[str]:
        """Statements by which lanes compute a formula of all samples of a block."""
        sources = self._schedule.sample_sources(node.inputs)
        place = (self._schedule.stage[node], self._schedule.phase[node])
        waits = any((self._schedule.stage[each], self._schedule.phase[each]) == place for each in sources)
        return [*(["SYNC();"] if waits else []), *of_all_samples(self._expressions, node)]
