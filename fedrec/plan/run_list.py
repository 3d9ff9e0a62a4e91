"""A run list: a file of runs to train on a machine without the workflow, one JSON object per line.

The keys are the options of `fedrec train`, the fingerprint `code`, and the estimate `seconds`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.config.document import error_at
from fedrec.config.methods import Methods, resolve
from fedrec.config.protocol import full_name
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.fingerprint import PREFERRED_ENGINE
from fedrec.plan.run_matching import RunSpec
from fedrec.plan.runs import KEPT, NEVER
from fedrec.plan.train_request import OPTIONS, REQUIRED, Option, TrainRequest, is_number, is_text

RUN_LIST_FILE = "plan/runs.jsonl"
"""Below the results: the runs that the workflow was last started for."""
_KEYS: Mapping[str, Option] = {
    **{key: option for key, (_, option) in OPTIONS.items()},
    "seconds": Option("a number from 0", is_number),
    "code": Option("a text", is_text),
}
"""The keys that a line may have."""


@dataclass(frozen=True)
class ListedRun:
    """One run of a list."""

    origin: str
    """File and line, for messages."""
    request: TrainRequest
    code: str | None = None
    """The fingerprint of the code that planned the run; None if the list has none."""
    seconds: float = 1.0
    """Estimated time, relative to other runs."""
    protocol: Mapping[str, Any] | None = None
    """Every setting of its protocol; None for a run read from a list: then the split states them."""

    @property
    def out(self) -> Path:
        """The folder it is written to."""
        return self.request.out

    @property
    def kind(self) -> str:
        """A text that is equal for runs of the same dataset, method, paper and changed settings."""
        request = self.request
        return json.dumps([str(request.data), request.method, request.paper, request.changes])

    def as_line(self) -> dict[str, Any]:
        """The content of its line."""
        code = {} if self.code is None else {"code": self.code}
        return {**self.request.as_line(), **code, "seconds": round(self.seconds, 1)}


def list_text(runs: Iterable[ListedRun]) -> str:
    """The content of the run list."""
    return "".join(json.dumps(run.as_line(), ensure_ascii=False) + "\n" for run in runs)


def read_list(path: Path, methods: Methods) -> list[ListedRun]:
    """Read the runs of a list that are to be trained here, each once.

    `ConfigurationError` names a line that is not a run, has an unknown method or setting, shares its folder
    with another run, or was planned with other code.
    """
    runs = listed_runs(path, methods)
    _check_code(runs)
    return runs


def listed_runs(path: Path, methods: Methods) -> list[ListedRun]:
    """Read the runs of a list, planned with any code."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path}: no such file. Write one with: fedrec plan TARGET > {path}"
        ) from None
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path}: is not a run list, which is a text file. Write one with: fedrec plan TARGET > "
            "runs.jsonl"
        ) from None
    lines = [(f"{path}, line {number}", line) for number, line in enumerate(text.splitlines(), start=1)]
    return _once(_read_line(origin, line, methods) for origin, line in lines if line.strip())


def spec_of(run: ListedRun, methods: Methods, *, needs_model: bool) -> RunSpec:
    """The specification that a finished run in the folder of a listed run must match."""
    request = run.request
    settings, _, paper = resolve(methods, request.method, request.paper, request.dataset, request.changes)
    return RunSpec(
        folder=run.out,
        method=request.method,
        paper=paper,
        seed=request.seed,
        settings=settings,
        records=request.records,
        split=request.data / full_name(request.protocol, paper) / "split.parquet",
        may_diverge=request.diverged == KEPT,
        protocol=run.protocol,
        model=request.model_policy if needs_model else NEVER,
    )


def _read_line(origin: str, text: str, methods: Methods) -> ListedRun:
    line = _checked(origin, text)
    with error_at(origin):
        request = TrainRequest.from_line(line).with_full_name(methods)
        resolve(methods, request.method, request.paper, request.dataset, request.changes)
    return ListedRun(origin, request, line.get("code"), float(line.get("seconds", 1.0)))


def _checked(origin: str, text: str) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(
            f"{origin}: not valid JSON ({error}). Write one run per line: {{...}}."
        ) from None
    if not isinstance(line, dict):
        raise ConfigurationError(f'{origin}: write a run as {{"data": ..., "method": ..., ...}}.')
    for key, value in line.items():
        if key not in _KEYS:
            raise ConfigurationError(
                f"{origin}: unknown key '{key}'.{did_you_mean(key, _KEYS)} Known keys: {', '.join(_KEYS)}."
            )
        if not _KEYS[key].fits(value):
            raise ConfigurationError(f"{origin}, {key}: {json.dumps(value)} is not {_KEYS[key].words}.")
    missing = [key for key in REQUIRED if key not in line]
    if missing:
        raise ConfigurationError(
            f"{origin}: '{missing[0]}' is missing. Every run needs {', '.join(REQUIRED)}."
        )
    return line


def _check_code(runs: Sequence[ListedRun]) -> None:
    """Refuse runs of other code: the machine that planned them would train them again."""
    matcher = CodeMatcher()
    for run in runs:
        method = run.request.method
        if run.code is not None and not matcher.is_current(run.code, method, PREFERRED_ENGINE):
            raise ConfigurationError(
                f"{run.origin}: planned with other code of {method} than here, so the machine that planned "
                "it would not accept the run. Use the same sources on both machines, or plan again with "
                "these."
            )


def _once(runs: Iterable[ListedRun]) -> list[ListedRun]:
    """The runs without repetitions; two different runs must not share a folder."""
    by_folder: dict[Path, ListedRun] = {}
    for run in runs:
        other = by_folder.setdefault(run.out, run)
        if other.request != run.request:
            raise ConfigurationError(
                f"{run.origin}: writes to {run.out}, and so does another run ({other.origin}). Give each "
                "run its own folder."
            )
    return list(by_folder.values())
