"""The rules of losses, scores, rewrites and derived numbers, checked on synthetic clients.

A method's functions are written for one client. Engines compute them for many clients at once, in padded
mini-batches. So the rules compute each function for a single client, for the same client with padding, and
for several clients at once. All must give the same numbers.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, cast

import torch
from torch import Tensor

from fedrec.errors import FederationError
from fedrec.federation.model.client import Rewrite, TableRewrite
from fedrec.federation.model.method import Method
from fedrec.federation.model.tables import sampled
from fedrec.federation.model.weights import Batch, Loss, RowsOf
from fedrec.federation.rules import advice
from fedrec.federation.rules.equality import (
    first_other_call,
    first_unequal,
    first_with_mixed_clients,
    is_close,
    largest_of,
    of_real,
)
from fedrec.federation.rules.structure import check_derived
from fedrec.federation.rules.synthetic_clients import (
    FIRST,
    OF_GRADIENT,
    SECOND,
    SINGLE,
    CheckedKind,
    SyntheticBatch,
    SyntheticClient,
    SyntheticClients,
    SyntheticPart,
)
from fedrec.federation.rules.torch_calls import (
    CallTrace,
    RefusedDraws,
    SourceLine,
    TorchCall,
    TorchCallRecorder,
    line_of_error,
)

_COMPUTING = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, NameError)
"""Errors of shapes, types and names, as torch and Python raise them."""


class Rules:
    """The rules of one method."""

    def __init__(self, method: Method) -> None:
        self.method = method
        self.parameters = method.parameters()
        self.whole_tables = False
        """Whether a loss or `derived` has read a whole table."""
        self.derived: dict[tuple[SyntheticClient, torch.dtype], dict[str, Tensor]] = {}
        """Cache of the numbers derived for each single client."""

    def check_loss(self, loss: Loss, trained: Iterable[str], noised: Iterable[str] = ()) -> None:
        """Raise `FederationError` if a loss would give other numbers on an engine than on the plain loop.

        `trained` are the parameters of its gradient; those `noised` need a gradient per sample.
        """
        self._check("loss", loss, self._name(loss), trained=frozenset(trained))
        for name in noised:
            # Noise needs a gradient of the table.
            self._check("loss", loss, self._name(loss), trained=frozenset((name,)), per_sample=True)

    def trace_of(self, loss: Loss, trained: Iterable[str]) -> str:
        """A hash of the torch calls of a loss with their lines; numbers in its closure may change them."""
        function = _Function("loss", loss, self._name(loss), None)
        made = SyntheticClients(self.parameters, (FIRST,), trained=frozenset(trained))
        way = CallTrace()
        try:
            with _precision(torch.float64), _without_warnings(), torch.no_grad():
                derived = self.method.derived(
                    SyntheticClients(self.parameters, (FIRST,), stage="derived").view()
                )
                made.leaves |= {("derived", name): value for name, value in derived.items()}
                with way:
                    call_of_method(function, made, way)
        except (FederationError, *_COMPUTING):
            return "it ends with an error"
        return hashlib.sha256(repr(way.calls).encode()).hexdigest()

    def check_rewrite(self, rewrite: Rewrite) -> None:
        """Raise `FederationError` as `check_loss`, for a rewrite row by row."""
        if not isinstance(rewrite.rows, TableRewrite):
            width = self.parameters[rewrite.name].shape[1]
            self._check("rewrite", rewrite.rows, self._name(rewrite.rows), width=width)

    def check_score(self) -> None:
        """Raise `FederationError` as `check_loss`, for the score, which may read the numbers of items."""
        self._check("score", self.method.score, self._name(self.method.score))

    def _check(
        self,
        stage: CheckedKind,
        call: Loss | RowsOf,
        name: str,
        trained: frozenset[str] = frozenset(),
        width: int | None = None,
        per_sample: bool = False,
    ) -> None:
        code = getattr(call, "__code__", None)
        home = None if code is None else SourceLine(code.co_filename, code.co_firstlineno)
        check = _Check(self, _Function(stage, call, name, home), trained, width, per_sample)
        try:
            with _precision(torch.float64):
                check.run()
        except _OtherPrecisionError:
            # A method's own tensors in single precision do not combine with double precision.
            check.run()

    def _name(self, function: Callable[..., Any]) -> str:
        """The name of a method's function for messages."""
        if getattr(function, "__self__", None) is self.method:
            return f"{type(self.method).__name__}.{function.__name__}"
        return str(getattr(function, "__qualname__", type(function).__name__)).replace("<locals>.", "")


@dataclass(frozen=True)
class _Function:
    """A function of a method, with its name and line."""

    stage: CheckedKind
    call: Callable[..., Any]
    name: str
    home: SourceLine | None

    def refuse(self, place: SourceLine | None, what: str) -> NoReturn:
        """Raise `FederationError` that names the line of the method's file."""
        at = place or self.home
        raise FederationError(f"{self.name}{f' ({at})' if at else ''}: {what.rstrip('.')}.")


