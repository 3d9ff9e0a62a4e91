"""What an engine makes of a case, held to the plain loop."""

import importlib.util
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from fedrec.errors import FedrecError
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import Engine, engine_named
from fedrec.federation.federation import Federation
from fedrec.federation.model.parameters import initial_values
from fedrec.federation.model.tables import PlainBatch
from fedrec.federation.state import state
from tests.federations import precision, split_of, values_of
from tests.programs.cases import SETTINGS, Case

EQUAL, REFUSED, WRONG, TRACEBACK, UNSTEADY, NEEDS_API = (
    "EQUAL", "REFUSED", "WRONG", "TRACEBACK", "UNSTEADY", "NEEDS_API",
)  # fmt: skip
OUTCOMES = (EQUAL, REFUSED, UNSTEADY, WRONG, TRACEBACK, NEEDS_API)
LOOP, CHECKED = "loop", "checked"
FAR = 1e-9
"""Differences up to this share of a tensor's largest number are rounding."""
_NOTHING = 1e-6
"""Smaller numbers than this are no scale: a gradient that is zero but for rounding leaves moments of 1e-17."""
_NUDGE, _OFTEN = 1e-12, 10.0
"""A case is unsteady where the loop itself, started this far away, ends at least a tenth as far away as the engine."""
_SEED = 3
_MEMORY = 1 << 30


@dataclass(frozen=True)
class Trained:
    """What a case has trained: its numbers, or why there are none; `by` says how its fits were trained."""

    values: Mapping[str, Tensor]
    by: str = ""
    refusal: str | None = None
    traceback: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What became of a case by an engine."""

    case: str
    engine: str
    kind: str
    detail: str = ""
    by: str = ""
    """`compiled`, or why a fit was not."""
    apart: float = 0.0

    def __str__(self) -> str:
        trained = f" [{self.by}]" if self.by else ""
        return f"{self.kind:9} {self.engine:8} {self.case}: {self.detail}{trained}"


def outcome_of(case: Case, engine: str, device: str = "cpu") -> Outcome:
    """Train a case by an engine, and compare with the loop."""
    missing = [name for name in case.needs if not hasattr(PlainBatch, name)]
    if missing:
        return Outcome(case.name, engine, NEEDS_API, f"batch.{missing[0]} is not there")
    found = trained(case, engine, device)
    if found.traceback is not None:
        return Outcome(case.name, engine, TRACEBACK, found.traceback, found.by)
    if engine == LOOP:
        kind, detail = (EQUAL, "") if found.refusal is None else (REFUSED, found.refusal)
        return Outcome(case.name, engine, kind, detail)
    expected = trained(case, LOOP)
    if found.refusal is not None:
        return Outcome(case.name, engine, REFUSED, found.refusal, found.by)
    if expected.refusal is not None or expected.traceback is not None:
        why = expected.refusal or expected.traceback
        return Outcome(case.name, engine, WRONG, f"trains what the loop does not: {why}", found.by)
    return _compared(case, engine, expected, found)


def mistakes_of(case: Case, outcome: Outcome) -> list[str]:
    """What of an outcome is not as the case expects."""
    kind = outcome.kind
    allowed = {
        "trained": {EQUAL},
        "refused": {REFUSED},
        "either": {EQUAL, REFUSED},
        "error": {TRACEBACK},
    }[case.expected]
    if case.unsteady:
        allowed = allowed | {UNSTEADY}
    if case.by_check and outcome.engine in ("fused", "batched"):
        # Refused by the loop alone, or trained to other numbers: what the self-check is there for.
        allowed = allowed | {WRONG, UNSTEADY, REFUSED}
    if "error: " in outcome.by:
        return [f"{outcome} (its kernel is text that the C compiler does not take)"]
    if kind not in allowed:
        return [f"{outcome} (expected: {case.expected})"]
    if kind == {"refused": REFUSED, "error": TRACEBACK}.get(case.expected) and not re.search(
        case.text, outcome.detail
    ):
        return [f"{outcome} (its message does not match {case.text!r})"]
    return []


def _compared(case: Case, engine: str, expected: Trained, found: Trained) -> Outcome:
    if expected.values.keys() != found.values.keys():
        return Outcome(case.name, engine, WRONG, "other numbers are stored", found.by)
    differences = apart(expected.values, found.values)
    name, difference = max(differences.items(), key=lambda pair: _size(pair[1]))
    detail = f"{name} by {difference:.1e}"
    if difference <= FAR:
        return Outcome(case.name, engine, EQUAL, detail, found.by, difference)
    nudged = trained(case, LOOP, nudge=True)
    steady = nudged.refusal is None and nudged.traceback is None
    own = max(map(_size, apart(expected.values, nudged.values).values())) if steady else float("inf")
    kind = UNSTEADY if own * _OFTEN >= difference else WRONG
    return Outcome(case.name, engine, kind, f"{detail}, the loop itself by {own:.1e}", found.by, difference)


def apart(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> dict[str, float]:
    """How far tensors are apart, in shares of the first one's largest number, or of what is nothing where all are less."""
    shares = {}
    for name, value in first.items():
        expected, actual = value.double().flatten(), second[name].double().flatten()
        # The loss of clients that have not trained is no number, in every engine.
        differing = ~(expected.isnan() & actual.isnan())
        expected, actual = expected[differing], actual[differing]
        shares[name] = 0.0
        if len(expected):
            shares[name] = float((expected - actual).abs().max() / expected.abs().max().clamp(min=_NOTHING))
    return shares


