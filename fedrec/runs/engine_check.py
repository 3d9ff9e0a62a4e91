"""An engine that is compared with the plain loop before it trains.

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
"""How far numbers may be apart in any case, as a share of the largest one of their kind."""
AMPLIFIED = 100.0
"""How many times as far as the loop is from itself, when its initial values move by one part in 10^12."""
_ORACLE = "loop"
_ANY = 0.5
"""The number that stands for any rate in the identity of a program."""
_ALWAYS = 3
"""Programs of one shape that are all compared; of further ones, those of rounds that are powers of 2."""


@dataclass(frozen=True)
class EngineVerdict:
    """What came of a comparison."""

    engine: str
    agrees: bool
    difference: float | None = None
    """The largest one, as a share of the largest number of its kind; None where there are no numbers."""
    allowed: float = TOLERANCE
    where: str = ""
    """What differs, and of which client; or why there are no numbers to compare."""

    @classmethod
    def read(cls, kept: Mapping[str, Any] | None) -> Self | None:
        """A verdict as JSON has it; None where it is none."""
        if kept is None or kept.keys() != {each.name for each in fields(cls)}:
            return None
        types = {"engine": str, "agrees": bool, "difference": float | None, "allowed": float, "where": str}
        return cls(**kept) if all(isinstance(kept[name], kind) for name, kind in types.items()) else None

    @property
    def words(self) -> str:
        """How it differs, in words."""
        if self.difference is None:
            return self.where
        by = f"{self.difference:.1e} of its largest number (rounding explains {self.allowed:.1e})"
        return f"{self.where} differs by {by}"


class CheckedEngine(Engine):
    """Another engine, where it trains as the plain loop does; else a slower one that does."""

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
        """`code` gives the fingerprint of the code of a run by an engine."""
        self.asked = engine
        self.name = engine.name
        self._method, self._settings, self._memory, self._code = method, settings, memory, code
        self._strict = strict
        self._engines: dict[str, Engine] = {engine.name: engine}
        self._keys, self._kept = LossKeys(), EngineCheckCache()
        self._chosen: dict[Any, str] = {}
        self._present: Engine | None = None
        self._met: dict[Any, int] = {}
        """How many programs of each shape were compared."""
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
            return self.asked.notes()
        notes = dict(self._engines[self._last].notes())
        outcome: dict[str, Any] = {"outcome": "agreed", "tolerance": TOLERANCE}
        if self.differing:
            outcome = {
                "outcome": "fell back",
                "trained_by": sorted({*self._chosen.values()}, key=slower_engines(self.name).index),
                "differing": [asdict(verdict) for verdict in self.differing],
            }
        return {**self.asked.notes(), **notes, "self_check": outcome}

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
            times = self._met.get(shape, 0)
            # A loss that reads other values in every round is not compared in every one.
            is_due = times < _ALWAYS or (task.round_ & (task.round_ - 1)) == 0
            if not is_due:
                return self._last
            self._met[shape] = times + 1
            self._chosen[key] = self._compared(task, key)
        return self._chosen[key]

    def _identity(self, program: Program) -> tuple[Any, Any]:
        """The shape of a program, and what its functions read."""
        functions: list[Any] = list(losses_of(program))
        functions += [operation.rows for operation in program if isinstance(operation, Rewrite)]
        functions += [operation.transform for operation in program if isinstance(operation, Upload)]
        keys = [self._keys.of(each, numbers=False) for each in functions]
        return shape_of(program), tuple("opaque" if is_opaque(key) else key for key in keys)

    def _compared(self, task: Task, key: tuple[Any, Any]) -> str:
        """The quickest engine, from the one asked for on, that trains as the loop does."""
        comparison: _Comparison | None = None
        for name in slower_engines(self.name):
            if name == _ORACLE:
                break
            asked = self._question(task, name, key)
            verdict = None if asked is None else EngineVerdict.read(self._kept.found(asked))
            if verdict is None:
                engine = engine_named(name, *self._memory)
                try:
                    comparison = comparison or _Comparison(task, self._settings, self._memory)
                    verdict = comparison.of(engine)
                except UncopyableError as error:
                    verdict = EngineVerdict(name, agrees=False, where=str(error))
                # Once there is a compiler, the engine trains in another way.
                if asked is not None and not engine.lacks_compiler:
                    self._kept.keep(asked, asdict(verdict))
            if verdict.agrees:
                return self._message(name)
            self.differing.append(verdict)
        return self._message(_ORACLE)

    def _question(self, task: Task, engine: str, key: tuple[Any, Any]) -> dict[str, Any] | None:
        """All that a verdict depends on, as JSON has it; None where a part of it cannot be named."""
        if "opaque" in key[1]:
            return None
        device = task.who.device
        return {
            "method": parse(self._method).name,
            "settings": _hash(sorted(_agree(self._settings).items())),
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
        # Settings know their composition's name for messages, with all rates in it.
        attributes: dict[str, Any] = getattr(settings, "__dict__", {})
        before = dict(settings), dict(attributes)
        settings.update(_agree(settings))
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
        """Say what differs, or with `strict` refuse it."""
        found = {verdict.engine: verdict for verdict in self.differing}
        for verdict in found.values():
            said = (
                f"{self._method}: the engine '{verdict.engine}' does not give the numbers of the plain "
                f"loop: {verdict.words}."
            )
            if self._strict:
                raise FederationError(
                    f"{said} Without --strict, a slower engine would train the run. `fedrec kernel` shows "
                    "the kernels that the engine 'fused' compiles."
                )
            if verdict.engine not in self._warned:
                self._warned.add(verdict.engine)
                logger.warning(
                    "%s The slower engine '%s' trains this run. docs/engine.md explains the check. Please "
                    "report this with the method's file.", said, chosen,
                )  # fmt: skip
        return chosen


def _hash(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()


def _agree(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings, with one number for all rates above 0 but 1, and one for all below it.

    A search tries hundreds of rates, and each comparison takes seconds.
    """
    return {
        name: math.copysign(_ANY, value)
        if isinstance(value, float) and value not in (0.0, 1.0) and math.isfinite(value)
        else value
        for name, value in settings.items()
    }


