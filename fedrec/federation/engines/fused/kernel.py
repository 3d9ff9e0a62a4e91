"""The whole training of one client as a kernel: epochs of mini-batches, each of some steps.

A row of a table that no sample of a mini-batch is about still takes the optimiser's step: it decays, and Adam
goes on by its moments. Such steps are taken when the row is next looked at: `last` is the mini-batch up to
which a row has come. Where only moments move it, all steps it has missed are one: moments shrink by powers,
and what they move the row by is a sum of powers that is known beforehand (see `fused.adam`). The gradients of
the samples of a row are added up in the order of samples, so that results do not depend on which lane was
first.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fedrec.federation.engines.fused import cpu_rows, cpu_samples
from fedrec.federation.engines.fused.adam import ADAM_TABLES
from fedrec.federation.engines.fused.functions import functions_for
from fedrec.federation.engines.fused.gpu_blocks import (
    BYTES_PER_LANE,
    PARTS_PER_LANE,
    fetched,
    over_blocks,
    places,
    samples_of_block,
)
from fedrec.federation.engines.fused.gpu_rows import (
    IdleSteps,
    each_number,
    gradient_of_samples,
    moved_by_lanes,
    over_rows,
)
from fedrec.federation.engines.fused.graph import traced
from fedrec.federation.engines.fused.key import numbers_of
from fedrec.federation.engines.fused.loops import c_name, flat, looped
from fedrec.federation.engines.fused.lower import Lowered, lowered
from fedrec.federation.engines.fused.nodes import Leaf
from fedrec.federation.model.client import Fit, Step
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import Parameter
from fedrec.native.source import KernelSource

_SHARED_BYTES = 32 * 1024
"""Of a block's memory on the GPU that arrays may take; others lie in the worker's scratch memory."""
_STACK_BYTES = 256 * 1024
"""The same on the CPU."""
_ALIGNED = 64
_FEWEST = 32
"""Samples of a block that finds no room near its lanes."""
_LANES = (32, 512)
"""The fewest and most threads that train a client on a GPU."""
_LANES_PER_SAMPLE = 2
"""A row has more numbers than a lane should move alone."""


@dataclass(frozen=True)
class Table:
    """A table of a kernel: its width, the steps that train it, and whether gradients move all rows."""

    name: str
    width: int
    steps: tuple[int, ...]
    dense: bool
    idle: bool
    """Whether rows move that no sample was about."""

    @property
    def c(self) -> str:
        """Its name in C."""
        return c_name(self.name)


@dataclass(frozen=True)
class FitCode:
    """A kernel for a fit, and what it has to be given."""

    source: KernelSource
    tables: Mapping[str, Table]
    vectors: Mapping[str, tuple[int, ...]]
    derived: Mapping[str, int]
    parts: frozenset[str]
    """What of the client and its mini-batches is read."""
    adam: tuple[tuple[int, str], ...]
    """The steps and names that have moments."""
    constants: tuple[float, ...]
    scratch: "Scratch"
    lifted: bool = True
    """Whether numbers that losses close over are given with each call."""


@dataclass
class Scratch:
    """A worker's memory: arrays of so many bytes by mini-batch sample, by held row, and besides."""

    per_sample: int = 0
    per_row: int = 0
    fixed: int = 0
    arrays: int = 0

    def bytes(self, batch: int, rows: int) -> int:
        """What a worker needs."""
        return self.per_sample * batch + self.per_row * rows + self.fixed + _ALIGNED * (self.arrays + 1)


def lanes_for(batch: int) -> int:
    """Threads of a block on the GPU: some for each sample of a mini-batch, as far as possible."""
    fewest, most = _LANES
    return max(fewest, min(most, _LANES_PER_SAMPLE << (batch - 1).bit_length()))


def fit_code(method: Method, fit: Fit, graphs: "Iterable[Lowered]", *, name: str, gpu: bool, double: bool,
             batch: int, near: int | None = None) -> FitCode:  # fmt: skip
    """The kernel of a fit whose losses are lowered; `near` bounds the memory a GPU's block is given."""
    return _Writer(method, fit, list(graphs), name, gpu, double, batch, near).code()


def lowered_steps(method: Method, fit: Fit, *, gpu: bool, lifted: bool) -> list[Lowered]:
    """The losses of a fit's steps as statements; raise `UnsupportedError` where one cannot be.

    With `lifted`, numbers that losses close over are given with each call.
    """
    codes: list[Lowered] = []
    for number, step in enumerate(fit.steps):
        loss = step.loss or fit.loss
        graph = traced(method, loss, list(step.rates), numbers_of(loss) if lifted else None)
        first = sum(len(code.constants) for code in codes)
        codes.append(lowered(graph, f"s{number}_", gpu=gpu, first_constant=first))
    return codes


