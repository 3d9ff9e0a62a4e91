"""Recorders of the torch calls of a method, each with its line in the method's file."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from typing_extensions import override

from fedrec.errors import FederationError

_READS_VALUES = (
    "item",
    "tolist",
    "numpy",
    "__bool__",
    "__float__",
    "__int__",
    "__index__",
    "__complex__",
    "__array__",
    "__contains__",
    "equal",
    "allclose",
    "is_nonzero",
)
_BYPASSES_AUTOGRAD = ("data", "detach_", "requires_grad_", "set_", "resize_")
_FOREIGN_CODE = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent), contextlib.__file__)
"""Folders and files whose code belongs to no method."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a method's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


@dataclass(frozen=True)
class TorchCall:
    """A torch call: its arguments, and copies of its results."""

    name: str
    source_line: SourceLine | None
    arguments: Sequence[Any]
    """The tensors and numbers among the arguments."""
    results: Sequence[Tensor]


def unrecorded() -> AbstractContextManager[None]:
    """Context in which no recorder receives torch calls."""
    return torch._C.DisableTorchFunction()


class TorchCallRecorder(TorchFunctionMode):
    """Records every torch call, and refuses calls that a loss may not make with a client's tensors.

    A client's tensors are the `leaves` and all tensors computed from them.
    """

    def __init__(self, leaves: Callable[[], Iterable[Tensor]]) -> None:
        super().__init__()
        self.calls: list[TorchCall] = []
        self.hooks = False
        """Whether a hook changes gradients in the backward pass."""
        self.backward = False
        """Whether the backward pass runs; then every tensor belongs to a client."""
        self._leaves = leaves
        self._followed: dict[int, Tensor] = {}
        """Tensors computed from the leaves, by `id`; kept alive so that no other tensor gets their `id`."""

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name, given = _name_of(func), list(_parts((args, kwargs or {})))
        followed = self.backward or any(map(self._is_followed, given))
        self.hooks |= name == "register_hook"
        if followed and name in _READS_VALUES:
            raise FederationError(
                f"a value is read into Python ({name.strip('_')}), where it belongs to one client alone. "
                "Compute with tensors: torch.where(condition, a, b) in the place of `if`"
            )
        if followed and name in _BYPASSES_AUTOGRAD:
            raise FederationError(
                f"{name} changes the path of gradients without torch's knowledge. Use detach() and "
                "torch.no_grad()"
            )
        versions = [(leaf, leaf._version) for leaf in self._leaves()]
        gave = func(*args, **(kwargs or {}))
        if any(leaf._version != before for leaf, before in versions):
            raise FederationError(
                f"{name} changes in place a value that engines read again: a parameter, a row of a table or "
                "a label. Compute a new tensor, as a = a + b does"
            )
        self._record(name, given, [part for part in _parts(gave) if isinstance(part, Tensor)], followed)
        return gave

    @contextmanager
    def as_one_call(self, name: str, given: Tensor) -> Iterator[list[Tensor]]:
        """Note a sum over samples as one call, and nothing of how it is computed here."""
        result: list[Tensor] = []
        with unrecorded():
            yield result
            self._record(name, [given], result, followed=True)

    def _record(self, name: str, given: list[Any], gave: list[Tensor], followed: bool) -> None:
        if followed:
            self._followed |= {id(one): one for one in gave}
        # Tensors inside torch.vmap have no values of their own.
        plain = [one for one in gave if not torch._C._functorch.is_functorch_wrapped_tensor(one)]
        copies = [one.detach().clone() for one in plain]
        if copies:
            self.calls.append(TorchCall(name, current_line(), given, copies))

    def _is_followed(self, part: object) -> bool:
        if not isinstance(part, Tensor):
            return False
        return (
            part.requires_grad or id(part) in self._followed or any(part is leaf for leaf in self._leaves())
        )


class CallTrace(TorchFunctionMode):
    """Records only the names and lines of torch calls, which is quick."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, SourceLine | None]] = []

    @override
    def __torch_function__(
        self,
        func: Callable[..., Any],
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        self.calls.append((_name_of(func), current_line()))
        return func(*args, **(kwargs or {}))

    @contextmanager
    def as_one_call(self, name: str, _given: Tensor) -> Iterator[list[Tensor]]:
        """Note a sum over samples as one call, and nothing of how it is computed here."""
        self.calls.append((name, current_line()))
        with unrecorded():
            yield []


class RefusedDraws(TorchDispatchMode):
    """Refuses operators that draw random numbers, before they run."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Keep torch from loading its compiler, which takes seconds, in order to skip this mode."""
        return False

    @override
    def __torch_dispatch__(
        self,
        func: Any,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise FederationError(
                f"random numbers are drawn ({func.overloadpacket.__name__.strip('_')}), which would differ "
                "between runs and between engines. A method may compute only with parameters and samples: "
                "draw nothing"
            )
        return func(*args, **(kwargs or {}))


def current_line() -> SourceLine | None:
    """The innermost line of a method's file on the call stack."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != ENTRY:
        if _is_method_file(frame.f_code.co_filename):
            return SourceLine(frame.f_code.co_filename, frame.f_lineno)
        frame = frame.f_back
    return None


def line_of_error() -> SourceLine | None:
    """The innermost line of a method's file in the traceback of the current error."""
    found = None
    for frame, line in traceback.walk_tb(sys.exc_info()[2]):
        if frame.f_code.co_name == ENTRY:
            found = None
        elif _is_method_file(frame.f_code.co_filename):
            found = SourceLine(frame.f_code.co_filename, line)
    return found


ENTRY = "call_of_method"
"""Name of the function that calls methods; frames outside it belong to no method."""


@cache
def _is_method_file(file: str) -> bool:
    return not file.startswith((*_FOREIGN_CODE, "<"))


def _name_of(func: Any) -> str:  # noqa: ANN401 - a function, a method, or what gets an attribute
    name: str = getattr(func, "__name__", str(func))
    return str(func.__self__.__name__) if name in ("__get__", "__set__") else name


def _parts(value: Any) -> Iterator[Any]:  # noqa: ANN401 - whatever functions are given
    """The tensors and numbers in a nested value."""
    if isinstance(value, tuple | list):
        for each in value:
            yield from _parts(each)
    elif isinstance(value, dict):
        yield from _parts(list(value.values()))
    elif isinstance(value, Tensor | int | float):
        yield value
