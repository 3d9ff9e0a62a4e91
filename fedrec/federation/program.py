"""A local round as every engine reads it, and what it needs of an engine.

`trace` records a method's local round once per round; `needs_of` derives from the program whether
whole tables must be held, and how many batch x batch matrices a loss allocates.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.errors import FederationError, did_you_mean
from fedrec.federation.model.client import (
    Client,
    Fit,
    Operation,
    Program,
    Rewrite,
    Step,
    Upload,
    WholeTable,
    recorded,
)
from fedrec.federation.model.method import Method, Who
from fedrec.federation.model.own import Past, no_history
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import PlainBatch, PlainTable, Values
from fedrec.federation.model.weights import Loss, Weights

_ROWS = 5
"""Items of a made-up client whose derived numbers are looked at."""


def trace(method: Method, round_: int) -> Program:
    """What a client does in a round, from its download to its uploads."""
    program = recorded(method.local_round, round_)
    _check_names(program, method)
    return program


def _check_names(program: Program, method: Method) -> None:
    """Raise `FederationError` where a program trains or uploads what is no parameter of its method."""
    known = method.parameters()
    for operation in program:
        for name, does in _named(operation):
            if name not in known:
                raise FederationError(
                    f"{type(method).__name__} {does} '{name}', which is none of its parameters."
                    f"{did_you_mean(name, known)} It has: {', '.join(known)}."
                )
            if known[name].location == "given" and does == "trains":
                raise FederationError(
                    f"{type(method).__name__} trains '{name}', which is given and stays as it is. Train another "
                    "parameter, such as a matrix that its rows are multiplied by."
                )


def _named(operation: Operation) -> Iterator[tuple[str, str]]:
    """The parameters that an operation names, and what it does to them."""
    if isinstance(operation, Upload):
        yield operation.name, "uploads"
    elif isinstance(operation, Fit):
        yield from ((name, "trains") for step in operation.steps for name in step.rates)


def trace_after(method: Method, round_: int) -> tuple[Program, Who]:
    """What clients do after aggregation, and which clients."""
    client = Client(round_)
    who = method.after_aggregation(client)
    return client.program, who


@dataclass(frozen=True)
class Needs:
    """What a program needs of an engine that trains many clients at once."""

    whole_tables: bool
    """Whether rows of a table that hold no sample move by more than one factor, or are asked for."""
    square_matrices: int
    """Batch x batch matrices that a loss allocates at most; to estimate memory."""


def shape_of(program: Program) -> tuple[Any, ...]:
    """All of a program but its numbers and functions: programs of one shape have the same needs."""
    return tuple(map(_shape_of, program))


def needs_of(program: Program, method: Method) -> Needs:
    """Derive what a program needs; every loss is computed once, for a client that is made up."""
    parameters = method.parameters()
    tables = {name for name, part in parameters.items() if part.table}
    whole = any(_moves_every_row(operation, tables) for operation in program) or _derived_asks(method)
    matrices = 0
    for loss, trained in _losses(program):
        asks, allocated = _probe(method, loss, trained)
        whole, matrices = whole or asks, max(matrices, allocated)
    return Needs(whole, matrices)


def _shape_of(operation: Operation) -> tuple[Any, ...]:
    if isinstance(operation, Upload):
        return ("upload", operation.name, operation.into)
    if isinstance(operation, Rewrite):
        return ("rewrite", operation.name, isinstance(operation.rows, WholeTable))
    steps = tuple(
        (
            tuple(step.rates),
            step.optimiser,
            tuple(name for name, decay in step.weight_decay.items() if decay),
            tuple(step.guarded),
            step.keep_state,
            step.loss is None,
        )
        for step in operation.steps
    )
    return ("fit", steps)


def _moves_every_row(operation: Operation, tables: set[str]) -> bool:
    """Whether an operation moves rows that hold no sample in a way that has no closed form.

    Adam's weight decay, its kept moments and noise on gradients do. SGD's weight decay multiplies all
    rows by one factor; a row-by-row rewrite is replayed.
    """
    if isinstance(operation, Rewrite):
        return isinstance(operation.rows, WholeTable)
    if isinstance(operation, Upload):
        return False
    return any(_step_moves_every_row(step, tables) for step in operation.steps)


def _step_moves_every_row(step: Step, tables: set[str]) -> bool:
    moved = tables.intersection(step.rates)
    adam = step.optimiser == "adam"
    decayed = any(step.weight_decay.get(name, 0.0) for name in moved)
    return bool(moved.intersection(step.guarded)) or (adam and (decayed or (step.keep_state and bool(moved))))


def _losses(program: Program) -> Iterator[tuple[Loss, tuple[str, ...]]]:
    """Every loss of a program, with the names it is differentiated by."""
    for operation in program:
        if isinstance(operation, Fit):
            for step in operation.steps:
                yield step.loss or operation.loss, tuple(step.rates)


def _probe(method: Method, loss: Loss, trained: tuple[str, ...]) -> tuple[bool, int]:
    """Whether a loss asks for whole tables, and the batch x batch matrices of its two passes."""
    parameters = {name: part for name, part in method.parameters().items() if part.location != "server"}
    # No other axis is as long as the mini-batch, so that an axis tells what it counts.
    widths = [size for part in parameters.values() for size in part.shape[1 if part.table else 0 :]]
    batch_size = 1 + 2 * sum(widths)
    items = torch.arange(batch_size)
    past = Past(items // 2, torch.zeros_like(items), items)
    batch = PlainBatch(items, (items % 2).to(torch.get_default_dtype()), lambda: past)
    w, probes = _made_up_client(method, batch_size + 1, trained)
    with torch.no_grad():
        w |= method.derived(cast(Weights, w))
    asked_before = [probe.asked for probe in probes.values()]
    with _SquareMatrices(batch_size) as square:
        total = loss(cast(Weights, w), batch)
        if total.requires_grad:
            total.sum().backward()
    asked = any(probe.asked > before for probe, before in zip(probes.values(), asked_before, strict=True))
    return asked, square.count


def _derived_asks(method: Method) -> bool:
    """Whether what follows from whole tables asks for a table as such, and not for sums alone."""
    w, probes = _made_up_client(method, _ROWS, ())
    with torch.no_grad():
        method.derived(cast(Weights, w))
    return any(probe.asked for probe in probes.values())


def _made_up_client(
    method: Method, rows: int, trained: tuple[str, ...]
) -> tuple[Values, dict[str, "_Probe"]]:
    """A made-up client of so many items, two of them its own, and its tables, which count what is asked."""
    parameters = {name: part for name, part in method.parameters().items() if part.location != "server"}
    values = {name: _made_up(part, rows, name in trained) for name, part in parameters.items()}
    w, own = Values(values), torch.arange(2)
    w["interactions"], w["held"], w["history"] = torch.full((1, 1), 2.0), torch.ones(1, 1), no_history
    probes = {name: _Probe(values[name], own) for name, part in parameters.items() if part.table}
    probes["own"] = _Probe((torch.arange(rows) < len(own)).to(torch.get_default_dtype()).unsqueeze(1), own)
    w |= probes
    return w, probes


def _made_up(part: Parameter, rows: int, trained: bool) -> Tensor:
    """Values of a made-up client: small, different, and the same every time."""
    shape = (rows, *part.shape[1:]) if part.table else part.shape
    value = torch.linspace(-0.5, 0.5, math.prod(shape)).sin().reshape(shape)
    return value.requires_grad_(trained)


class _Probe(PlainTable):
    """A table that counts how often all of it is asked for."""

    asked = 0

    def whole(self) -> Tensor:
        self.asked += 1
        return super().whole()


class _SquareMatrices(TorchDispatchMode):
    """Counts tensors with two axes of a given length that operators allocate."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.count = 0
        self._length = length

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Torch would load its compiler, which takes seconds, to be kept from compiling this."""
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        result = func(*args, **(kwargs or {}))
        # A view, or what an operator changed in place, is no memory of its own.
        given = {value.untyped_storage().data_ptr() for value in args if isinstance(value, Tensor)}
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, Tensor) and value.untyped_storage().data_ptr() not in given:
                self.count += sum(size == self._length for size in value.shape) >= 2
        return result