@dataclass(frozen=True)
class _Outcome:
    """Outcome of a function: its value, its gradients by part, and its torch calls."""

    value: Tensor
    gradients: Mapping[SyntheticPart, Tensor]
    calls: list[TorchCall]

    @property
    def largest(self) -> float:
        """The largest number in the value and the gradients."""
        return largest_of((self.value, *self.gradients.values()))


class _OtherPrecisionError(Exception):
    """A function meets numbers of another precision."""


class _Check:
    """Check of a function by the rules, on synthetic clients."""

    def __init__(
        self, rules: Rules, function: _Function, trained: frozenset[str], width: int | None, per_sample: bool
    ) -> None:
        self.rules = rules
        self.function = function
        self.trained = trained
        self.width = width
        self.per_sample = per_sample

    def run(self) -> None:
        """Compute the function for synthetic clients of every kind, and compare."""
        plain = self._compute(SyntheticClients(self.rules.parameters, (FIRST,)), draws=True)
        self._check_value(plain.value, sum(FIRST.real))
        single = self._compute(SyntheticClients(self.rules.parameters, (SINGLE,)))
        self._check_way(plain.calls, single.calls)
        filled = [self._check_padded(FIRST, plain)]
        second = self._compute(SyntheticClients(self.rules.parameters, (SECOND,)))
        filled.append(self._check_padded(SECOND, second))
        both = SyntheticClients(self.rules.parameters, (FIRST, SECOND), padded=True, client_axis=True)
        self._check_clients(filled, both)
        self._check_clients([single], SyntheticClients(self.rules.parameters, (SINGLE,), client_axis=True))

    def _check_padded(self, client: SyntheticClient, plain: _Outcome) -> _Outcome:
        """Compute a client with padding, and refuse other numbers than without padding."""
        filled = self._compute(SyntheticClients(self.rules.parameters, (client,), padded=True))
        self._check_way(plain.calls, filled.calls)
        real = torch.tensor(client.real)
        number = first_unequal(plain.calls, filled.calls, real)
        if number is not None:
            call = plain.calls[number]
            self.function.refuse(call.source_line, advice.on_samples(call, filled.calls[number], real))
        kept = all(
            is_close(each, of_real(filled.gradients[leaf], each, real), plain.largest)
            for leaf, each in plain.gradients.items()
        )
        # Engines pad with copies of real samples; NaN in padding alone does not occur there.
        counted = any(
            bool(each[~real].nan_to_num(nan=0.0).any())
            for leaf, each in filled.gradients.items()
            if leaf[0] in OF_GRADIENT
        )
        if not bool(plain.value.isfinite().all()):
            # Training will report the divergence.
            return filled
        if not kept or counted or not is_close(plain.value, of_real(filled.value, plain.value, real)):
            self.function.refuse(None, advice.UNKNOWN)
        return filled

    def _check_way(self, one: list[TorchCall], other: list[TorchCall]) -> None:
        """Refuse a function whose torch calls depend on the number of samples."""
        call = first_other_call(one, other)
        if call is not None:
            self.function.refuse(call.source_line, advice.ANOTHER_WAY)

    def _check_clients(self, alone: list[_Outcome], made: SyntheticClients) -> None:
        """Refuse other numbers for several clients at once than for each single client."""
        found = self._compute(made)
        beside = max(each.largest for each in alone)
        if (
            is_close(torch.stack([each.value for each in alone]), found.value)
            and alone[0].gradients.keys() == found.gradients.keys()
            and all(
                is_close(torch.stack([each.gradients[leaf] for each in alone]), value, beside)
                for leaf, value in found.gradients.items()
            )
        ):
            return
        call = first_with_mixed_clients(found.calls, [each.calls for each in alone])
        did = "" if call is None else f"{call.name.strip('_')} takes the wrong axis. "
        self.function.refuse(None if call is None else call.source_line, f"{did}{advice.FROM_THE_END}")

    def _check_value(self, value: Tensor, samples: int) -> None:
        """Refuse a value of the wrong shape."""
        shape, stage = tuple(value.shape), self.function.stage
        wanted = {"loss": (), "score": (samples,), "rewrite": (samples, self.width)}[stage]
        if shape == wanted:
            return
        what = f"it gives the shape {shape}, of {samples} samples"
        if stage != "loss":
            self.function.refuse(None, f"{what}. It has to give {wanted}: {advice.SHAPES[stage]}")
        if shape == (samples,):
            self.function.refuse(None, f"{what}: one number per sample. Write batch.mean(...) of it")
        self.function.refuse(
            None, f"{what}. A loss is one number per client, of the shape (): {advice.SHAPES[stage]}"
        )

    def _compute(self, made: SyntheticClients, *, draws: bool = False) -> _Outcome:
        """The outcome of the function for some clients; with `draws`, refuse random draws."""
        made.trained, made.stage, made.per_sample = self.trained, self.function.stage, self.per_sample
        made.leaves |= {("derived", name): value for name, value in self._derived(made).items()}
        listener = TorchCallRecorder(made.leaves.values)
        with (
            self._errors_with_line(made),
            _without_warnings(),
            listener,
            RefusedDraws() if draws else nullcontext(),
        ):
            value = call_of_method(self.function, made, listener)
            if not isinstance(value, Tensor):
                self.function.refuse(None, f"it gives {type(value).__name__} in the place of a tensor")
        if self.trained and not value.requires_grad:
            names = ", ".join(sorted(self.trained))
            self.function.refuse(
                None, f"it does not depend on what its step trains ({names}), so that nothing moves"
            )
        self.rules.whole_tables |= made.reads_whole_tables
        calls, listener.backward = list(listener.calls), True
        with self._errors_with_line(made), listener:
            return _Outcome(value.detach(), _gradients(value, made.leaves, listener.hooks), calls)

    def _derived(self, made: SyntheticClients) -> dict[str, Tensor]:
        """The numbers derived for some clients; refuse other numbers for all at once than for each."""
        function = _Function(
            "derived", self.rules.method.derived, f"{type(self.rules.method).__name__}.derived", None
        )
        each = []
        for client in made.clients:
            key = (client, torch.get_default_dtype())
            if key not in self.rules.derived:
                self.rules.derived[key] = self._derived_of(
                    function, SyntheticClients(made.parameters, (client,))
                )
            each.append(self.rules.derived[key])
        if not made.client_axis:
            return each[0]
        found = self._derived_of(
            function, SyntheticClients(made.parameters, made.clients, padded=made.padded, client_axis=True)
        )
        for name, value in found.items():
            if not is_close(torch.stack([one[name] for one in each]), value):
                function.refuse(
                    None, f"'{name}' is another for several clients than for each. {advice.FROM_THE_END}"
                )
        return found

    def _derived_of(self, function: _Function, made: SyntheticClients) -> dict[str, Tensor]:
        made.stage = "derived"
        with self._errors_with_line(made, function), torch.no_grad():
            found = cast(
                dict[str, Tensor], call_of_method(function, made, TorchCallRecorder(made.leaves.values))
            )
        self.rules.whole_tables |= made.reads_whole_tables
        check_derived(self.rules.method, found)
        return found

    @contextmanager
    def _errors_with_line(self, made: SyntheticClients, of: _Function | None = None) -> Iterator[None]:
        """Turn errors into refusals that name the line of the method's file."""
        function = of or self.function
        try:
            yield
        except FederationError as error:
            if str(error).startswith(function.name):
                raise
            function.refuse(line_of_error(), str(error))
        except _COMPUTING as error:
            message = (str(error).strip().splitlines() or ["it cannot be computed"])[0].rstrip(".")
            if "dtype" in message and torch.get_default_dtype() == torch.float64 and not made.client_axis:
                raise _OtherPrecisionError from error
            where = (
                advice.FROM_THE_END
                if made.client_axis
                else f"So it is for a client of {made.samples} samples"
            )
            function.refuse(line_of_error(), f"{message}. {where}")


