"""When two losses are the same one: the same code over the same values."""

from collections.abc import Callable
from functools import partial
from types import FunctionType, MethodType
from typing import Any

_PLAIN = (bool, int, float, str, bytes, type(None))


def key_of(value: Any) -> Any:  # noqa: ANN401 - whatever a function closes over
    """A key that is equal for two functions only if they compute the same.

    A local round writes its losses anew in every round: functions of the same code, over the same method and
    the same numbers, are the same loss. What is neither plain nor a function counts by what it is, not how it
    looks.
    """
    if isinstance(value, _PLAIN):
        return (type(value).__name__, value)
    if isinstance(value, tuple | list):
        return tuple(map(key_of, value))
    if isinstance(value, MethodType):
        return ("method", key_of(value.__func__), _object_key(value.__self__))
    if isinstance(value, FunctionType):
        return ("function", id(value.__code__), *map(key_of, _closed_over(value)))
    if isinstance(value, partial):
        return ("partial", key_of(value.func), key_of(value.args), key_of(sorted(value.keywords.items())))
    return _object_key(value)


def _closed_over(function: Callable[..., Any]) -> list[Any]:
    assert isinstance(function, FunctionType)
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*cells, *defaults]


def _object_key(value: object) -> Any:  # noqa: ANN401 - see above
    """An object by its identity and its plain attributes, which may change."""
    plain = sorted(
        (name, each) for name, each in getattr(value, "__dict__", {}).items() if isinstance(each, _PLAIN)
    )
    return ("object", id(value), tuple((name, repr(each)) for name, each in plain))
