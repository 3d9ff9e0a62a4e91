"""The parts of a kernel: the tables and vectors of a fit, how each is trained, and its other inputs.

The module reads a model, a fit and the lowered losses of its steps. The prologue, the optimiser's steps and
the kernel read its `FitParts`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fedrec.federation.engines.fused.backend.loops import c_name
from fedrec.federation.engines.fused.backend.stages import Lowered
from fedrec.federation.engines.fused.ir.dims import static_count
from fedrec.federation.engines.fused.ir.nodes import Leaf
from fedrec.federation.engines.fused.trace.symbolic_inputs import Model
from fedrec.federation.model.client import Fit
from fedrec.federation.model.parameters import Parameter

PREFIXES = {"item": "", "user": "user_"}
"""The kinds of rows, and the beginning of the names of arrays about rows of each kind."""


@dataclass(frozen=True)
class Table:
    """A table of a kernel."""

    name: str
    """The name of the parameter."""
    width: int
    """The numbers of a row."""
    steps: tuple[int, ...]
    """The numbers of the optimiser steps that train it."""
    dense: bool
    """Whether every mini-batch changes all rows at once."""
    idle: bool
    """Whether rows change before any sample has had them: by weight decay, or by kept moments."""
    by: str
    """`item` if it has a row for every item, `user` if it has one for every user."""

    @property
    def c(self) -> str:
        """The name of the table in C."""
        return c_name(self.name)

    @property
    def slot(self) -> str:
        """The array in C with the row of each sample."""
        return f"{PREFIXES[self.by]}slot"

    def among_its_rows(self, lines: Iterable[str]) -> Iterator[str]:
        """The statements `lines`, in which `rows`, `mark` and similar names are those of this table."""
        if self.by == "item":
            yield from lines
            return
        own = PREFIXES[self.by]
        yield "{"
        yield f"const int rows = (int){own}rows, touched_rows = {own}touched_rows;"
        yield f"int *const mark = {own}mark, *const last = {own}last;"
        yield f"int *const following = {own}following, *const touched = {own}touched;"
        yield from lines
        yield "}"


def with_moved(fit: Fit, moved: Sequence[Sequence[str]]) -> Fit:
    """The fit with only the parameters `moved` in each step: those that the loss of the step reads."""
    steps = tuple(
        replace(step, rates={name: step.rates[name] for name in names})
        for step, names in zip(fit.steps, moved, strict=True)
    )
    return replace(fit, steps=steps)


class FitParts:
    """The tables, vectors and inputs of a fit, and the conditions that decide what its kernel contains."""

    def __init__(self, model: Model, fit: Fit, graphs: Sequence[Lowered]) -> None:
        self.fit = fit
        """The fit, with only the parameters that its steps change."""
        self.graphs = graphs
        """The lowered loss of each step."""
        self._parameters: Mapping[str, Parameter] = model.parameters()
        self.leaves = {leaf: shape for graph in graphs for leaf, shape in graph.leaves.items()}
        """The inputs that the losses read, with their shapes."""
        self.parts = frozenset(leaf.part for leaf in self.leaves)
        """The parts (`Leaf.part`) that the losses read."""
        trained = {name for step in fit.steps for name in step.rates}
        seen = {leaf.name for leaf in self.leaves if leaf.part in ("rows", "whole", "training_sum", "value")}
        used = {name: part for name, part in self._parameters.items() if name in trained | seen}
        self.tables = {name: self._table(name) for name, part in used.items() if part.table}
        """The tables that a step trains or a loss reads, by name."""
        self.vectors = {name: tuple(part.shape) for name, part in used.items() if not part.table}
        """The shapes of the parameters that are no tables, by name."""
        self.derived = {
            leaf.name: static_count(shape) for leaf, shape in self.leaves.items() if leaf.part == "derived"
        }
        """The count of numbers of each derived tensor, by name."""
        self.sums = [name for name in self.tables if Leaf("training_sum", name) in self.leaves]
        """The tables whose `training_sum` is read."""
        self.rates = [
            f"{kind}{number}_{c_name(key)}"
            for number, step in enumerate(fit.steps)
            for key in step.rates
            for kind in ("rate", "decay")
        ]
        """The variables in C for the rate and the weight decay of each step and parameter."""
        self.adam = tuple(
            (number, key)
            for number, step in enumerate(fit.steps)
            if step.optimiser == "adam"
            for key in step.rates
        )
        """The number of the step and the parameter, for all moments of Adam."""

    def _table(self, name: str) -> Table:
        steps = [(number, step) for number, step in enumerate(self.fit.steps) if name in step.rates]
        whole = Leaf("whole", name)
        idle = any(
            step.weight_decay.get(name, 0.0) or (step.optimiser == "adam" and step.keep_state)
            for _, step in steps
        )
        # If another step's loss reads all rows, no row may have missed steps.
        catches_up = idle or any(step.optimiser == "adam" for _, step in steps)
        dense = any(not self.graphs[number].gradients[whole].is_zero for number, _ in steps) or (
            catches_up and whole in self.leaves
        )
        part = self._parameters[name]
        return Table(name, part.shape[1], tuple(number for number, _ in steps), dense, bool(idle), part.by)

    @property
    def kinds(self) -> list[str]:
        """The kinds of rows that samples have: items always, users perhaps."""
        return [kind for kind in PREFIXES if kind == "item" or self.has_users]

    @property
    def has_users(self) -> bool:
        """Whether each sample has a row of a user table as well."""
        return any(table.by == "user" for table in self.tables.values())

    def tracks(self, kind: str) -> bool:
        """Whether a mini-batch chains the samples that share a row of that kind."""
        return self.trains(kind) or (kind == "item" and self.chains)

    def trains(self, kind: str) -> bool:
        """Whether a trained table has rows of that kind."""
        return any(table.by == kind for table in self.trained)

    @property
    def trained(self) -> list[Table]:
        """The tables that a step trains."""
        return [table for table in self.tables.values() if table.steps]

    @property
    def lazy(self) -> list[Table]:
        """The tables whose rows take their missed steps when a mini-batch next has them."""
        return [
            table for table in self.trained if not table.dense and (table.idle or self.has_moments(table))
        ]

    def has_moments(self, table: Table) -> bool:
        """Whether Adam trains the table."""
        return any((number, table.name) in self.adam for number in table.steps)

    def at_rest(self, table: Table) -> int | None:
        """The step by whose moments alone rows without samples change; None if there is no such step."""
        if table.dense or len(table.steps) != 1 or not self.has_moments(table):
            return None
        (number,) = table.steps
        step = self.fit.steps[number]
        alone = not step.weight_decay.get(table.name) and not (step.keep_state and step.batch_decay != 1)
        return number if alone else None

    @property
    def chains(self) -> bool:
        """Whether losses read which samples share an item."""
        return bool({"occurrences", "distinct"} & self.parts)

    def leaves_gradients(self, table: Table) -> bool:
        """Whether the gradients of samples by their rows are stored."""
        leaf = Leaf("rows", table.name)
        gradients = [self.graphs[number].gradients[leaf] for number in table.steps]
        return any(not (gradient.is_zero or gradient.is_direct) for gradient in gradients)

    @property
    def keeps_state(self) -> bool:
        """Whether moments are kept from earlier rounds."""
        return any(step.optimiser == "adam" and step.keep_state for step in self.fit.steps)
