"""The prologue of a kernel: the statements that declare a client's memory and load its start values.

The module reads `FitParts` and gives the first statements of the kernel.
"""

import math
from collections.abc import Iterator

from fedrec.federation.engines.fused.backend.cpu import rows as cpu_rows
from fedrec.federation.engines.fused.backend.loops import c_name
from fedrec.federation.engines.fused.kernel.block_memory import BlockMemory
from fedrec.federation.engines.fused.kernel.fit_parts import PREFIXES, FitParts, Table
from fedrec.federation.engines.fused.kernel.memory import KernelMemory
from fedrec.federation.loss_numbers import numbers_of


class Prologue:
    """Writes the prologue."""

    def __init__(
        self, layout: FitParts, arrays: KernelMemory, blocks: BlockMemory | None, *, gpu: bool
    ) -> None:
        self._layout = layout
        self._arrays = arrays
        self._blocks = blocks
        self._gpu = gpu

    def statements(self) -> Iterator[str]:
        """All statements of the prologue."""
        yield "if (stopped[item]) return;"
        yield "const integer s0 = sample_start[item], r0 = row_start[item];"
        yield "const int samples = (int)(sample_start[item + 1] - s0);"
        yield "const int rows = (int)(row_start[item + 1] - r0);"
        yield "int t = steps_done[item];"
        yield f"const int before = {'(int)steps_before[item]' if self._layout.keeps_state else '0'};"
        for number, name in enumerate(self._layout.rates):
            yield f"const real {name} = (real)rates[{number}];"
        for number in range(sum(len(graph.constants) for graph in self._layout.graphs)):
            yield f"const real constant{number} = (real)constants[{number}];"
        for leaf, place in self._numbers():
            yield f"const real {leaf} = (real)numbers[{place}];"
        for part in ("interactions", "held"):
            if part in self._layout.parts:
                yield f"const real {part} = all_{part}[item];"
        yield "char* free_ = scratch + worker * scratch_bytes;"
        yield from self._memory()
        yield from self._loaded()

    def _numbers(self) -> Iterator[tuple[str, int]]:
        """The variables of the numbers that losses close over, with their places among those of all steps."""
        first = 0
        for number, (graph, step) in enumerate(zip(self._layout.graphs, self._layout.fit.steps, strict=True)):
            for leaf in graph.leaves:
                if leaf.part == "number":
                    yield f"s{number}_number{leaf.name}", first + int(leaf.name)
            first += len(numbers_of(step.loss or self._layout.fit.loss))

    def _memory(self) -> Iterator[str]:
        """Declare the memory of the client and of its mini-batches."""
        for name, shape in self._layout.vectors.items():
            size = math.prod(shape)
            yield from self._arrays.fixed(f"x_{c_name(name)}", size)
            for number, key in self._layout.adam:
                if key == name:
                    yield from self._arrays.fixed(f"first{number}_{c_name(name)}", size)
                    yield from self._arrays.fixed(f"second{number}_{c_name(name)}", size)
        for kind in self._layout.kinds:
            # Every load of a sample's row reads this array, so it comes early and gets shared memory.
            yield from self._arrays.per_sample("int", f"{PREFIXES[kind]}slot", 1)
        for part in ("occurrences", "distinct"):
            if part in self._layout.parts:
                yield from self._arrays.per_sample("real", part, 1)
        for name in self._layout.sums:
            yield from self._arrays.fixed(f"sum_{c_name(name)}", self._layout.tables[name].width)
        for graph in self._layout.graphs:
            for name, size in graph.arrays.items():
                yield from self._arrays.fixed(name, size)
            for name, size in graph.kept.items():
                yield from self._arrays.per_sample("real", name, size)
        if self._blocks is not None:
            yield from self._blocks.declared(self._arrays)
        for table in self._layout.trained:
            if self._layout.leaves_gradients(table):
                yield from self._arrays.per_sample("real", f"gradient_{table.c}", table.width)
        if "labels" in self._layout.parts:
            yield from self._arrays.per_sample("real", "labels", 1)
        for table in self._layout.tables.values():
            yield f"real* const table_{table.c} = all_{table.c} + {self._first_row(table)} * {table.width};"
        for name, width in self._layout.derived.items():
            yield f"const real* const derived_{c_name(name)} = all_derived_{c_name(name)} + item * {width};"
        for kind in self._layout.kinds:
            yield from self._rows_of_samples(kind)
        if self._layout.sums:
            yield from self._arrays.per_row("stamp")
            yield from self._arrays.per_row("times")
        for number, key in self._layout.adam:
            if key in self._layout.tables:
                yield from self._row_moments(number, self._layout.tables[key])
        for table in self._resting_on_cpu:
            rows = f"{PREFIXES[table.by]}rows"
            yield from self._arrays.per_row(f"inverse_{table.c}", "real", table.width, rows)
            yield f"struct idle known_{table.c}[{cpu_rows.KNOWN}] = {{{{0}}}};"

    def _rows_of_samples(self, kind: str) -> Iterator[str]:
        """Declare the arrays about the rows of a mini-batch, and about the last mini-batch of each row."""
        own = PREFIXES[kind]
        rows = f"{own}rows"
        if self._layout.tracks(kind):
            yield from self._arrays.per_sample("int", f"{own}following", 1)
            yield from self._arrays.per_row(f"{own}mark", rows=rows)
        if self._layout.trains(kind):
            yield from self._arrays.per_row(f"{own}last", rows=rows)
            if self._layout.sums:
                yield from self._arrays.per_row(f"{own}touched", rows=rows)
            else:
                yield from self._arrays.per_sample("int", f"{own}touched", 1)
        yield f"SHARED int {own}touched_rows;"

    def _first_row(self, table: Table) -> str:
        """The first row of the client in C; a user table belongs to one client, so its rows begin at 0."""
        return "0" if table.by == "user" else "r0"

    @property
    def _resting_on_cpu(self) -> list[Table]:
        """The tables whose steps store `inverse` for missed steps (see `backend/cpu/rows.py`)."""
        return [
            table for table in self._layout.lazy if not self._gpu and self._layout.at_rest(table) is not None
        ]

    def _row_moments(self, number: int, table: Table) -> Iterator[str]:
        """Declare a table's moments: the worker's own, or with `rows_apart` those of the client's rows."""
        for part in ("first", "second"):
            name = f"{part}{number}_{table.c}"
            first = f"(rows_apart ? {self._first_row(table)} : worker * (integer)most_rows)"
            yield f"real* const {name} = all_{name} + {first} * {table.width};"

    def _loaded(self) -> Iterator[str]:
        """Load the start values of the client, and reset the arrays about its rows."""
        for name, shape in self._layout.vectors.items():
            size, c = math.prod(shape), c_name(name)
            yield f"for (int e = LANE; e < {size}; e += LANES) x_{c}[e] = all_{c}[item * {size} + e];"
        for number, key in self._layout.adam:
            c = c_name(key)
            if key in self._layout.tables:
                table = self._layout.tables[key]
                yield "if (fresh)"
                yield (
                    f"for (int e = LANE; e < {PREFIXES[table.by]}rows * {table.width}; e += LANES) "
                    f"first{number}_{c}[e] = second{number}_{c}[e] = 0;"
                )
            else:
                size = math.prod(self._layout.vectors[key])
                for part in ("first", "second"):
                    name = f"{part}{number}_{c}"
                    yield (
                        f"for (int e = LANE; e < {size}; e += LANES) "
                        f"{name}[e] = fresh ? (real)0 : all_{name}[item * {size} + e];"
                    )
        for table in self._resting_on_cpu:
            (number,) = table.steps
            since = "before + t" if self._layout.fit.steps[number].keep_state else "t"
            yield f"for (int e = 0; e < {PREFIXES[table.by]}rows * {table.width}; e++) {{"
            yield f"const real second = second{number}_{table.c}[e];"
            yield f"inverse_{table.c}[e] = second > 0 ? 1 / (SQRT(second) * root[{since}] + (real)1e-8) : 0;"
            yield "}"
        for kind in self._layout.kinds:
            own, rows = PREFIXES[kind], []
            if self._layout.tracks(kind):
                rows.append(f"{own}mark[r] = -1;")
            if self._layout.trains(kind):
                rows.append(f"{own}last[r] = t;")
            if self._layout.sums:
                rows.append("stamp[r] = -1; times[r] = 0;")
            if rows:
                yield f"for (int r = LANE; r < {own}rows; r += LANES) {{ {' '.join(rows)} }}"
        yield "SYNC();"
        if self._layout.sums:
            yield "const integer p0 = positive_start[item];"
            yield "const int training = (int)(positive_start[item + 1] - p0);"
            yield "for (int p = LANE; p < training; p += LANES) TAKE(times + positives[p0 + p], 1);"
            yield "SYNC();"
