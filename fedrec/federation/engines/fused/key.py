"""When two losses are the same one: the same code over the same values."""

from collections.abc import Iterator, Sequence
from functools import partial
from types import CellType, FunctionType, MethodType
from typing import Any

_PLAIN = (bool, int, float, str, bytes, type(None))


def key_of(value: Any, *, numbers: bool = True) -> Any:  # noqa: ANN401 - whatever a function closes over
    """A key that is equal for two functions only if they compute the same.

    Without `numbers`, those that `numbers_of` finds may differ.

    A local round writes its losses anew in every round: functions of the same code, over the same method and
    the same numbers, are the same loss. What is neither plain nor a function counts by what it is, not how it
    looks.
    """
    if type(value) is float and not numbers:
        return ("number",)
    if isinstance(value, _PLAIN):
        return (type(value).__name__, value)
    if isinstance(value, tuple | list):
        return tuple(map(key_of, value))
    if isinstance(value, MethodType):
        return ("method", key_of(value.__func__), _object_key(value.__self__))
    if isinstance(value, FunctionType):
        cells = (key_of(cell, numbers=numbers) for cell in _cells(value))
        return ("function", id(value.__code__), *cells, *map(key_of, _defaults(value)))
    if isinstance(value, partial):
        return ("partial", key_of(value.func), key_of(value.args), key_of(sorted(value.keywords.items())))
    return _object_key(value)


def numbers_of(function: Any) -> list[float]:  # noqa: ANN401 - see above
    """The numbers that a function, and functions among what it closes over, close over; in a fixed order."""
    if not isinstance(function, FunctionType):
        return []
    found: list[float] = []
    for cell in _cells(function):
        found += [cell] if type(cell) is float else numbers_of(cell)
    return found


def with_numbers(function: Any, values: Sequence[Any]) -> Any:  # noqa: ANN401 - see above
    """The function that closes over `values` in the place of `numbers_of`."""
    return _replaced(function, iter(values)) if values else function


def _replaced(value: Any, following: Iterator[Any]) -> Any:  # noqa: ANN401 - see above
    if type(value) is float:
        return next(following)
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    cells = tuple(CellType(_replaced(cell, following)) for cell in _cells(value))
    made = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    made.__kwdefaults__ = value.__kwdefaults__
    return made


def _cells(function: FunctionType) -> list[Any]:
    return [cell.cell_contents for cell in function.__closure__ or ()]


def _defaults(function: FunctionType) -> list[Any]:
    return [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]


def _object_key(value: object) -> Any:  # noqa: ANN401 - see above
    """An object by its identity and its plain attributes, which may change."""
    plain = sorted(
        (name, each) for name, each in getattr(value, "__dict__", {}).items() if isinstance(each, _PLAIN)
    )
    return ("object", id(value), tuple((name, repr(each)) for name, each in plain))