class _Writer:
    """Writes the text of a kernel."""

    def __init__(
        self, method: Method, fit: Fit, graphs: list[Lowered], name: str, gpu: bool, double: bool, batch: int,
        near: int | None,
    ) -> None:  # fmt: skip
        self.parameters: Mapping[str, Parameter] = method.parameters()
        self.fit = fit
        self.graphs = graphs
        self.name = name
        self.gpu = gpu
        self.double = double
        self.batch = batch
        most = BYTES_PER_LANE * lanes_for(batch)
        self.near_bytes = most if near is None else min(most, near)
        self.scratch = Scratch()
        self.fast_left = _SHARED_BYTES if gpu else _STACK_BYTES
        self.near: dict[str, bool] = {}
        """Arrays of samples, and whether they lie in a block's memory on the GPU."""
        self.pool_bytes = 0
        self.block = 0
        """Samples of a block that lanes work on together."""
        self.leaves = {leaf: shape for graph in graphs for leaf, shape in graph.leaves.items()}
        self.parts = frozenset(leaf.part for leaf in self.leaves)
        trained = {name for step in fit.steps for name in step.rates}
        seen = {leaf.name for leaf in self.leaves if leaf.part in ("rows", "whole", "training_sum", "value")}
        used = {name: part for name, part in self.parameters.items() if name in trained | seen}
        self.tables = {name: self._table(name) for name, part in used.items() if part.table}
        self.vectors = {name: tuple(part.shape) for name, part in used.items() if not part.table}
        self.derived = {
            leaf.name: math.prod(shape) for leaf, shape in self.leaves.items() if leaf.part == "derived"
        }
        self.sums = [name for name in self.tables if Leaf("training_sum", name) in self.leaves]
        self.rates = [
            f"{kind}{number}_{c_name(key)}"
            for number, step in enumerate(fit.steps)
            for key in step.rates
            for kind in ("rate", "decay")
        ]
        self.adam = tuple(
            (number, key)
            for number, step in enumerate(fit.steps)
            if step.optimiser == "adam"
            for key in step.rates
        )

    def code(self) -> FitCode:
        """The kernel."""
        body = "\n".join(_indented(self._body()))
        functions = functions_for(gpu=self.gpu, double=self.double)
        if any(stage.tiles for graph in self.graphs for stage in graph.stages):
            functions += cpu_samples.tile_functions()
        return FitCode(
            source=KernelSource(
                self.name,
                tuple(self._arguments()),
                body,
                functions,
                self.double,
                rounds_once=True,
                pool_bytes=self.pool_bytes,
            ),
            tables=self.tables,
            vectors=self.vectors,
            derived=self.derived,
            parts=self.parts,
            adam=self.adam,
            constants=tuple(value for graph in self.graphs for value in graph.constants),
            scratch=self.scratch,
        )

    def _table(self, name: str) -> Table:
        steps = [(number, step) for number, step in enumerate(self.fit.steps) if name in step.rates]
        whole = Leaf("whole", name)
        dense = any(not self.graphs[number].gradients[whole].is_zero for number, _ in steps)
        idle = any(
            step.weight_decay.get(name, 0.0) or (step.optimiser == "adam" and step.keep_state)
            for _, step in steps
        )
        return Table(
            name, self.parameters[name].shape[1], tuple(number for number, _ in steps), dense, bool(idle)
        )

    @property
    def _trained(self) -> list[Table]:
        return [table for table in self.tables.values() if table.steps]

    @property
    def _lazy(self) -> list[Table]:
        """Tables whose rows are caught up when they are looked at."""
        return [
            table for table in self._trained if not table.dense and (table.idle or self._has_moments(table))
        ]

    def _has_moments(self, table: Table) -> bool:
        return any((number, table.name) in self.adam for number in table.steps)

    def _arguments(self) -> Iterator[tuple[str, str]]:
        yield from (("const integer*", name) for name in ("sample_start", "row_start", "positive_start"))
        yield from (("const int*", name) for name in ("slots", "order", "positives"))
        yield from (("const real*", name) for name in ("all_labels", "all_interactions", "all_held"))
        yield from (("const double*", name) for name in ("constants", "numbers", "rates"))
        yield from (("const real*", name) for name in ("shrink", "slope", "root", "steps_before"))
        yield from (("const double*", name) for name in ADAM_TABLES)
        yield from (("real*", f"all_{c_name(name)}") for name in (*self.tables, *self.vectors))
        yield from (("const real*", f"all_derived_{c_name(name)}") for name in self.derived)
        for number, key in self.adam:
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
        """Whether a lane has one sample of a mini-batch at most, and can fetch the next one's early."""
        return self.gpu and self.batch <= lanes_for(self.batch)

    def _body(self) -> Iterator[str]:
        yield from self._opening()
        if self._looks_ahead:
            yield "int ahead_slot = 0;"
            yield "real ahead_label = 0;"
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

    def _opening(self) -> Iterator[str]:
        yield "if (stopped[item]) return;"
        yield "const integer s0 = sample_start[item], r0 = row_start[item];"
        yield "const int samples = (int)(sample_start[item + 1] - s0);"
        yield "const int rows = (int)(row_start[item + 1] - r0);"
        yield "int t = steps_done[item];"
        yield f"const int before = {'(int)steps_before[item]' if self._keeps_state else '0'};"
        for number, name in enumerate(self.rates):
            yield f"const real {name} = (real)rates[{number}];"
        for number in range(sum(len(graph.constants) for graph in self.graphs)):
            yield f"const real constant{number} = (real)constants[{number}];"
        for leaf, place in self._numbers():
            yield f"const real {leaf} = (real)numbers[{place}];"
        for part in ("interactions", "held"):
            if part in self.parts:
                yield f"const real {part} = all_{part}[item];"
        yield "char* free_ = scratch + worker * scratch_bytes;"
        yield from self._arrays()
        yield from self._loaded()

    def _numbers(self) -> Iterator[tuple[str, int]]:
        """The numbers that losses close over: those of every step, one behind the other."""
        first = 0
        for number, (graph, step) in enumerate(zip(self.graphs, self.fit.steps, strict=True)):
            for leaf in graph.leaves:
                if leaf.part == "number":
                    yield f"s{number}_number{leaf.name}", first + int(leaf.name)
            first += len(numbers_of(step.loss or self.fit.loss))

    @property
    def _keeps_state(self) -> bool:
        return any(step.optimiser == "adam" and step.keep_state for step in self.fit.steps)

    def _arrays(self) -> Iterator[str]:
        """Memory of the client and of its mini-batches."""
        for name, shape in self.vectors.items():
            size = math.prod(shape)
            yield from self._fixed(f"x_{c_name(name)}", size)
            for number, key in self.adam:
                if key == name:
                    yield from self._fixed(f"first{number}_{c_name(name)}", size)
                    yield from self._fixed(f"second{number}_{c_name(name)}", size)
        for name in self.sums:
            yield from self._fixed(f"sum_{c_name(name)}", self.tables[name].width)
        for graph in self.graphs:
            for name, size in graph.arrays.items():
                yield from self._fixed(name, size)
            for name, size in graph.kept.items():
                yield from self._per_sample("real", name, size)
        yield from self._blocks()
        for table in self._trained:
            if self._row_gradient(table):
                yield from self._per_sample("real", f"gradient_{table.c}", table.width)
        yield from self._per_sample("int", "slot", 1)
        for part in ("labels", "occurrences", "distinct"):
            if part in self.parts:
                yield from self._per_sample("real", part, 1)
        for table in self.tables.values():
            yield f"real* const table_{table.c} = all_{table.c} + r0 * {table.width};"
        for name, width in self.derived.items():
            yield f"const real* const derived_{c_name(name)} = all_derived_{c_name(name)} + item * {width};"
        if self._trained or self._chains:
            yield from self._per_sample("int", "following", 1)
            yield from self._per_row("mark")
        if self._trained:
            yield from self._per_row("last")
            if self.sums:
                yield from self._per_row("touched")
            else:
                yield from self._per_sample("int", "touched", 1)
        if self.sums:
            yield from self._per_row("stamp")
            yield from self._per_row("times")
        for number, key in self.adam:
            if key in self.tables:
                yield from self._row_moments(number, self.tables[key])
        for table in self._resting_on_cpu:
            yield from self._per_row(f"inverse_{table.c}", "real", table.width)
            yield f"struct idle known_{table.c}[{cpu_rows.KNOWN}] = {{{{0}}}};"
        yield "SHARED int touched_rows;"

    def _blocks(self) -> Iterator[str]:
        """Memory of a block of samples that lanes work on together: near them, if it has room for some."""
        if not any(stage.products for graph in self.graphs for stage in graph.stages):
            return
        size = 8 if self.double else 4
        of_graphs = [places(graph.locals) for graph in self.graphs]
        width = max(1, *(width for _, width in of_graphs))
        parts = PARTS_PER_LANE * lanes_for(self.batch)
        self.block = samples_of_block(width, size, self.near_bytes - parts * size)
        if self.block:
            self.pool_bytes = (parts + width * self.block) * size
            yield f"POOL(pool, {self.pool_bytes});"
            yield "real* const parts = (real*)pool;"
        else:
            self.block = _FEWEST
            self.scratch.fixed += (parts + width * self.block) * size
            self.scratch.arrays += 1
            taken = _rounded(f"sizeof(real) * {parts + width * self.block}")
            yield f"real* const parts = (real*)free_; free_ += {taken};"
        for given, _ in of_graphs:
            for name, place in given.items():
                yield f"real* const {name} = parts + {parts + place * self.block};"

    @property
    def _resting_on_cpu(self) -> list[Table]:
        """Tables whose steps leave what they have divided by; see `fused.cpu_rows`."""
        return [table for table in self._lazy if not self.gpu and self._at_rest(table) is not None]

    @property
    def _chains(self) -> bool:
        return bool({"occurrences", "distinct"} & self.parts)

    def _row_gradient(self, table: Table) -> bool:
        """Whether samples leave gradients by their rows."""
        leaf = Leaf("rows", table.name)
        gradients = [self.graphs[number].gradients[leaf] for number in table.steps]
        return any(not (gradient.is_zero or gradient.is_direct) for gradient in gradients)

    def _fixed(self, name: str, size: int) -> Iterator[str]:
        """An array of known size: fast memory while there is any left."""
        count = size * (8 if self.double else 4)
        if count <= self.fast_left:
            self.fast_left -= count
            yield f"SHARED real {name}[{size}];"
            return
        self.scratch.fixed += count
        self.scratch.arrays += 1
        yield f"real* const {name} = (real*)free_; free_ += {_rounded(f'sizeof(real) * {size}')};"

    def _per_sample(self, kind: str, name: str, size: int) -> Iterator[str]:
        """An array of so many numbers for each sample of a mini-batch."""
        width = 8 if kind == "real" and self.double else 4
        self.near[name] = self.gpu and size * width * self.batch <= self.fast_left
        if self.near[name]:
            self.fast_left -= size * width * self.batch
            yield f"SHARED {kind} {name}[{size * self.batch}];"
            return
        self.scratch.per_sample += size * width
        self.scratch.arrays += 1
        taken = _rounded(f"sizeof({kind}) * {size} * batch")
        yield f"{kind}* const {name} = ({kind}*)free_; free_ += {taken};"

    def _per_row(self, name: str, kind: str = "int", size: int = 1) -> Iterator[str]:
        """An array of so many numbers for each row."""
        self.scratch.per_row += size * (8 if kind == "real" and self.double else 4)
        self.scratch.arrays += 1
        taken = _rounded(f"sizeof({kind}) * {size} * rows")
        yield f"{kind}* const {name} = ({kind}*)free_; free_ += {taken};"

    def _row_moments(self, number: int, table: Table) -> Iterator[str]:
        """Moments of a table: the worker's own, or with `rows_apart` those of each held row."""
        for part in ("first", "second"):
            name = f"{part}{number}_{table.c}"
            first = "(rows_apart ? r0 : worker * (integer)most_rows)"
            yield f"real* const {name} = all_{name} + {first} * {table.width};"

    def _loaded(self) -> Iterator[str]:
        """What the client starts from."""
        for name, shape in self.vectors.items():
            size, c = math.prod(shape), c_name(name)
            yield f"for (int e = LANE; e < {size}; e += LANES) x_{c}[e] = all_{c}[item * {size} + e];"
        for number, key in self.adam:
            c = c_name(key)
            if key in self.tables:
                width = self.tables[key].width
                yield "if (fresh)"
                yield (
                    f"for (int e = LANE; e < rows * {width}; e += LANES) "
                    f"first{number}_{c}[e] = second{number}_{c}[e] = 0;"
                )
            else:
                size = math.prod(self.vectors[key])
                for part in ("first", "second"):
                    name = f"{part}{number}_{c}"
                    yield (
                        f"for (int e = LANE; e < {size}; e += LANES) "
                        f"{name}[e] = fresh ? (real)0 : all_{name}[item * {size} + e];"
                    )
        for table in self._resting_on_cpu:
            (number,) = table.steps
            since = "before + t" if self.fit.steps[number].keep_state else "t"
            yield f"for (int e = 0; e < rows * {table.width}; e++) {{"
            yield f"const real second = second{number}_{table.c}[e];"
            yield f"inverse_{table.c}[e] = second > 0 ? 1 / (SQRT(second) * root[{since}] + (real)1e-8) : 0;"
            yield "}"
        rows = []
        if self._trained or self._chains:
            rows.append("mark[r] = -1;")
        if self._trained:
            rows.append("last[r] = t;")
        if self.sums:
            rows.append("stamp[r] = -1; times[r] = 0;")
        if rows:
            yield f"for (int r = LANE; r < rows; r += LANES) {{ {' '.join(rows)} }}"
        yield "SYNC();"
        if self.sums:
            yield "const integer p0 = positive_start[item];"
            yield "const int training = (int)(positive_start[item + 1] - p0);"
            yield "for (int p = LANE; p < training; p += LANES) TAKE(times + positives[p0 + p], 1);"
            yield "SYNC();"

    def _mini_batch(self) -> Iterator[str]:
        yield from self._rows_of_samples()
        yield "SYNC();"
        for table in self._lazy:
            yield from self._caught_up(table, "touched_rows", "touched[z]", "t - 1")
        if self._lazy:
            yield "SYNC();"
        for number, step in enumerate(self.fit.steps):
            yield "{"
            yield from self._step(number, step)
            yield "}"
        if self._trained and not all(table.dense for table in self._trained):
            yield "for (int z = LANE; z < touched_rows; z += LANES) last[touched[z]] = t;"
            yield "SYNC();"

    def _rows_of_samples(self) -> Iterator[str]:
        """Find the rows of the mini-batch, each once, and chain the samples of each."""
        tracked = bool(self._trained) or self._chains
        if tracked:
            yield "const int base = t * (int)batch;"
            yield "if (LANE == 0) touched_rows = 0;"
            yield "SYNC();"
        if self.sums:
            yield "for (int p = LANE; p < training; p += LANES) {"
            yield "const int r = positives[p0 + p];"
            yield "if (SWAP(stamp + r, t) != t) touched[TAKE(&touched_rows, 1)] = r;"
            yield "}"
            yield "SYNC();"
        yield "for (int i = LANE; i < n; i += LANES) {"
        if self._looks_ahead:
            yield "const int r = ahead_slot;"
            yield "const real label = ahead_label;"
        else:
            yield "const integer at = s0 + order[epoch * sample_count + s0 + first + i];"
            yield "const int r = slots[at];"
            yield "const real label = all_labels[at];"
        yield "slot[i] = r;"
        if "labels" in self.parts:
            yield "labels[i] = label;"
        if tracked:
            yield "const int other = SWAP(mark + r, base + i);"
            yield "following[i] = other >= base ? other - base : -1;"
        if self._trained:
            new = "SWAP(stamp + r, t) != t" if self.sums else "other < base"
            yield f"if ({new}) touched[TAKE(&touched_rows, 1)] = r;"
        yield "}"
        if self._looks_ahead:
            yield "{"
            yield "const int same = first + (int)batch < samples, later = same ? epoch : epoch + 1;"
            yield "if (later < epochs) LOOK_AHEAD(later, same ? first + (int)batch : 0)"
            yield "}"
        if self._chains:
            yield "SYNC();"
            yield "for (int i = LANE; i < n; i += LANES) {"
            yield "int alike = 0, least = i;"
            yield "for (int s = mark[slot[i]] - base; s >= 0; s = following[s]) {"
            yield "alike++;"
            yield "if (s < least) least = s;"
            yield "}"
            if "occurrences" in self.parts:
                yield "occurrences[i] = (real)alike;"
            if "distinct" in self.parts:
                yield "distinct[i] = (real)(least == i);"
            yield "}"

    def _step(self, number: int, step: Step) -> Iterator[str]:
        graph = self.graphs[number]
        for name in self.sums:
            if Leaf("training_sum", name) in graph.leaves:
                yield from self._training_sum(self.tables[name])
        for place in range(len(graph.stages)):
            yield from self._stage(f"s{number}_", place, graph)
        if number == len(self.fit.steps) - 1:
            yield f"epoch_loss += (double)({graph.loss});"
        yield "SYNC();"
        # Rows whose gradient is a formula of whole tables come first, before anything it reads has moved.
        tables = sorted(
            (self.tables[key] for key in step.rates if key in self.tables), key=lambda each: not each.dense
        )
        for table in tables:
            yield from self._row_update(number, step, table)
        # Gradients of rows may be formulas of what moves next.
        yield "SYNC();"
        for key in step.rates:
            if key in self.vectors:
                yield from self._vector_update(number, step, key)
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

    def _stage(self, prefix: str, place: int, graph: Lowered) -> Iterator[str]:
        stage = graph.stages[place]
        yield from stage.client
        if stage.wide:
            yield from ("{", "const int i0 = 0, i1 = n;", *stage.wide, "}")
        sums = f"{prefix}sum{place}", f"{prefix}total{place}"
        if stage.sums:
            yield from _none_yet(sums[0], stage.sums)
        if stage.tiles:
            block = cpu_samples.BLOCK
            yield f"for (int i0 = 0; i0 < n; i0 += {block}) {{"
            yield f"const int i1 = n - i0 < {block} ? n : i0 + {block};"
        for turn, lines, at_once in stage.parts:
            if at_once:
                yield from lines
            elif not (self.gpu and turn):
                yield from self._loop(lines, "i0; i < i1; i++" if stage.tiles else "LANE; i < n; i += LANES")
        if stage.tiles:
            yield "}"
        if stage.row:
            yield "for (int i = LANE; i < rows; i += LANES) {"
            yield from stage.row
            yield "}"
        if stage.sums:
            yield from _added_up(*sums, stage.sums)
        if stage.sample:
            yield "SYNC();"
        if self.gpu:
            yield from self._turns_together(prefix, place, graph)

    def _loop(self, lines: list[str], over: str) -> Iterator[str]:
        """A loop over samples; a lane has the rows of its own in registers."""
        yield f"for (int i = {over}) {{"
        text = "\n".join(lines)
        for table in self.tables.values():
            if f"row_{table.c}[" in text:
                yield from self._row_loaded(table)
        yield from lines
        yield "}"

    def _turns_together(self, prefix: str, place: int, graph: Lowered) -> Iterator[str]:
        """What lanes do together with samples, and by themselves behind that: of all, or block by block."""
        stage = graph.stages[place]
        turns = sorted(turn for turn in {*stage.together, *stage.turns} if turn)
        if not turns:
            return
        sums = f"{prefix}sum{place}_late", f"{prefix}total{place}_late"
        if stage.late_sums:
            yield from _none_yet(sums[0], stage.late_sums)
        yield "{"
        if stage.products:
            yield from over_blocks(self.block)
            given = [each for each in graph.locals if each.stage == place and each.source]
            is_near = {each.source: each.source in self.near and self.near[each.source] for each in given}
            yield from fetched(given, is_near)
        else:
            yield "const int i0 = 0, i1 = n;"
        for turn in turns:
            if turn in stage.together:
                yield from (*stage.together[turn], "SYNC();")
            if turn in stage.turns:
                yield from self._loop(stage.turns[turn], "i0 + LANE; i < i1; i += LANES")
                yield "SYNC();"
        yield "}}" if stage.products else "}"
        if stage.late_sums:
            yield from _added_up(*sums, stage.late_sums)
            yield "SYNC();"

    def _row_loaded(self, table: Table) -> Iterator[str]:
        c, width = table.c, table.width
        if not self.gpu:
            yield f"const real* const row_{c} = table_{c} + (integer)slot[i] * {width};"
            return
        yield f"real row_{c}[{width}];"
        yield f"load<{width}>(row_{c}, table_{c} + (integer)slot[i] * {width});"

    def _vector_update(self, number: int, step: Step, key: str) -> Iterator[str]:
        shape, c = self.vectors[key], c_name(key)
        index = tuple("0" if size == 1 else f"k{axis}" for axis, size in enumerate(shape))
        gradient = self.graphs[number].gradients[Leaf("value", key)].at(*index)
        first, second = (f"{part}{number}_{c}[place]" for part in ("first", "second"))
        body = [
            f"const int place = {flat(index, shape)};",
            f"real g = {gradient};",
            *self._moved(number, step, key, f"x_{c}[place]", first, second, "t"),
        ]
        yield from looped(shape, index, body, by_lanes=self.gpu)

    def _moved(
        self,
        number: int,
        step: Step,
        key: str,
        value: str,
        first: str,
        second: str,
        at: str,
        *,
        idle: bool = False,
        now: bool = False,
        inverse: str = "",
    ) -> list[str]:
        """One step of the optimiser at mini-batch `at`, by the gradient `g`; `idle` where that is 0.

        What it reads of tables is known by a name where `at` is `now`. It leaves what it has divided by in
        `inverse`.
        """
        c, lines = c_name(key), []
        decays = bool(step.weight_decay.get(key, 0.0))
        if decays:
            gain = f"decay{number}_{c} * {value}"
            lines.append(f"const real g = {gain};" if idle else f"g += {gain};")
        still = idle and not decays
        rate = f"rate{number}_{c}"
        if step.batch_decay != 1:
            rate = f"{rate} * " + ("shrink_now" if now else f"shrink[{at}]")
        if step.optimiser == "sgd":
            return lines if still else [*lines, f"{value} -= {rate} * g;"]
        if still:
            lines += [f"{first} *= (real)0.9;", f"{second} *= (real)0.999;"]
        else:
            lines += [
                f"{first} += (real)0.1 * (g - {first});",
                f"{second} = (real)0.999 * {second} + (real)0.001 * g * g;",
            ]
        since = f"before + {at}" if step.keep_state else at
        slope, root = ("slope_now", "root_now") if now else (f"slope[{since}]", f"root[{since}]")
        divisor = f"(SQRT({second}) * {root} + (real)1e-8)"
        if not inverse:
            return [*lines, f"{value} -= {rate} * {slope} * {first} / {divisor};"]
        return [
            *lines,
            f"const real over = 1 / {divisor};",
            f"{value} -= {rate} * {slope} * {first} * over;",
            f"{inverse} = {second} > 0 ? over : (real)0;",
        ]

    def _row_update(self, number: int, step: Step, table: Table) -> Iterator[str]:
        c = table.c
        gradients = self.graphs[number].gradients
        own, whole = gradients[Leaf("rows", table.name)], gradients[Leaf("whole", table.name)]
        pooled = gradients[Leaf("training_sum", table.name)]
        lines = []
        if not pooled.is_zero:
            lines.append(f"g += (real)times[i] * {pooled.at('0', 'k1')};")
        if not whole.is_zero:
            lines.append(f"g += {whole.at('i', 'k1')};")
        count, row = _looked_at(table)
        parts = [("value", f"table_{c}")]
        if step.optimiser == "adam":
            parts += [(part, f"{part}{number}_{c}") for part in ("first", "second")]
        perhaps = None if own.is_zero else table.dense or bool(self.sums)
        if not self.gpu:
            yield from self._row_update_on_cpu(number, step, table, perhaps, lines)
            return
        moved = self._moved(number, step, table.name, "value[c]", "first[c]", "second[c]", "t")
        width, gathered = table.width, []
        if perhaps is not None:
            term = own.at("s", "k1") if own.is_direct else f"gradient_{c}[s * {width} + k1]"
            gathered = list(gradient_of_samples(width, term, perhaps=perhaps))
        start = "real g = 0;" if perhaps is None else "real g = gradient[c];"
        each = each_number(width, [start, *lines, *moved])
        yield from over_rows(count, row, width, [*gathered, *moved_by_lanes(parts, width, each)])

    def _row_update_on_cpu(
        self, number: int, step: Step, table: Table, perhaps: bool | None, formula: list[str]
    ) -> Iterator[str]:
        """A step of some rows: the gradient of each, and then what becomes of the row and its moments.

        `perhaps` tells whether rows have samples perhaps, or all of them do; None where samples say nothing.
        """
        c, width = table.c, table.width
        arrays = [("value", f"table_{c}")]
        if step.optimiser == "adam":
            arrays += [(part, f"{part}{number}_{c}") for part in ("first", "second")]
        inverse = "inverse[k1]" if self._at_rest(table) is not None else ""
        if inverse:
            arrays.append(("inverse", f"inverse_{c}"))
        body = [f"real own[{width}];", "const real* gradient = own;"]
        if perhaps is None:
            body.append("memset(own, 0, sizeof own);")
        else:
            body += cpu_rows.sampled_gradient(width, f"gradient_{c}", perhaps=perhaps)
        if formula:
            body += ["{", "const real* const sampled = gradient;", "gradient = own;"]
            body += cpu_rows.each_of_row(width, ["real g = sampled[k1];", *formula, "own[k1] = g;"])
            body.append("}")
        moved = self._moved(
            number, step, table.name, "value[k1]", "first[k1]", "second[k1]", "t", now=True, inverse=inverse
        )
        body += cpu_rows.of_row(arrays, width)
        body += cpu_rows.each_of_row(width, ["real g = gradient[k1];", *moved])
        yield "{"
        yield from self._known_now(step)
        yield from cpu_rows.row_by_row(*_looked_at(table), body)
        yield "}"

    def _known_now(self, step: Step) -> Iterator[str]:
        """What a step of the optimiser at mini-batch `t` reads of tables, where no loop looks again."""
        if step.batch_decay != 1:
            yield "const real shrink_now = shrink[t];"
        if step.optimiser == "adam":
            since = "before + t" if step.keep_state else "t"
            yield f"const real slope_now = slope[{since}], root_now = root[{since}];"

    def _caught_up(self, table: Table, count: str, row: str, until: str) -> Iterator[str]:
        """Steps that some rows have missed, up to the mini-batch `until`."""
        c, width = table.c, table.width
        parts = [("value", f"table_{c}")]
        for number in table.steps:
            if (number, table.name) in self.adam:
                parts += [
                    (f"first{number}", f"first{number}_{c}"),
                    (f"second{number}", f"second{number}_{c}"),
                ]
        missed = f"last[i] < {until}" + ("" if table.idle else " && last[i] > 0")
        of, steps = "[c]" if self.gpu else "[k1]", []
        for number in table.steps:
            moved = self._moved(
                number, self.fit.steps[number], table.name, f"value{of}", f"first{number}{of}",
                f"second{number}{of}", "j", idle=True,
            )  # fmt: skip
            steps += ["{", *moved, "}"] if moved else []
        one_by_one = f"for (int j = last[i] + 1; j <= {until}; j++) {{"
        if not self.gpu:
            slowly = [one_by_one, *cpu_rows.each_of_row(width, steps), "}"]
            resting = self._at_rest(table)
            if resting is None:
                body = [*cpu_rows.of_row(parts, width), *slowly]
            else:
                parts.append(("inverse", f"inverse_{c}"))
                missed, body = self._caught_up_on_cpu(resting, table, until, parts, slowly)
            yield from cpu_rows.row_by_row(count, row, [f"if ({missed}) {{", *body, "}"])
            return
        slowly = [one_by_one, *each_number(width, steps), "}"]
        known: list[str] = []
        resting = self._at_rest(table)
        if resting is not None:
            known, slowly = self._idle_on_gpu(resting, table, until)
        numbers = moved_by_lanes(parts, width, slowly)
        yield from over_rows(count, row, width, [f"if ({missed}) {{", *known, *numbers, "}"])

    def _idle_on_gpu(self, number: int, table: Table, until: str) -> tuple[list[str], list[str]]:
        """What lanes know of the steps that a row has missed, and these; see `fused.adam`."""
        step = self.fit.steps[number]
        idle = IdleSteps(
            number=number,
            rate=f"rate{number}_{table.c}",
            since="before + " if step.keep_state else "",
            shrinks=step.batch_decay != 1,
        )
        return idle.known(until), list(idle.moved(table.width, until))

    def _caught_up_on_cpu(
        self, number: int, table: Table, until: str, arrays: list[tuple[str, str]], slowly: list[str]
    ) -> tuple[str, list[str]]:
        """When a row has missed steps of its moments, and these: at once, or `slowly` near to rest."""
        width, step = table.width, self.fit.steps[number]
        since = "before + " if step.keep_state else ""
        tails = "shrunk_tails" if step.batch_decay != 1 else "tails"
        return f"last[i] < {until} && {since}last[i] > 0", [
            f"const int from = {since}last[i], to = {since}{until};",
            *cpu_rows.of_row(arrays, width),
            *cpu_rows.idle_steps(f"known_{table.c}", f"rate{number}_{table.c}", tails, width),
            "if (steady) {",
            *cpu_rows.caught_up(width, f"first{number}", f"second{number}"),
            "} else",
            *slowly,
        ]

    def _at_rest(self, table: Table) -> int | None:
        """The step whose moments alone move rows that no sample is about, where there is one."""
        if table.dense or len(table.steps) != 1 or not self._has_moments(table):
            return None
        (number,) = table.steps
        step = self.fit.steps[number]
        alone = not step.weight_decay.get(table.name) and not (step.keep_state and step.batch_decay != 1)
        return number if alone else None

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
        for table in self._lazy:
            yield from self._caught_up(table, "rows", "z", "t")
        for name, shape in self.vectors.items():
            size, c = math.prod(shape), c_name(name)
            if any(name in step.rates for step in self.fit.steps):
                yield f"for (int e = LANE; e < {size}; e += LANES) all_{c}[item * {size} + e] = x_{c}[e];"
        for number, key in self.adam:
            if key in self.vectors:
                size = math.prod(self.vectors[key])
                for part in ("first", "second"):
                    name = f"{part}{number}_{c_name(key)}"
                    yield f"for (int e = LANE; e < {size}; e += LANES)"
                    yield f"all_{name}[item * {size} + e] = {name}[e];"
        yield "if (LANE == 0) steps_done[item] = t;"


def _none_yet(sums: str, count: int) -> Iterator[str]:
    yield f"real {sums}[{count}];"
    yield f"UNROLL for (int k = 0; k < {count}; k++) {sums}[k] = 0;"


def _added_up(sums: str, total: str, count: int) -> Iterator[str]:
    yield f"SHARED real {total}[{count}];"
    yield f"SUM_LANES({sums}, {total}, {count});"


def _looked_at(table: Table) -> tuple[str, str]:
    """How many rows a step moves, and which is the next."""
    return ("rows", "z") if table.dense else ("touched_rows", "touched[z]")


def _rounded(size: str) -> str:
    return f"({size} + {_ALIGNED - 1}) / {_ALIGNED} * {_ALIGNED}"


def _indented(lines: Iterable[str]) -> Iterator[str]:
    """Lines moved in by the braces that are open."""
    depth = 1
    for line in lines:
        leading = len(line) - len(line.lstrip("}"))
        yield "  " * (depth - leading) + line
        depth += line.count("{") - line.count("}")
