"""The program of a local round, and its needs.

`trace` records a method's local round once per round. `needs_of` checks its losses by the rules. It also
derives whether the program needs whole tables, and how many (batch, batch) matrices a loss allocates.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, cast, get_args

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fedrec.errors import FederationError, did_you_mean
from fedrec.federation.loss_key import LossKeys, is_opaque
from fedrec.federation.loss_numbers import numbers_of
from fedrec.federation.model.client import (
    Client,
    Fit,
    Operation,
    Program,
    Rewrite,
    Step,
    TableRewrite,
    Upload,
    recorded,
)
from fedrec.federation.model.history import Past, no_history
from fedrec.federation.model.method import Method, Who
from fedrec.federation.model.parameters import Parameter
from fedrec.federation.model.tables import PlainBatch, PlainTable, Values
from fedrec.federation.model.weights import Loss, Weights
from fedrec.federation.rules.losses import Rules
from fedrec.federation.rules.structure import check_parameters, check_program
from fedrec.federation.server_guard import hidden_server


def trace(method: Method, round_: int) -> Program:
    """The program of a client in a round, from download to upload."""
    check_parameters(method)
    return _checked(recorded(method.local_round, round_), method)


def trace_after_aggregation(method: Method, round_: int) -> tuple[Program, Who]:
    """The program after aggregation, and the clients that execute it."""
    client = Client(round_)
    who = method.after_aggregation(client)
    if who not in get_args(Who):
        raise FederationError(
            f"{type(method).__name__}.after_aggregation returns '{who}'."
            f"{did_you_mean(str(who), get_args(Who))} Return one of: {', '.join(get_args(Who))}."
        )
    return _checked(client.program, method), who


def _checked(program: Program, method: Method) -> Program:
    """Check a program, and drop its fits of 0 epochs."""
    check_program(program, method)
    return tuple(operation for operation in program if not isinstance(operation, Fit) or operation.epochs > 0)


def trains(program: Program) -> bool:
    """Whether the program trains, so that clients read their samples and report a loss."""
    return any(isinstance(operation, Fit) for operation in program)


@dataclass(frozen=True)
class Needs:
    """Requirements of a program on an engine that trains many clients at once."""

    whole_tables: bool
    """Whether inactive rows of a table change by more than one factor, or are read."""
    square_matrices: int
    """Largest number of (batch, batch) matrices that a loss allocates, to estimate memory."""
    traces: tuple[str, ...] = ()
    """The torch calls of losses that close over numbers, with these numbers; see `Rules.trace_of`."""


def shape_of(program: Program) -> tuple[Any, ...]:
    """The program without its numbers and functions; programs of one shape have the same needs."""
    return tuple(map(_shape_of, program))


def traces_of(program: Program, method: Method) -> tuple[str, ...]:
    """The torch calls of losses that close over numbers; other numbers may take another branch."""
    rules = Rules(method)
    return tuple(
        rules.trace_of(loss, trained) for loss, trained, _ in _differentiated(program) if numbers_of(loss)
    )


def needs_of(program: Program, method: Method) -> Needs:
    """Derive a program's needs; raise `FederationError` if a loss, a rewrite or the score breaks a rule.

    The rules compute all of them for synthetic clients.
    """
    # A program may have the same loss many times, as a new function each time.
    rules, keys = Rules(method), LossKeys()
    losses = {
        (keys.of(loss), trained, noised): (loss, trained, noised)
        for loss, trained, noised in _differentiated(program)
    }
    rewrites = {
        (operation.name, keys.of(operation.rows)): operation
        for operation in program
        if isinstance(operation, Rewrite)
    }
    tables = {name for name, part in rules.parameters.items() if part.table}
    with hidden_server(method):
        for rewrite in rewrites.values():
            rules.check_rewrite(rewrite)
        for loss, trained, noised in losses.values():
            rules.check_loss(loss, trained, noised)
            _check_constant(loss, trained, rules, keys)
        rules.check_score()
        matrices = max(
            (_square_matrices(method, loss, trained) for loss, trained, _ in losses.values()), default=0
        )
    whole = rules.whole_tables or any(_moves_every_row(operation, tables) for operation in program)
    return Needs(whole, matrices)


def _shape_of(operation: Operation) -> tuple[Any, ...]:
    if isinstance(operation, Upload):
        return ("upload", operation.name, operation.into)
    if isinstance(operation, Rewrite):
        return ("rewrite", operation.name, isinstance(operation.rows, TableRewrite))
    steps = tuple(
        (
            tuple(step.rates),
            step.optimiser,
            tuple(name for name, decay in step.weight_decay.items() if decay),
            tuple(step.gradient_noise),
            step.keep_state,
            step.loss is None,
        )
        for step in operation.steps
    )
    return ("fit", steps)


def _check_constant(loss: Loss, trained: tuple[str, ...], rules: Rules, keys: LossKeys) -> None:
    """Raise `FederationError` if a loss changes a value that it reads."""
    before = keys.of(loss)
    rules.trace_of(loss, trained)
    # The trace has already made values that are computed once, such as cached properties.
    if not is_opaque(before) and keys.of(loss) != before:
        raise FederationError(
            f"{type(rules.method).__name__}: a loss changes what it reads each time it is called, as one "
            "that counts its calls does. Engines differ in how often they call it. Let it change nothing."
        )


def _moves_every_row(operation: Operation, tables: set[str]) -> bool:
    """Whether an operation changes inactive rows in a way that has no closed form.

    Adam's weight decay, its kept moments and noise on gradients do. SGD's weight decay multiplies all rows by
    one factor, and engines replay a row-by-row rewrite.
    """
    if isinstance(operation, Rewrite):
        return isinstance(operation.rows, TableRewrite)
    if isinstance(operation, Upload):
        return False
    return any(_step_moves_every_row(step, tables) for step in operation.steps)


def _step_moves_every_row(step: Step, tables: set[str]) -> bool:
    moved = tables.intersection(step.rates)
    adam = step.optimiser == "adam"
    decayed = any(step.weight_decay.get(name, 0.0) for name in moved)
    return bool(moved.intersection(step.gradient_noise)) or (
        adam and (decayed or (step.keep_state and bool(moved)))
    )


def losses_of(program: Program) -> Iterator[Loss]:
    """The losses of a program."""
    yield from (loss for loss, *_ in _differentiated(program))


def _differentiated(program: Program) -> Iterator[tuple[Loss, tuple[str, ...], tuple[str, ...]]]:
    """The losses of a program, with the parameters they train and those of noisy per-sample gradients."""
    for operation in program:
        if isinstance(operation, Fit):
            for step in operation.steps:
                yield step.loss or operation.loss, tuple(step.rates), tuple(step.gradient_noise)


def _square_matrices(method: Method, loss: Loss, trained: tuple[str, ...]) -> int:
    """The number of (batch, batch) matrices that forward and backward pass of a loss allocate."""
    parameters = {name: part for name, part in method.parameters().items() if part.location != "server"}
    # No other axis is as long as the mini-batch, so its length identifies an axis.
    widths = [size for part in parameters.values() for size in part.shape[1 if part.table else 0 :]]
    tables = [part.shape[0] for part in parameters.values() if part.table]
    batch_size = next(size for size in count(1 + 2 * sum(widths)) if size not in tables)
    places = torch.arange(batch_size)
    items = places % min(tables, default=batch_size)
    past = Past(places // 2, torch.zeros_like(places), items)
    batch = PlainBatch(items, (items % 2).to(torch.get_default_dtype()), lambda: past)
    values = {name: _synthetic_value(part, name in trained) for name, part in parameters.items()}
    w = Values(values)
    w["interactions"], w["held"], w["history"] = torch.full((1, 1), 2.0), torch.ones(1, 1), no_history
    own = torch.arange(min(tables, default=batch_size)) < 2
    w["own"] = PlainTable(own.to(torch.get_default_dtype()).unsqueeze(1))
    w |= {name: PlainTable(values[name], items[:2]) for name, part in parameters.items() if part.table}
    with torch.no_grad():
        w |= method.derived(cast(Weights, w))
    with _SquareMatrices(batch_size) as square:
        torch.autograd.backward(loss(cast(Weights, w), batch).sum())
    matrices: int = square.count
    return matrices


def _synthetic_value(part: Parameter, trained: bool) -> Tensor:
    """Values of a synthetic client: small, different, and the same every time."""
    value = torch.linspace(-0.5, 0.5, part.count).sin().reshape(part.shape)
    return value.requires_grad_(trained)


class _SquareMatrices(TorchDispatchMode):
    """Counts the allocated tensors that have two axes of a given length."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.count = 0
        self._length = length

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler, which takes seconds, in order to skip this mode."""
        return False

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        result = func(*args, **(kwargs or {}))
        # Views and results of in-place operators allocate no memory.
        given = {value.untyped_storage().data_ptr() for value in args if _has_memory(value)}
        for value in result if isinstance(result, tuple | list) else (result,):
            if _has_memory(value) and value.untyped_storage().data_ptr() not in given:
                self.count += sum(size == self._length for size in value.shape) >= 2
        return result


def _has_memory(value: object) -> bool:
    """Whether a value is a tensor with memory; torch's zero tensors of autograd have none."""
    return isinstance(value, Tensor) and not value._is_zerotensor()
