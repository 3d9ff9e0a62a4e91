"""The options of a training run, as arguments of `fedrec train` and as a line of a run list."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self

from fedrec.config.methods import Methods, with_settings
from fedrec.config.names import parse_changes
from fedrec.config.records import merged_records, spelled_records
from fedrec.config.seeds import check_seed
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.runs import ALWAYS, KEPT, MODELS, NEVER, REFUSED, SMALL

AUTO = "auto"
"""Let the machine that trains choose the engine or the device."""
_SPELLINGS = {"changes": "set", "memory_gib": "memory", "checkpoint_seconds": "checkpoint-seconds"}
"""Options whose names differ from their fields."""
ON_DIVERGENCE = {"fail": REFUSED, "record": KEPT}
"""The values of `--on-divergence`, with the values in a run list and in the configuration."""
_NOT_LISTED = ("also", "force", "replace", "strict")
"""Fields that a run list leaves to the command that trains it."""


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """A request to train a run."""

    data: Path
    """The folder of its dataset, with the splits."""
    method: str
    paper: str | None = None
    """The paper whose settings it uses; None for the method's own paper."""
    protocol: str
    seed: int
    changes: tuple[str, ...] = ()
    """Settings that differ from the paper's, as texts `name=value`."""
    engine: str = AUTO
    device: str = AUTO
    memory_gib: float | None = None
    """Memory for clients that train at once; None for the default of the device."""
    checkpoint_seconds: float = 30.0
    diverged: str = REFUSED
    """A training that diverges is an error (`refused`), or a result (`kept`: `fedrec.runs.divergence`)."""
    record: tuple[str, ...] = ()
    """Its records in addition to the final state (see `fedrec.federation.observe.recorder`)."""
    out: Path
    """The folder for its files."""
    also: Mapping[str, Path] = field(default_factory=dict)
    """Further protocols, with the folders of their runs; protocols with the same samples share a training."""
    model: str = SMALL
    """The models that it writes, one of `MODELS`."""
    force: bool = False
    """Whether it replaces any finished run in its folder."""
    replace: bool = False
    """Whether it replaces a finished run in its folder that differs from the request."""
    strict: bool = False
    """Whether it fails if the engine does not give the numbers of the plain loop."""

    @property
    def dataset(self) -> str:
        """The name of its dataset."""
        return self.data.name

    def with_full_name(self, methods: Methods) -> Self:
        """The same run with its changes in the method's name, except changes that name files."""
        method, changes = with_settings(methods, self.method, parse_changes(self.changes))
        return replace(self, method=method, changes=changes)

    @property
    def records(self) -> tuple[str, ...]:
        """Its records, in canonical spelling."""
        return tuple(spelled_records(merged_records(self.record)))

    @property
    def model_policy(self) -> str:
        """The models that it writes, one of `MODELS`: records require a model of any size."""
        return ALWAYS if self.records and self.model == SMALL else self.model

    def check(self) -> None:
        """Raise `ConfigurationError` for an option with a value that is not allowed."""
        check_seed(self.seed)
        if self.diverged not in ON_DIVERGENCE.values():
            raise ConfigurationError(
                f"--on-divergence {self.diverged}: write record or "
                f"fail.{did_you_mean(self.diverged, ON_DIVERGENCE)} In Python and in a run list, write "
                "diverged: kept or refused."
            )
        if not self.checkpoint_seconds >= 0:
            raise ConfigurationError(
                f"--checkpoint-seconds {self.checkpoint_seconds:g}: give a number of seconds from 0, for "
                "example 30."
            )
        if self.model not in MODELS:
            hint = did_you_mean(self.model, MODELS)
            raise ConfigurationError(f"--model {self.model}: write one of {', '.join(MODELS)}.{hint}")
        if self.records and self.model == NEVER:
            raise ConfigurationError(
                "--record: its output is stored in the model's file, which --model never and --no-model "
                "leave out. Omit one of both."
            )
        if self.also and self.record:
            raise ConfigurationError(
                "--also-protocol cannot be combined with --record. Train these runs one by one."
            )

    @classmethod
    def from_line(cls, line: Mapping[str, Any]) -> Self:
        """The request of a checked line of a run list."""
        values: dict[str, Any] = {"seed": 0}
        values |= {name: option.read(line[key]) for key, (name, option) in OPTIONS.items() if key in line}
        return cls(**values)

    def as_line(self) -> dict[str, Any]:
        """Its options by name as JSON values, without defaults."""
        values = {key: getattr(self, name) for key, (name, _) in OPTIONS.items()}
        return {key: _as_json(value) for key, value in values.items() if value != _DEFAULTS.get(key, MISSING)}

    def words(self) -> Iterator[tuple[str, str]]:
        """Yield its options for `fedrec train` with their values; an option may repeat."""
        spelled = {value: word for word, value in ON_DIVERGENCE.items()}
        for key, value in self.as_line().items():
            if key == "diverged":
                yield "--on-divergence", spelled[self.diverged]
                continue
            for part in value if isinstance(value, list) else [value]:
                yield f"--{key}", str(part)

    def arguments(self) -> tuple[str, ...]:
        """The arguments of `fedrec` that train it, without the file of methods."""
        switches = {
            "--force": self.force, "--replace": self.replace, "--strict": self.strict,
        }  # fmt: skip
        return (
            "train",
            *(f"{option}={value}" for option, value in self.words()),
            *(f"--also-protocol={protocol}={folder}" for protocol, folder in self.also.items()),
            *(switch for switch, is_on in switches.items() if is_on),
        )


@dataclass(frozen=True)
class Option:
    """The values that an option may have in a line of a run list."""

    words: str
    fits: Callable[[object], bool]
    read: Callable[[Any], Any] = lambda value: value


def _as_json(value: object) -> object:
    return list(value) if isinstance(value, tuple) else str(value) if isinstance(value, Path) else value


def is_text(value: object) -> bool:
    """Whether a value of JSON is a text that is not empty."""
    return isinstance(value, str) and bool(value)


def is_number(value: object) -> bool:
    """Whether a value of JSON is a number from 0."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(is_text, value))


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_TEXT, _NUMBER = Option("a text", is_text), Option("a number from 0", is_number)
_BY_TYPE: Mapping[object, Option] = {
    Path: Option("a text", is_text, Path),
    str: _TEXT,
    str | None: _TEXT,
    int: Option("an integer", _is_integer),
    float: _NUMBER,
    float | None: _NUMBER,
    tuple[str, ...]: Option("a list of texts", _is_texts, tuple),
}
_LISTED: Mapping[str, Field[Any]] = {
    _SPELLINGS.get(spec.name, spec.name): spec
    for spec in fields(TrainRequest)
    if spec.name not in _NOT_LISTED
}
OPTIONS: Mapping[str, tuple[str, Option]] = {
    key: (spec.name, _BY_TYPE[spec.type]) for key, spec in _LISTED.items()
}
"""The options of a run list by name: the field of each, and its values."""
REQUIRED = ("data", "method", "protocol", "out")
"""The options that every line of a run list must have."""
_DEFAULTS = {key: spec.default for key, spec in _LISTED.items() if spec.default is not MISSING}
