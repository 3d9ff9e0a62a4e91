"""Run a script that was written for older packages: `python older_packages.py SCRIPT ARGUMENTS`.

It restores functions that Python and numpy have removed: sampling from sets, which become tuples first, and
`numpy.in1d`. If packages that only decorate a log are not installed, their functions do nothing. Without a
GPU, moving to a GPU does nothing. Nothing else about the script changes.
"""

import importlib.util
import random
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")
_DECORATIONS = ("tensorboardX", "coloredlogs")


class _Silent(types.ModuleType):
    """A package whose every function does nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name.startswith("__"):
            raise AttributeError(name)
        return _nothing


def _nothing(*_: object, **__: object) -> None:
    return None


def _stay(value: T, *_: object, **__: object) -> T:
    return value


def restore() -> None:
    """Restore the removed functions in this process."""
    sample = random.sample

    def of_sets_too(population: Sequence[T] | set[T], k: int) -> list[T]:
        """`random.sample` as up to Python 3.10, at the same cost."""
        return sample(tuple(population) if isinstance(population, set) else population, k)

    vars(random)["sample"] = of_sets_too
    if not hasattr(np, "in1d"):
        vars(np)["in1d"] = np.isin
    for name in _DECORATIONS:
        if importlib.util.find_spec(name) is None:
            sys.modules[name] = _Silent(name)
    if not torch.cuda.is_available():
        vars(torch.cuda)["set_device"] = _nothing
        for kind in (torch.Tensor, torch.nn.Module):
            type.__setattr__(kind, "cuda", _stay)


def main(words: Sequence[str]) -> None:
    """Run the script named by the first argument with the other arguments."""
    script = Path(words[0]).resolve()
    restore()
    sys.argv = [str(script), *words[1:]]
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
