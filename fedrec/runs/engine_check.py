"""Compare an engine with the plain loop before it trains.

A method's file may use what an engine computes in another way. So before an engine trains a program for the
first time, it trains a few clients of the run in double precision, apart from the run, and so does the loop
(`fedrec.federation.sample_training`). If their numbers differ by more than rounding, a slower engine trains
the run, or with `strict` none does.
"""

import hashlib
import logging
import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.config.names import parse
from fedrec.errors import FederationError
from fedrec.federation.comparison import relative_differences
from fedrec.federation.engines.engine import Engine, Outcome, Task, engine_named, slower_engines
from fedrec.federation.loss_key import LossKeys, is_opaque
from fedrec.federation.model.client import Fit, Program, Rewrite, Upload
from fedrec.federation.program import losses_of, shape_of, trace_after_aggregation
from fedrec.federation.rules.losses import Rules
from fedrec.federation.sample_training import SampleTraining, UncopyableError, sample_trainings
from fedrec.native.on_cpu import compilation
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.runs.engine_check_cache import EngineCheckCache

logger = logging.getLogger(__name__)

TOLERANCE = 1e-7
"""Difference that is always allowed, relative to the largest number of the same quantity."""
AMPLIFIED = 100.0
"""Allowed difference, as a multiple of the loop's own change if its initial values move by 1e-12."""
_ORACLE = "loop"
_ANY = 0.5
"""The number that replaces every rate in the identity of a program."""
_ALWAYS = 3
"""Programs of one shape to compare in every case; further ones only in rounds that are powers of 2."""


@dataclass(frozen=True)
class EngineVerdict:
    """The result of a comparison."""

    engine: str
    agrees: bool
    difference: float | None = None
    """The largest difference, relative to the largest number of its quantity; None without numbers."""
    allowed: float = TOLERANCE
    where: str = ""
    """The quantity that differs and its client; or the reason why there are no numbers to compare."""

    @classmethod
    def read(cls, content: Mapping[str, Any] | None) -> Self | None:
        """Read a verdict from its JSON content; None if the content is not one."""
        if content is None or content.keys() != {spec.name for spec in fields(cls)}:
            return None
        types = {"engine": str, "agrees": bool, "difference": float | None, "allowed": float, "where": str}
        return (
            cls(**content) if all(isinstance(content[name], kind) for name, kind in types.items()) else None
        )

    @property
    def words(self) -> str:
        """The difference as text."""
        if self.difference is None:
            return self.where
        by = f"{self.difference:.1e} of its largest number (rounding explains {self.allowed:.1e})"
        return f"{self.where} differs by {by}"


