"""The kernel of a fit: the whole training of one client, in epochs of mini-batches of optimiser steps.

The module reads a model, a fit and the lowered losses of its steps. It gives a `FitCode`: the text of the
kernel and the inputs that a launch must pass.
"""

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass

from fedrec.federation.engines.fused.adam import ADAM_TABLES
from fedrec.federation.engines.fused.backend.cpu import tiles
from fedrec.federation.engines.fused.backend.cuda.blocks import Local
from fedrec.federation.engines.fused.backend.library.device_library import functions_for, rare_functions
from fedrec.federation.engines.fused.backend.loops import c_name
from fedrec.federation.engines.fused.backend.lower import lower_loss
from fedrec.federation.engines.fused.backend.stages import Lowered, Stage
from fedrec.federation.engines.fused.device import Device, lanes_for
from fedrec.federation.engines.fused.ir.nodes import Leaf
from fedrec.federation.engines.fused.kernel.block_memory import BlockMemory
from fedrec.federation.engines.fused.kernel.fit_parts import PREFIXES, FitParts, Table, with_moved
from fedrec.federation.engines.fused.kernel.lane_sums import LaneSums
from fedrec.federation.engines.fused.kernel.memory import KernelMemory, Scratch
from fedrec.federation.engines.fused.kernel.optimiser_steps import OptimiserSteps
from fedrec.federation.engines.fused.kernel.prologue import Prologue
from fedrec.federation.engines.fused.trace.loss_graph import trace_loss
from fedrec.federation.engines.fused.trace.symbolic_inputs import Model
from fedrec.federation.loss_numbers import numbers_of
from fedrec.federation.model.client import Fit, Step
from fedrec.native.source import KernelSource


@dataclass(frozen=True)
class FitCode:
    """The kernel of a fit, and the inputs that a launch must pass."""

    source: KernelSource
    """The text of the kernel and its parameters."""
    tables: Mapping[str, Table]
    """The tables that the kernel reads or trains, by name."""
    vectors: Mapping[str, tuple[int, ...]]
    """The shapes of the parameters that are no tables, by name."""
    derived: Mapping[str, int]
    """The count of numbers of each derived tensor, by name."""
    parts: frozenset[str]
    """The parts (`Leaf.part`) that the losses read."""
    adam: tuple[tuple[int, str], ...]
    """The number of the step and the parameter, for all moments of Adam."""
    constants: tuple[float, ...]
    """The constants that are arguments of the kernel, in order."""
    scratch: Scratch
    """The memory of a worker for arrays that spill, and for arrays of rows."""
    moved: tuple[tuple[str, ...], ...]
    """The parameters that each step changes. Others have no gradient; torch.optim does not change them."""
    lifted: bool = True
    """Whether numbers that losses close over are arguments of the kernel, instead of literals."""


def fit_code(
    model: Model,
    fit: Fit,
    graphs: Iterable[Lowered],
    *,
    name: str,
    target: Device,
    double: bool,
    batch: int,
) -> FitCode:
    """Write the kernel of a fit from the lowered losses of its steps.

    `name` is its name in C, `batch` the samples of a mini-batch, and `double` says whether numbers are
    doubles.
    """
    known = list(graphs)
    moved = tuple(
        tuple(name for name in step.rates if any(leaf.name == name for leaf in graph.gradients))
        for step, graph in zip(fit.steps, known, strict=True)
    )
    layout = FitParts(model, with_moved(fit, moved), known)
    return _Writer(layout, name, target, double, batch).code()


def lower_steps(model: Model, fit: Fit, *, target: Device, lifted: bool) -> list[Lowered]:
    """Trace and lower the loss of every step of a fit; raise `UnsupportedError` if one cannot be compiled.

    With `lifted`, numbers that losses close over are arguments of the kernel, instead of literals.
    """
    codes: list[Lowered] = []
    for number, step in enumerate(fit.steps):
        loss = step.loss or fit.loss
        graph = trace_loss(model, loss, list(step.rates), numbers_of(loss) if lifted else None)
        first = sum(len(code.constants) for code in codes)
        codes.append(lower_loss(graph, f"s{number}_", target=target, first_constant=first))
    return codes