def call_of_method(
    function: _Function, made: SyntheticClients, listener: TorchCallRecorder | CallTrace
) -> Any:  # noqa: ANN401 - any
    """Call a method's function for synthetic clients; see `torch_calls.ENTRY`."""
    view = made.view()
    if function.stage == "loss":
        return function.call(view, cast(Batch, SyntheticBatch(made, listener)))
    if function.stage == "derived":
        return function.call(view)
    with torch.no_grad():
        return function.call(view, made.index if function.stage == "score" else sampled(made.index))


def _gradients(
    value: Tensor, leaves: Mapping[SyntheticPart, Tensor], hooks: bool
) -> dict[SyntheticPart, Tensor]:
    """The gradients by leaf; also those of a larger loss if the method changes gradients itself."""
    wanted = {leaf: each for leaf, each in leaves.items() if each.requires_grad}
    if not value.requires_grad:
        return {}
    gradient = partial(
        torch.autograd.grad, inputs=list(wanted.values()), allow_unused=True, materialize_grads=True
    )
    total = value.sum()
    if not hooks and not _has_own_derivatives(total):
        return dict(zip(wanted, gradient(total), strict=True))
    found = dict(zip(wanted, gradient(total, retain_graph=True), strict=True))
    larger = gradient(_LARGER * total)
    return found | {
        (part, f"{name} of a larger loss"): each for (part, name), each in zip(wanted, larger, strict=True)
    }


_LARGER = 1000.0
"""Factor of the larger loss: code that bounds gradients may leave small ones unchanged, but no large ones."""


def _has_own_derivatives(value: Tensor) -> bool:
    """Whether the graph has an autograd function that the method defines."""
    ahead, seen = [value.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        if isinstance(node, cast(Any, torch.autograd.function.BackwardCFunction)):
            return True
        seen.add(node)
        ahead += [following for following, _ in node.next_functions]
    return False


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppress warnings; the rules refuse wrong code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _precision(dtype: torch.dtype) -> Iterator[None]:
    """Set the default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
