"""The numbers in the closure of a loss, which its compiled kernel receives as arguments."""

from collections.abc import Iterator, Sequence
from types import CellType, FunctionType
from typing import Any


def numbers_of(function: Any) -> list[float]:  # noqa: ANN401 - whatever a function closes over
    """The numbers in the closure of a function and of the functions in its closure, in a fixed order.

    The list is empty for a function that closes over itself, since `with_numbers` cannot copy it.
    """
    return [] if is_cyclic(function) else list(_numbers(function))


def with_numbers(function: Any, values: Sequence[Any]) -> Any:  # noqa: ANN401 - see above
    """A copy of the function that closes over `values` instead of `numbers_of(function)`."""
    return _replaced(function, iter(values)) if values else function


def is_cyclic(function: Any, active: tuple[Any, ...] = ()) -> bool:  # noqa: ANN401 - see above
    """Whether a function, or a function in its closure, closes over itself."""
    if not isinstance(function, FunctionType) or not function.__closure__:
        return False
    return function in active or any(is_cyclic(cell, (*active, function)) for cell in cells_of(function))


def cells_of(function: FunctionType) -> list[Any]:
    """The values in a function's closure; None for a name without a value yet."""
    return [content_of_cell(cell) for cell in function.__closure__ or ()]


def _numbers(function: Any) -> Iterator[float]:  # noqa: ANN401 - see above
    if isinstance(function, FunctionType):
        for cell in cells_of(function):
            if type(cell) is float:
                yield cell
            else:
                yield from _numbers(cell)


def _replaced(value: Any, following: Iterator[Any]) -> Any:  # noqa: ANN401 - see above
    if type(value) is float:
        return next(following)
    if not isinstance(value, FunctionType) or not value.__closure__:
        return value
    cells = tuple(CellType(_replaced(cell, following)) for cell in cells_of(value))
    made = FunctionType(value.__code__, value.__globals__, value.__name__, value.__defaults__, cells)
    made.__kwdefaults__ = value.__kwdefaults__
    made.__dict__.update(value.__dict__)
    return made


def content_of_cell(cell: CellType) -> Any:  # noqa: ANN401 - see above
    """The content of a closure cell; None if its name has no value yet."""
    try:
        return cell.cell_contents
    except ValueError:
        return None
