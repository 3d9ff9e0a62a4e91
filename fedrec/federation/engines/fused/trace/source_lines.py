"""The line of a method or plug-in that an operator comes from.

The module reads the stack of Python, or torch's number of a derivative. It gives `file:line` to the recorder.
"""

import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

_FOREIGN = (*(f"{folder}/" for folder in (Path(torch.__file__).parent, Path(__file__).parents[3])), "<")
"""The beginnings of paths without lines of a method: torch, the federation of fedrec, and generated code."""


class SourceLines:
    """The lines of a loss while torch runs it forward and backward."""

    def __init__(self, loss: Callable[..., Any]) -> None:
        self._loss = loss
        self._forward: dict[int, str] = {}
        """The line of a forward operator, by torch's number of its derivative."""

    def now(self) -> str:
        """The line that called the current operator, as `file:line`.

        An operator of a derivative has the line of the forward operator.
        """
        node: Any = torch._C._current_autograd_node()
        if node is not None:
            # Only this number links a derivative to its forward operator.
            return self._forward.get(node._sequence_nr(), self._first)
        line = self._line(_frames(sys._getframe()))
        # Torch numbers the operator's derivative before it performs the operator.
        self._forward.setdefault(torch._C._autograd._get_sequence_nr() - 1, line)
        return line

    def of_error(self) -> str:
        """The line that raised the current error."""
        return self._line(reversed(list(traceback.walk_tb(sys.exc_info()[2]))))

    def _line(self, innermost_first: "Iterator[tuple[FrameType, int]]") -> str:
        for frame, line in innermost_first:
            if not frame.f_code.co_filename.startswith(_FOREIGN):
                return f"{Path(frame.f_code.co_filename).name}:{line}"
            if frame.f_code.co_name == "under" and frame.f_code.co_filename.endswith("loss_graph.py"):
                break
        return self._first

    @property
    def _first(self) -> str:
        """The line on which the loss begins."""
        code: CodeType | None = getattr(self._loss, "__code__", None)
        return f"{Path(code.co_filename).name}:{code.co_firstlineno}" if code else "its loss"


def _frames(frame: FrameType | None) -> "Iterator[tuple[FrameType, int]]":
    while frame is not None:
        yield frame, frame.f_lineno
        frame = frame.f_back
