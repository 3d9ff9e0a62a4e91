"""The core of a test's cases: `make test` runs it, and `make test-all` also the cases that reach nothing else."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def core_and(core: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
    """Cases as parameters of a test: `make test` runs those of `core`."""
    return [*core, *(_rest(case) for case in rest)]


def first_to_reach(cases: Iterable[Any], reached: Callable[[Any], Iterable[object]]) -> list[Any]:
    """Cases as parameters of a test: those that reach something which none before them does are the core."""
    seen: set[object] = set()
    parameters = []
    for case in cases:
        new = set(reached(case)) - seen
        seen |= new
        parameters.append(case if new else _rest(case))
    return parameters


def _rest(case: Any) -> Any:
    return pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.matrix)
