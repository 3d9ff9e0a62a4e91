"""The steps of the optimiser on rows and vectors of a client, also on rows without samples.

The module reads `FitParts`, and gives statements to the kernel. A row that no sample of a mini-batch has
still takes the optimiser's step: it decays, and Adam's moments change it. The row takes such missed steps
when a mini-batch next has it: `last` is the last mini-batch whose step it has taken. If only moments change
it, all missed steps are one: moments shrink by powers, and the row changes by a sum of powers that is known
in advance (`adam.py`). The gradients of a row's samples are summed in the order of samples, so results do not
depend on which lane was first.
"""

from collections.abc import Iterator

from fedrec.federation.engines.fused.backend.cpu import rows as cpu_rows
from fedrec.federation.engines.fused.backend.cuda.rows import (
    IdleSteps,
    each_number,
    gradient_of_samples,
    moved_by_lanes,
    over_rows,
)
from fedrec.federation.engines.fused.backend.loops import c_name, looped
from fedrec.federation.engines.fused.ir.index import CURRENT, ZERO, Variable, flat, loop_index
from fedrec.federation.engines.fused.ir.nodes import Leaf
from fedrec.federation.engines.fused.kernel.fit_parts import FitParts, Table
from fedrec.federation.model.client import Step

_NUMBER = Variable("k1")
"""The variable in C for the place of a number in its row."""