class _Comparison:
    """What the loop makes of a few clients, to which other engines are compared."""

    def __init__(self, task: Task, settings: Mapping[str, Any], memory: tuple[int, int]) -> None:
        self._memory = memory
        self._sample_training, self._expected = _expected(task, settings)

    def of(self, engine: Engine) -> EngineVerdict:
        """The verdict on an engine that has not trained yet."""
        name, expected = engine.name, self._expected
        engine.quick_compile = True
        try:
            found = self._sample_training.train(engine)
        # Whatever an engine makes of a loss that the loop trains.
        except Exception as error:
            first = next(iter(str(error).strip().splitlines()), "")
            return EngineVerdict(name, agrees=False, where=f"it fails with {type(error).__name__}: {first}")
        if isinstance(expected, str) and isinstance(found, str):
            return EngineVerdict(name, agrees=True)
        if isinstance(expected, str) or isinstance(found, str):
            said = expected if isinstance(expected, str) else found
            return EngineVerdict(name, agrees=False, where=f"only one of the two diverges: {said}")
        shares = relative_differences(expected, found)
        allowed = dict.fromkeys(shares, TOLERANCE)
        if max(shares.values()) > TOLERANCE:
            allowed |= self._rounding(expected)
        worst = max(shares, key=lambda each: shares[each] / allowed[each])
        difference, most = shares[worst], allowed[worst]
        if math.isinf(difference):
            return EngineVerdict(name, agrees=False, where=f"{worst} is not finite in only one of the two")
        where = self._where(worst, expected[worst], found[worst])
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

    def _where(self, name: str, expected: Tensor, found: Tensor) -> str:
        """What differs, and of which client if it is theirs."""
        users = self._sample_training.clients.user
        said = name.partition("/")[2] or name
        if not (name.startswith("kept/") or name == "scores") or len(expected) != len(users):
            return said
        client = int((expected - found).abs().flatten(1).max(1).values.argmax())
        return f"{said} of client {int(users[client])}"


def _expected(task: Task, settings: Mapping[str, Any]) -> tuple[SampleTraining, dict[str, Tensor] | str]:
    """The first shadow that the loop can train, and what comes of it."""
    first: Exception | None = None
    diverged: tuple[SampleTraining, str] | None = None
    for sample_training in sample_trainings(task.method, task.clients, settings, task.seed, task.round_):
        try:
            found = sample_training.train(engine_named(_ORACLE, 0))
        except UncopyableError:
            raise
        # A rule of the server, or a loss, may not do with so few; what all of them raise is the method's own.
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