def _size(difference: float) -> float:
    return float("inf") if difference != difference else difference


def trained(case: Case, engine: str, device: str = "cpu", *, nudge: bool = False) -> Trained:
    """The numbers of a case after its rounds; those of the loop are computed once."""
    return (_by_loop if engine == LOOP else _trained)(case, engine, device, nudge)


def _trained(case: Case, engine: str, device: str, nudge: bool) -> Trained:
    made = None
    try:
        with precision(torch.float64), _global_draws(), _nudged(nudge), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            settings = {**SETTINGS, "rounds": case.rounds, **case.settings}
            method = case.make(settings, case.items)
            made = engine_of(engine, case, settings)
            federation = Federation(method, clients(case.rows, case.items, device), made, settings, _SEED)
            reports = [federation.train_round(round_) for round_ in range(1, case.rounds + 1)]
            losses = torch.tensor([report.loss for report in reports])
            counts = torch.tensor([[float(report.up), report.down] for report in reports])
            values = values_of(federation, torch.device(device)) | {"losses": losses, "counts": counts}
            return Trained({name: value.detach().cpu().clone() for name, value in values.items()}, _by(made))
    except FedrecError as error:
        return Trained({}, _by(made), refusal=str(error))
    except Exception as error:
        # Whatever else an engine raises is what is looked for.
        return Trained({}, _by(made), traceback=f"{type(error).__name__}: {error}"[:500])


_by_loop = lru_cache(maxsize=64)(_trained)


class _NothingKept:
    """Verdicts that are forgotten: every comparison of a test is made anew."""

    def found(self, asked: Mapping[str, Any]) -> None:
        """None: nothing is known."""

    def keep(self, asked: Mapping[str, Any], verdict: Mapping[str, Any]) -> None:
        """Forget it."""


def engine_of(name: str, case: Case, settings: Mapping[str, Any]) -> Engine:
    """An engine by its name; `checked` is the one of `fedrec train`, which compares before it trains."""
    if name != CHECKED:
        return engine_named(name, _MEMORY)
    from fedrec.runs.engine_check import CheckedEngine

    fused = engine_named("fused", _MEMORY)
    engine = CheckedEngine(fused, case.name, settings, (_MEMORY, 0), lambda name: name)
    engine._kept = _NothingKept()
    return engine


def has_checked() -> bool:
    """Whether this version of fedrec compares engines with the loop by itself."""
    return importlib.util.find_spec("fedrec.runs.engine_check") is not None


def _by(engine: Engine | None) -> str:
    """How an engine says it has trained: `compiled`, or why not."""
    if engine is None:
        return ""
    notes = engine.notes()
    checked = notes.get("self_check", {})
    found = [f"{each['engine']} differs: {each['where']}" for each in checked.get("differing", [])]
    return "; ".join(dict.fromkeys([*map(str, notes.get("training", {}).values()), *found]))


@cache
def clients(rows: tuple[int, ...], items: int, device: str) -> Clients:
    """Made clients with so many training interactions each."""
    generator = torch.Generator().manual_seed(1)
    made = []
    for user, count in enumerate(rows):
        # Two of each are held out, for validation and test.
        own = torch.randperm(items, generator=generator)[: count + 2]
        made += [(user, int(item), step) for step, item in enumerate(own)]
    return Clients.of_split(split_of(made, items, candidates=4), torch.device(device))


@contextmanager
def _global_draws() -> Iterator[None]:
    """What a case draws by torch's own generator leaves no trace in other tests."""
    before = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(before)


@contextmanager
def _nudged(asked: bool) -> Iterator[None]:
    """Every parameter starts a little away from where it does; what is 0 stays 0."""

    def initial(*given: Any) -> dict[str, Tensor]:
        return {
            name: value * (1 + _NUDGE * torch.linspace(1, 2, value.numel()).cos().reshape(value.shape))
            for name, value in initial_values(*given).items()
        }

    with mock.patch.object(state, "initial_values", initial) if asked else nullcontext():
        yield


def as_json(outcome: Outcome) -> dict[str, Any]:
    return dict(vars(outcome))