class OptimiserSteps:
    """Writes the optimiser steps of a fit."""

    def __init__(self, layout: FitParts, *, gpu: bool) -> None:
        self._layout = layout
        self._gpu = gpu

    def of_rows(self, number: int, step: Step, table: Table) -> Iterator[str]:
        """The step `number` on the rows of a table that it changes."""
        return table.among_its_rows(self._of_rows(number, step, table))

    def caught_up(self, table: Table, *, everything: bool) -> Iterator[str]:
        """The missed steps of all rows with `everything`, otherwise of the mini-batch's rows before it."""
        which = ("rows", "z", "t") if everything else ("touched_rows", "touched[z]", "t - 1")
        return table.among_its_rows(self._caught_up(table, *which))

    def _of_rows(self, number: int, step: Step, table: Table) -> Iterator[str]:
        c = table.c
        gradients = self._layout.graphs[number].gradients
        own, whole = gradients[Leaf("rows", table.name)], gradients[Leaf("whole", table.name)]
        pooled = gradients[Leaf("training_sum", table.name)]
        lines = []
        if not pooled.is_zero:
            lines.append(f"g += (real)times[i] * {pooled.at(ZERO, _NUMBER)};")
        if not whole.is_zero:
            lines.append(f"g += {whole.at(CURRENT, _NUMBER)};")
        count, row = _looked_at(table)
        parts = [("value", f"table_{c}")]
        if step.optimiser == "adam":
            parts += [(part, f"{part}{number}_{c}") for part in ("first", "second")]
        perhaps = None if own.is_zero else table.dense or bool(self._layout.sums)
        if not self._gpu:
            yield from self._of_rows_on_cpu(number, step, table, perhaps, lines)
            return
        moved = self._moved(number, step, table.name, "value[c]", "first[c]", "second[c]", "t")
        width, gathered = table.width, []
        if perhaps is not None:
            term = own.at(Variable("s"), _NUMBER) if own.is_direct else f"gradient_{c}[s * {width} + k1]"
            gathered = list(gradient_of_samples(width, term, perhaps=perhaps))
        start = "real g = 0;" if perhaps is None else "real g = gradient[c];"
        each = each_number(width, [start, *lines, *moved])
        yield from over_rows(count, row, width, [*gathered, *moved_by_lanes(parts, width, each)])

    def _of_rows_on_cpu(
        self, number: int, step: Step, table: Table, perhaps: bool | None, formula: list[str]
    ) -> Iterator[str]:
        """A step on rows: sum the gradient of each row, then change the row and its moments.

        `perhaps` says whether a row may have no samples. It is None if gradients do not come from samples.
        """
        c, width = table.c, table.width
        arrays = [("value", f"table_{c}")]
        if step.optimiser == "adam":
            arrays += [(part, f"{part}{number}_{c}") for part in ("first", "second")]
        inverse = "inverse[k1]" if self._layout.at_rest(table) is not None else ""
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

    def of_vector(self, number: int, step: Step, key: str) -> Iterator[str]:
        """The step `number` on a parameter that is no table."""
        shape, c = self._layout.vectors[key], c_name(key)
        index = loop_index(shape)
        gradient = self._layout.graphs[number].gradients[Leaf("value", key)].at(*index)
        first, second = (f"{part}{number}_{c}[place]" for part in ("first", "second"))
        body = [
            f"const int place = {flat(index, shape)};",
            f"real g = {gradient};",
            *self._moved(number, step, key, f"x_{c}[place]", first, second, "t"),
        ]
        yield from looped(shape, index, body, by_lanes=self._gpu)

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
        """Statements of one step of the optimiser at mini-batch `at` by the gradient `g`, or 0 with `idle`.

        With `now`, variables have the table entries of this mini-batch. A given `inverse` stores 1 / divisor.
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

    def _known_now(self, step: Step) -> Iterator[str]:
        """Declare variables with the table entries that the step of mini-batch `t` reads."""
        if step.batch_decay != 1:
            yield "const real shrink_now = shrink[t];"
        if step.optimiser == "adam":
            since = "before + t" if step.keep_state else "t"
            yield f"const real slope_now = slope[{since}], root_now = root[{since}];"

    def _caught_up(self, table: Table, count: str, row: str, until: str) -> Iterator[str]:
        """The steps up to the mini-batch `until` that `count` rows have missed."""
        c, width = table.c, table.width
        parts = [("value", f"table_{c}")]
        for number in table.steps:
            if (number, table.name) in self._layout.adam:
                parts += [
                    (f"first{number}", f"first{number}_{c}"),
                    (f"second{number}", f"second{number}_{c}"),
                ]
        missed = f"last[i] < {until}" + ("" if table.idle else " && last[i] > 0")
        of, steps = "[c]" if self._gpu else "[k1]", []
        for number in table.steps:
            moved = self._moved(
                number, self._layout.fit.steps[number], table.name, f"value{of}", f"first{number}{of}",
                f"second{number}{of}", "j", idle=True,
            )  # fmt: skip
            steps += ["{", *moved, "}"] if moved else []
        one_by_one = f"for (int j = last[i] + 1; j <= {until}; j++) {{"
        if not self._gpu:
            slowly = [one_by_one, *cpu_rows.each_of_row(width, steps), "}"]
            resting = self._layout.at_rest(table)
            if resting is None:
                body = [*cpu_rows.of_row(parts, width), *slowly]
            else:
                parts.append(("inverse", f"inverse_{c}"))
                missed, body = self._caught_up_on_cpu(resting, table, until, parts, slowly)
            yield from cpu_rows.row_by_row(count, row, [f"if ({missed}) {{", *body, "}"])
            return
        slowly = [one_by_one, *each_number(width, steps), "}"]
        known: list[str] = []
        resting = self._layout.at_rest(table)
        if resting is not None:
            known, slowly = self._idle_on_gpu(resting, table, until)
        numbers = moved_by_lanes(parts, width, slowly)
        yield from over_rows(count, row, width, [f"if ({missed}) {{", *known, *numbers, "}"])

    def _idle_on_gpu(self, number: int, table: Table, until: str) -> tuple[list[str], list[str]]:
        """On a GPU, the statements that load the effect of missed steps, and those that apply it."""
        step = self._layout.fit.steps[number]
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
        """On a CPU, the condition for missed steps, and statements that apply them at once or `slowly`."""
        width, step = table.width, self._layout.fit.steps[number]
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


def _looked_at(table: Table) -> tuple[str, str]:
    """The number of rows that a step changes, and the current row of a loop over them, in C."""
    return ("rows", "z") if table.dense else ("touched_rows", "touched[z]")