class CheckedEngine(Engine):
    """Wrap an engine: use it where it gives the plain loop's numbers, else the next slower one that does."""

    def __init__(
        self,
        engine: Engine,
        method: str,
        settings: Mapping[str, Any],
        memory: tuple[int, int],
        code: Callable[[str], str],
        *,
        strict: bool = False,
    ) -> None:
        """`code` returns the fingerprint of the run's code for the name of an engine."""
        self.requested = engine
        self.name = engine.name
        self._method, self._settings, self._memory, self._code = method, settings, memory, code
        self._strict = strict
        self._engines: dict[str, Engine] = {engine.name: engine}
        self._keys, self._kept = LossKeys(), EngineCheckCache()
        self._chosen: dict[Any, str] = {}
        self._present: Engine | None = None
        self._times_seen: dict[Any, int] = {}
        """The number of compared programs by shape."""
        self.differing: list[EngineVerdict] = []
        self._warned: set[str] = set()

    @override
    def run(self, task: Task) -> Outcome:
        # What clients do after aggregation was compared with what they did before.
        if self._present is None or not task.after_aggregation:
            self._present = self._engine(self._choice(task))
        return self._present.run(task)

    @override
    def notes(self) -> dict[str, Any]:
        if not self._chosen:
            return self.requested.notes()
        notes = dict(self._engines[self._last].notes())
        outcome: dict[str, Any] = {"outcome": "agreed", "tolerance": TOLERANCE}
        if self.differing:
            outcome = {
                "outcome": "fell back",
                "trained_by": sorted({*self._chosen.values()}, key=slower_engines(self.name).index),
                "differing": [asdict(verdict) for verdict in self.differing],
            }
        return {**self.requested.notes(), **notes, "self_check": outcome}

    @property
    def _last(self) -> str:
        return next(reversed(self._chosen.values()))

    def _engine(self, name: str) -> Engine:
        if name not in self._engines:
            self._engines[name] = engine_named(name, *self._memory)
        return self._engines[name]

    def _choice(self, task: Task) -> str:
        """The name of the engine that trains a program."""
        late = trace_after_aggregation(task.method, task.round_)[0]
        shape, read = self._identity(task.program + late)
        read += task.needs.traces
        key = (shape, read)
        if key not in self._chosen:
            times = self._times_seen.get(shape, 0)
            # A loss may read other values in every round: do not compare it in every round.
            is_due = times < _ALWAYS or (task.round_ & (task.round_ - 1)) == 0
            if not is_due:
                return self._last
            self._times_seen[shape] = times + 1
            self._chosen[key] = self._compared(task, key)
        return self._chosen[key]

    def _identity(self, program: Program) -> tuple[Any, Any]:
        """The shape of a program, and the identities of its functions."""
        functions: list[Any] = list(losses_of(program))
        functions += [operation.rows for operation in program if isinstance(operation, Rewrite)]
        functions += [operation.transform for operation in program if isinstance(operation, Upload)]
        keys = [self._keys.of(each, numbers=False) for each in functions]
        return shape_of(program), tuple("opaque" if is_opaque(key) else key for key in keys)

    def _compared(self, task: Task, key: tuple[Any, Any]) -> str:
        """The fastest engine, starting with the requested one, that gives the loop's numbers."""
        comparison: _Comparison | None = None
        for name in slower_engines(self.name):
            if name == _ORACLE:
                break
            cache_key = self._cache_key(task, name, key)
            verdict = None if cache_key is None else EngineVerdict.read(self._kept.found(cache_key))
            if verdict is None:
                engine = engine_named(name, *self._memory)
                try:
                    comparison = comparison or _Comparison(task, self._settings, self._memory)
                    verdict = comparison.of(engine)
                except UncopyableError as error:
                    verdict = EngineVerdict(name, agrees=False, where=str(error))
                # Without a compiler the engine trains differently: do not cache that verdict.
                if cache_key is not None and not engine.lacks_compiler:
                    self._kept.keep(cache_key, asdict(verdict))
            if verdict.agrees:
                return self._message(name)
            self.differing.append(verdict)
        return self._message(_ORACLE)

    def _cache_key(self, task: Task, engine: str, key: tuple[Any, Any]) -> dict[str, Any] | None:
        """Everything that a verdict depends on, as JSON values; None if a part has no stable name."""
        if "opaque" in key[1]:
            return None
        device = task.who.device
        return {
            "method": parse(self._method).name,
            "settings": _hash(sorted(_without_rates(self._settings).items())),
            "program": _hash(self._identity_but_rates(task)),
            "traces": self._traces(task),
            "engine": engine,
            "code": [self._code(name) for name in slower_engines(engine)],
            "check": code_fingerprint("fedrec.runs.engine_check"),
            "torch": torch.__version__,
            "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
            "compiler": _hash(compilation()),
        }

    def _identity_but_rates(self, task: Task) -> tuple[Any, Any]:
        """The identity of a program, which other rates share; `_traces` differs where a loss branches."""
        settings = task.method.settings
        if not isinstance(settings, MutableMapping):
            return self._identity(task.program)
        # The settings object stores the method's name for messages, and the name has the rates.
        attributes: dict[str, Any] = getattr(settings, "__dict__", {})
        before = dict(settings), dict(attributes)
        settings.update(_without_rates(settings))
        attributes.clear()
        try:
            return self._identity(task.program + trace_after_aggregation(task.method, task.round_)[0])
        finally:
            settings.update(before[0])
            attributes.update(before[1])

    def _traces(self, task: Task) -> list[str]:
        """The calls of torch that every loss makes."""
        rules = Rules(task.method)
        late = trace_after_aggregation(task.method, task.round_)[0]
        steps = [
            (step.loss or operation.loss, step.rates)
            for operation in task.program + late
            if isinstance(operation, Fit)
            for step in operation.steps
        ]
        return sorted({rules.trace_of(loss, rates) for loss, rates in steps})

    def _message(self, chosen: str) -> str:
        """Warn about differences, or fail with `strict`; return the chosen engine."""
        by_engine = {verdict.engine: verdict for verdict in self.differing}
        for verdict in by_engine.values():
            message = (
                f"{self._method}: the engine '{verdict.engine}' does not give the numbers of the plain "
                f"loop: {verdict.words}."
            )
            if self._strict:
                raise FederationError(
                    f"{message} Without --strict, a slower engine would train the run. `fedrec kernel` shows "
                    "the kernels that the engine 'fused' compiles."
                )
            if verdict.engine not in self._warned:
                self._warned.add(verdict.engine)
                logger.warning(
                    "%s The slower engine '%s' trains this run. docs/engine.md explains the check. Please "
                    "report this with the method's file.", message, chosen,
                )  # fmt: skip
        return chosen


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _without_rates(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with every rate except 0 and 1 replaced by 0.5, or by -0.5 if negative.

    A search tries hundreds of rates, and each comparison takes seconds. So they share one verdict.
    """
    return {
        name: math.copysign(_ANY, value)
        if isinstance(value, float) and value not in (0.0, 1.0) and math.isfinite(value)
        else value
        for name, value in settings.items()
    }


class _Comparison:
    """The loop's numbers for copies of a few clients, with which other engines are compared."""

    def __init__(self, task: Task, settings: Mapping[str, Any], memory: tuple[int, int]) -> None:
        self._memory = memory
        self._sample_training, self._expected = _expected(task, settings)

    def of(self, engine: Engine) -> EngineVerdict:
        """The verdict on an engine that has not trained yet."""
        name, expected = engine.name, self._expected
        engine.quick_compile = True
        try:
            actual = self._sample_training.train(engine)
        # An engine may raise any error on a loss that the loop trains.
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), "")
            return EngineVerdict(name, agrees=False, where=f"it fails with {type(error).__name__}: {first}")
        if isinstance(expected, str) and isinstance(actual, str):
            return EngineVerdict(name, agrees=True)
        if isinstance(expected, str) or isinstance(actual, str):
            reason = expected if isinstance(expected, str) else actual
            return EngineVerdict(name, agrees=False, where=f"only one of the two diverges: {reason}")
        shares = relative_differences(expected, actual)
        allowed = dict.fromkeys(shares, TOLERANCE)
        if max(shares.values()) > TOLERANCE:
            allowed |= self._rounding(expected)
        worst = max(shares, key=lambda quantity: shares[quantity] / allowed[quantity])
        difference, most = shares[worst], allowed[worst]
        if math.isinf(difference):
            return EngineVerdict(name, agrees=False, where=f"{worst} is not finite in only one of the two")
        where = self._where(worst, expected[worst], actual[worst])
        return EngineVerdict(name, difference <= most, difference, most, where)

    def _rounding(self, expected: Mapping[str, Tensor]) -> dict[str, float]:
        """How far numbers may be apart, by how far the loop moves when initial values do."""
        moved = self._sample_training.train(engine_named(_ORACLE, *self._memory), perturbed=True)
        if isinstance(moved, str):
            return {}
        return {
            name: max(TOLERANCE, AMPLIFIED * share)
            for name, share in relative_differences(expected, moved).items()
        }

    def _where(self, name: str, expected: Tensor, actual: Tensor) -> str:
        """The name of the quantity that differs, and its client if it has one."""
        users = self._sample_training.clients.user
        label = name.partition("/")[2] or name
        if not (name.startswith("kept/") or name == "scores") or len(expected) != len(users):
            return label
        client = int((expected - actual).abs().flatten(1).max(1).values.argmax())
        return f"{label} of client {int(users[client])}"


def _expected(task: Task, settings: Mapping[str, Any]) -> tuple[SampleTraining, dict[str, Tensor] | str]:
    """The first shadow that the loop can train, and what comes of it."""
    first: Exception | None = None
    diverged: tuple[SampleTraining, str] | None = None
    for sample_training in sample_trainings(task.method, task.clients, settings, task.seed, task.round_):
        try:
            found = sample_training.train(engine_named(_ORACLE, 0))
        except UncopyableError:
            raise
        # A server rule or a loss may fail with so few clients. If all shadows fail, the method itself fails.
        except Exception as error:
            first = first or error
            continue
        if not isinstance(found, str):
            return sample_training, found
        diverged = diverged or (sample_training, found)
    if diverged is not None:
        return diverged
    assert first is not None, "a sample training ends, diverges or is refused"
    raise first
