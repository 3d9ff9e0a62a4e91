"""A folder of compiled kernels of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedrec.native import cache, compiler_process, kernel, on_cpu


def forget() -> None:
    """Let nothing be remembered of compilers, kernels and folders."""
    remembering = (
        *(cache.folder, cache._base, cache._warn, on_cpu.cpu_kernel, on_cpu.compiler, on_cpu._version),
        *(on_cpu._machine, kernel.kernel_or_none, kernel._say),
    )
    for remembered in remembering:
        remembered.cache_clear()
    compiler_process._HANGING.clear()
    cache._UNKEPT.clear()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of compiled kernels, which is not there yet, and nothing remembered from before."""
    monkeypatch.setenv(cache.CACHE, str(tmp_path / "kernels"))
    forget()
    yield tmp_path / "kernels"
    forget()