class _Writer:
    """Writes the text of a kernel."""

    def __init__(self, layout: FitParts, name: str, target: Device, double: bool, batch: int) -> None:
        self.layout = layout
        """The tables, vectors and inputs of the fit."""
        self.fit = layout.fit
        self.graphs = layout.graphs
        self.name = name
        self.gpu = target.is_gpu
        self.double = double
        self.batch = batch
        """The samples of a mini-batch."""
        self.arrays = KernelMemory(target, double=double, batch=batch)
        """Declares the arrays."""
        self.blocks: BlockMemory | None = None
        """The memory of blocks of samples; None if no stage takes samples in blocks."""
        if any(stage.in_blocks for graph in self.graphs for stage in graph.stages):
            self.blocks = BlockMemory(
                [graph.locals for graph in self.graphs],
                lanes=lanes_for(batch), size=8 if double else 4, target=target,
            )  # fmt: skip
        self.prologue = Prologue(layout, self.arrays, self.blocks, gpu=self.gpu)
        """Writes the prologue."""
        self.optimiser_steps = OptimiserSteps(layout, gpu=self.gpu)
        """Writes the optimiser steps."""

    def code(self) -> FitCode:
        """The text of the kernel, with its inputs."""
        body = "\n".join(_indented(self._body()))
        functions = functions_for(gpu=self.gpu, double=self.double, users=self.layout.has_users)
        functions += rare_functions(body, gpu=self.gpu, double=self.double)
        if any(stage.tiles for graph in self.graphs for stage in graph.stages):
            functions += tiles.tile_functions()
        return FitCode(
            source=KernelSource(
                self.name,
                tuple(self._arguments()),
                body,
                functions,
                self.double,
                rounds_once=True,
                pool_bytes=self.blocks.pool_bytes if self.blocks else 0,
            ),
            tables=self.layout.tables,
            vectors=self.layout.vectors,
            derived=self.layout.derived,
            parts=self.layout.parts,
            adam=self.layout.adam,
            moved=tuple(tuple(step.rates) for step in self.fit.steps),
            constants=tuple(value for graph in self.graphs for value in graph.constants),
            scratch=self.arrays.scratch,
        )

    def _arguments(self) -> Iterator[tuple[str, str]]:
        yield from (("const integer*", name) for name in ("sample_start", "row_start", "positive_start"))
        yield from (("const int*", name) for name in ("slots", "order", "positives"))
        if self.layout.has_users:
            yield from (("const int*", "user_slots"), ("integer", "user_rows"))
        yield from (("const real*", name) for name in ("all_labels", "all_interactions", "all_held"))
        yield from (("const double*", name) for name in ("constants", "numbers", "rates"))
        yield from (("const real*", name) for name in ("shrink", "slope", "root", "steps_before"))
        yield from (("const double*", name) for name in ADAM_TABLES)
        yield from (("real*", f"all_{c_name(name)}") for name in (*self.layout.tables, *self.layout.vectors))
        yield from (("const real*", f"all_derived_{c_name(name)}") for name in self.layout.derived)
        for number, key in self.layout.adam:
            yield from (("real*", f"all_{part}{number}_{c_name(key)}") for part in ("first", "second"))
        yield from (("double*", name) for name in ("losses", "totals", "means"))
        yield from (("int*", name) for name in ("steps_done", "stopped"))
        yield from (
            ("integer", name)
            for name in ("epochs", "sample_count", "batch", "fresh", "scratch_bytes", "most_rows")
        )
        yield from (("integer", name) for name in ("rows_apart", "stops"))
        yield ("double", "early_stop")
        yield ("double", "lowest_root")
        yield ("char*", "scratch")

    @property
    def _looks_ahead(self) -> bool:
        """Whether each lane has at most one sample of a mini-batch, and so can load its next sample early."""
        return self.gpu and self.batch <= lanes_for(self.batch)

    def _body(self) -> Iterator[str]:
        yield from self.prologue.statements()
        if self._looks_ahead:
            yield "int ahead_slot = 0;"
            yield "real ahead_label = 0;"
            if self.layout.has_users:
                yield "int ahead_user = 0;"
            yield "LOOK_AHEAD(0, 0)"
        yield "for (int epoch = 0; epoch < epochs; epoch++) {"
        yield "double epoch_loss = 0;"
        yield "for (int first = 0; first < samples; first += batch) {"
        yield "const int n = samples - first < batch ? samples - first : (int)batch;"
        yield "t++;"
        yield from self._mini_batch()
        yield "}"
        yield from self._epoch_end()
        yield "}"
        yield from self._closing()

    def _mini_batch(self) -> Iterator[str]:
        yield from self._rows_of_samples()
        yield "SYNC();"
        for table in self.layout.lazy:
            yield from self.optimiser_steps.caught_up(table, everything=False)
        if self.layout.lazy:
            yield "SYNC();"
        for number, step in enumerate(self.fit.steps):
            yield "{"
            yield from self._step(number, step)
            yield "}"
        if self.layout.trained and not all(table.dense for table in self.layout.trained):
            for own in (PREFIXES[kind] for kind in self.layout.kinds if self.layout.trains(kind)):
                yield f"for (int z = LANE; z < {own}touched_rows; z += LANES) {own}last[{own}touched[z]] = t;"
            yield "SYNC();"

    def _rows_of_samples(self) -> Iterator[str]:
        """Find the rows of the mini-batch, each once, and chain the samples that share a row."""
        tracked = [PREFIXES[kind] for kind in self.layout.kinds if self.layout.tracks(kind)]
        if tracked:
            yield "const int base = t * (int)batch;"
            yield f"if (LANE == 0) {{ {' '.join(f'{own}touched_rows = 0;' for own in tracked)} }}"
            yield "SYNC();"
        if self.layout.sums and self.layout.trains("item"):
            yield "for (int p = LANE; p < training; p += LANES) {"
            yield "const int r = positives[p0 + p];"
            yield "if (SWAP(stamp + r, t) != t) touched[TAKE(&touched_rows, 1)] = r;"
            yield "}"
            yield "SYNC();"
        yield "for (int i = LANE; i < n; i += LANES) {"
        if not self._looks_ahead:
            yield "const integer at = s0 + order[epoch * sample_count + s0 + first + i];"
        if "labels" in self.layout.parts:
            yield f"labels[i] = {'ahead_label' if self._looks_ahead else 'all_labels[at]'};"
        for kind in self.layout.kinds:
            yield from self._row_of_sample(kind)
        yield "}"
        if self._looks_ahead:
            yield "{"
            yield "const int same = first + (int)batch < samples, later = same ? epoch : epoch + 1;"
            yield "if (later < epochs) LOOK_AHEAD(later, same ? first + (int)batch : 0)"
            yield "}"
        if self.layout.chains:
            yield "SYNC();"
            yield "for (int i = LANE; i < n; i += LANES) {"
            yield "int alike = 0, least = i;"
            yield "for (int s = mark[slot[i]] - base; s >= 0; s = following[s]) {"
            yield "alike++;"
            yield "if (s < least) least = s;"
            yield "}"
            if "occurrences" in self.layout.parts:
                yield "occurrences[i] = (real)alike;"
            if "distinct" in self.layout.parts:
                yield "distinct[i] = (real)(least == i);"
            yield "}"

    def _row_of_sample(self, kind: str) -> Iterator[str]:
        """Store the row of sample `i` in tables of a kind."""
        own, ahead = PREFIXES[kind], {"item": "ahead_slot", "user": "ahead_user"}[kind]
        yield "{"
        yield f"const int r = {ahead if self._looks_ahead else f'{own}slots[at]'};"
        yield f"{own}slot[i] = r;"
        if self.layout.tracks(kind):
            yield f"const int other = SWAP({own}mark + r, base + i);"
            yield f"{own}following[i] = other >= base ? other - base : -1;"
        if self.layout.trains(kind):
            new = "SWAP(stamp + r, t) != t" if self.layout.sums else "other < base"
            yield f"if ({new}) {own}touched[TAKE(&{own}touched_rows, 1)] = r;"
        yield "}"

    def _step(self, number: int, step: Step) -> Iterator[str]:
        graph = self.graphs[number]
        for name in self.layout.sums:
            if Leaf("training_sum", name) in graph.leaves:
                yield from self._training_sum(self.layout.tables[name])
        for place, stage in enumerate(graph.stages):
            yield from self._stage(number, place, stage)
        if number == len(self.fit.steps) - 1:
            yield f"epoch_loss += (double)({graph.loss});"
        yield "SYNC();"
        # Dense tables come first: the gradients of their rows read tables that must not have changed yet.
        tables = sorted(
            (self.layout.tables[key] for key in step.rates if key in self.layout.tables),
            key=lambda each: not each.dense,
        )
        for table in tables:
            yield from self.optimiser_steps.of_rows(number, step, table)
        # Gradients of rows may read the vectors that change next.
        yield "SYNC();"
        for key in step.rates:
            if key in self.layout.vectors:
                yield from self.optimiser_steps.of_vector(number, step, key)
        yield "SYNC();"

    def _training_sum(self, table: Table) -> Iterator[str]:
        c, width = table.c, table.width
        yield f"for (int k = LANE; k < {width}; k += LANES) {{"
        yield "real total = 0;"
        yield "for (int p = 0; p < training; p++)"
        yield f"total += table_{c}[(integer)positives[p0 + p] * {width} + k];"
        yield f"sum_{c}[k] = total;"
        yield "}"
        yield "SYNC();"

    def _stage(self, number: int, place: int, stage: Stage) -> Iterator[str]:
        yield from stage.client
        if stage.wide:
            yield from ("{", "const int i0 = 0, i1 = n;", *stage.wide, "}")
        reduced = [
            LaneSums(f"s{number}_sum{place}", f"s{number}_total{place}", stage.sums),
            LaneSums(f"s{number}_high{place}", f"s{number}_highest{place}", stage.highest, largest=True),
        ]
        for each in reduced:
            yield from each.opened()
        if stage.tiles:
            block = tiles.BLOCK
            yield f"for (int i0 = 0; i0 < n; i0 += {block}) {{"
            yield f"const int i1 = n - i0 < {block} ? n : i0 + {block};"
        for phase, lines, at_once in stage.parts:
            if at_once:
                yield from lines
                continue
            tables = self._tables(stage.rows_read[phase])
            if self.gpu and not phase:
                yield from self._loop_by_lanes(lines, tables)
            elif not self.gpu:
                over = "i0; i < i1; i++" if stage.tiles else "LANE; i < n; i += LANES"
                yield from self._loop(lines, tables, over)
        if stage.tiles:
            yield "}"
        if stage.row:
            yield "for (int i = LANE; i < rows; i += LANES) {"
            yield from stage.row
            yield "}"
        for each in reduced:
            yield from each.closed(gpu=self.gpu)
        if stage.sample:
            yield "SYNC();"
        if self.gpu:
            yield from self._later_phases(number, place, stage)

    def _loop(self, lines: list[str], tables: list[Table], over: str) -> Iterator[str]:
        """A loop over samples; a lane loads the rows of its sample into registers."""
        yield f"for (int i = {over}) {{"
        for table in tables:
            yield from self._row_loaded(table)
        yield from lines
        yield "}"

    def _loop_by_lanes(self, lines: list[str], tables: list[Table]) -> Iterator[str]:
        """A loop over all samples; if the rows of all lanes fit into shared memory, lanes load them together.

        Then neighbouring lanes load neighbouring numbers of one row, instead of one number of distant rows.
        """
        rows = [
            Local(f"rows_{table.c}", table.width, 0, 0, 0, f"table_{table.c}", table.slot) for table in tables
        ]
        if self.blocks is None or not tables or not self.blocks.has_room_for(rows, lanes_for(self.batch)):
            yield from self._loop(lines, tables, "LANE; i < n; i += LANES")
            return
        yield from self.blocks.of_all_lanes(rows, lanes_for(self.batch), self.arrays)
        yield "for (int i = i0 + LANE; i < i1; i += LANES) {"
        for table, own in zip(tables, rows, strict=True):
            yield f"real row_{table.c}[{table.width}];"
            yield f"load<{table.width}>(row_{table.c}, {own.name} + (i - i0) * {own.stride});"
        yield from (*lines, "}", "SYNC();", "}", "}")

    def _tables(self, names: Container[str]) -> list[Table]:
        return [table for name, table in self.layout.tables.items() if name in names]

    def _later_phases(self, number: int, place: int, stage: Stage) -> Iterator[str]:
        """The phases after phase 0 on a GPU, perhaps in blocks: joint steps of lanes, loops over samples."""
        phases = sorted(phase for phase in {*stage.together, *stage.phases} if phase)
        if not phases:
            return
        high = f"s{number}_high{place}_late", f"s{number}_highest{place}_late"
        reduced = [
            LaneSums(f"s{number}_sum{place}_late", f"s{number}_total{place}_late", stage.late_sums),
            LaneSums(*high, stage.late_highest, largest=True),
        ]
        for each in reduced:
            yield from each.opened()
        yield from stage.before
        yield "{"
        if stage.in_blocks:
            assert self.blocks is not None
            yield from self.blocks.opened(number, place, self.arrays)
        else:
            yield "const int i0 = 0, i1 = n;"
        for phase in phases:
            if stage.in_blocks:
                assert self.blocks is not None
                yield from self.blocks.waited(number, place, phase)
            if phase in stage.together:
                yield from (*stage.together[phase], "SYNC();")
            if phase in stage.phases:
                tables = self._tables(stage.rows_read[phase])
                yield from self._loop(stage.phases[phase], tables, "i0 + LANE; i < i1; i += LANES")
                yield "SYNC();"
        yield "}}" if stage.in_blocks else "}"
        if stage.behind:
            yield from (*stage.behind, "SYNC();")
        for each in reduced:
            yield from each.closed(gpu=self.gpu)
        if stage.late_sums or stage.late_highest:
            yield "SYNC();"

    def _row_loaded(self, table: Table) -> Iterator[str]:
        c, width = table.c, table.width
        if not self.gpu:
            yield f"const real* const row_{c} = table_{c} + (integer){table.slot}[i] * {width};"
            return
        yield f"real row_{c}[{width}];"
        yield f"load<{width}>(row_{c}, table_{c} + (integer){table.slot}[i] * {width});"

    def _epoch_end(self) -> Iterator[str]:
        yield "const int batches = (samples + (int)batch - 1) / (int)batch;"
        yield "if (LANE == 0) losses[item] = epoch_loss / batches;"
        yield "if (stops) {"
        yield "const double total = totals[item] + epoch_loss, mean = total / t, earlier = means[item];"
        yield "const int stop = t > batches && fabs(mean - earlier) < early_stop * (earlier + 1e-5);"
        yield "SYNC();"
        yield "if (LANE == 0) { totals[item] = total; means[item] = mean; stopped[item] = stop; }"
        yield "SYNC();"
        yield "if (stop) break;"
        yield "}"

    def _closing(self) -> Iterator[str]:
        for table in self.layout.lazy:
            yield from self.optimiser_steps.caught_up(table, everything=True)
        for name, shape in self.layout.vectors.items():
            size, c = math.prod(shape), c_name(name)
            if any(name in step.rates for step in self.fit.steps):
                yield f"for (int e = LANE; e < {size}; e += LANES) all_{c}[item * {size} + e] = x_{c}[e];"
        for number, key in self.layout.adam:
            if key in self.layout.vectors:
                size = math.prod(self.layout.vectors[key])
                for part in ("first", "second"):
                    name = f"{part}{number}_{c_name(key)}"
                    yield f"for (int e = LANE; e < {size}; e += LANES)"
                    yield f"all_{name}[item * {size} + e] = {name}[e];"
        yield "if (LANE == 0) steps_done[item] = t;"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """The lines, indented by their open braces."""
    depth = 1
    for line in lines:
        leading = len(line) - len(line.lstrip("}"))
        yield "  " * (depth - leading) + line
        depth += line.count("{") - line.count("}")
