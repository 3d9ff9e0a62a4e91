"""A list of runs in a file, to be trained where there is no workflow: one run per line, as JSON.

The keys are the options of `fedrec train`; `code` and `seconds` are what the plan knows besides.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.config.methods import canonical, resolve
from fedrec.config.modules import modules_of
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.fingerprint import run_fingerprint

ASKED = "plan/runs.jsonl"
"""Below the results: the runs that the workflow was last started for."""
_REQUIRED = ("data", "method", "protocol", "out")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_KEYS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(
        ("data", "method", "paper", "protocol", "out", "engine", "device", "diverged"), (_is_text, "a text")
    ),
    "seed": (_is_integer, "an integer"),
    **dict.fromkeys(("set", "record"), (_is_texts, "a list of texts")),
    **dict.fromkeys(("memory", "checkpoint-seconds", "seconds"), (_is_number, "a number from 0")),
    "code": (_is_text, "a text"),
}
"""What a line may say: whether a value can be that, and in words."""
_OF_THE_PLAN = ("code", "seconds")


@dataclass(frozen=True)
class ListedRun:
    """One run of a list."""

    place: str
    """File and line, for messages."""
    said: Mapping[str, Any]
    """The line: options of `fedrec train` by name, and what the plan knows besides."""

    @property
    def out(self) -> Path:
        """The folder it is written to."""
        return Path(self.said["out"])

    @property
    def kind(self) -> str:
        """What runs have in common that differ in their seed alone."""
        return json.dumps([self.said.get(key) for key in ("data", "method", "paper", "set")])

    @property
    def seconds(self) -> float:
        """About how long it takes, against others."""
        return float(self.said.get("seconds", 1.0))

    def arguments(self) -> tuple[str, ...]:
        """The arguments of `fedrec train`."""
        words = ["train"]
        for key, value in sorted(self.said.items()):
            if key not in _OF_THE_PLAN:
                words += [f"--{key}={one}" for one in (value if isinstance(value, list) else [value])]
        return tuple(words)


def list_text(runs: Iterable[Mapping[str, Any]]) -> str:
    """The file that lists runs, of what each line says."""
    return "".join(json.dumps(run, ensure_ascii=False) + "\n" for run in runs)


def read_list(path: Path, methods: Mapping[str, Any]) -> list[ListedRun]:
    """The runs that a file lists, each once, to be trained here.

    `ConfigurationError` names the line that is no run, names an unknown method or setting, would write into
    the folder of another, or was planned with other code than that here.
    """
    runs = listed_runs(path, methods)
    _check_code(runs, methods)
    return runs


def listed_runs(path: Path, methods: Mapping[str, Any]) -> list[ListedRun]:
    """The same, whatever code they were planned with."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{path}: no such file. `fedrec plan TARGET > {path}` writes one.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{path}: this is no list of runs, which is text.") from None
    lines = [(f"{path}, line {number}", line) for number, line in enumerate(text.splitlines(), start=1)]
    runs = [ListedRun(place, _checked(place, line)) for place, line in lines if line.strip()]
    for run in runs:
        _check_names(run, methods)
    return _once(runs)


def _checked(place: str, line: str) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{place}: not valid JSON ({error}). A line is one run: {{...}}.") from None
    if not isinstance(said, dict):
        raise ConfigurationError(f'{place}: a run is written {{"data": ..., "method": ..., ...}}.')
    for key, value in said.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"{place}: unknown key '{key}'.{did_you_mean(key, _KEYS)} There are: {', '.join(_KEYS)}."
            )
        fits, words = _KEYS[key]
        if not fits(value):
            raise ConfigurationError(f"{place}, {key}: {json.dumps(value)} is not {words}.")
    missing = [key for key in _REQUIRED if key not in said]
    if missing:
        raise ConfigurationError(f"{place}: '{missing[0]}' is missing. A run needs {', '.join(_REQUIRED)}.")
    return said


def _check_names(run: ListedRun, methods: Mapping[str, Any]) -> None:
    said = run.said
    try:
        name = canonical(methods, said["method"])
        resolve(methods, name, said.get("paper"), Path(said["data"]).name, said.get("set", ()))
    except ConfigurationError as error:
        raise ConfigurationError(f"{run.place}: {error}") from None


def _check_code(runs: Sequence[ListedRun], methods: Mapping[str, Any]) -> None:
    """Runs of other code than the plan's would be trained again where the plan was made."""
    here: dict[tuple[str, ...], str] = {}
    for run in runs:
        method = canonical(methods, run.said["method"])
        modules = tuple(modules_of(method))
        if modules not in here:
            here[modules] = run_fingerprint(method)
        if run.said.get("code", here[modules]) != here[modules]:
            raise ConfigurationError(
                f"{run.place}: it was planned with other code of {method} than is here, and would be trained "
                "again there. Bring the sources to the same state, or plan anew with these."
            )


def _once(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """The runs without those listed before; two that differ cannot share a folder."""
    kept: dict[Path, ListedRun] = {}
    for run in runs:
        other = kept.setdefault(run.out, run)
        if other.arguments() != run.arguments():
            raise ConfigurationError(
                f"{run.place}: writes to {run.out}, as another run does ({other.place}). Give each its own."
            )
    return list(kept.values())
