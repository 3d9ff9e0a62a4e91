"""The machine of a run: its device, how much of its memory clients may fill, and what was measured on it."""

import ctypes
import math
import os
import platform
import resource
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from fedrec import __version__
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.runs.machine import memory_limit, usable_cores

DEVICES = ("auto", "cpu", "cuda")
_DEFAULT = 2 * 2**30
"""Bytes for clients that train at once on a CPU."""
_SHARE_OF_DEVICE = 8
_PEAK, _FORGET = Path("/proc/self/clear_refs"), "5"
"""What Linux takes for: forget how much memory this process once had."""
_TRIM, _MMAP = -1, -3
"""What glibc's `mallopt` calls M_TRIM_THRESHOLD and M_MMAP_THRESHOLD."""
_THRESHOLD = 2**30
_MALLOC_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_USABLE = 0.75
"""The share of all memory that clients may take at most: the rest is for tables, data and torch itself."""


def device_named(name: str, place: int | None = None) -> torch.device:
    """The CPU, or of several GPUs the one with the most free memory: runs spread over them.

    Of the processes that train one run here, each has its `place`, and takes the GPUs in turn.
    """
    if name not in DEVICES:
        hint = " Did you mean 'cuda'?" if name == "gpu" else did_you_mean(name, DEVICES)
        raise ConfigurationError(
            f"--device: unknown device '{name}'.{hint} Known devices: {', '.join(DEVICES)}."
        )
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigurationError("--device cuda: torch finds no GPU. Use --device cpu or auto.")
    if place is not None:
        return torch.device("cuda", place % torch.cuda.device_count())
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return torch.device("cuda", free.index(max(free)))


def gpus() -> int:
    """How many GPUs torch finds here."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@dataclass(frozen=True)
class ClientMemory:
    """Bytes for clients in training.

    How many clients train at once decides the last bits of sums, so it follows from nothing that changes
    from one moment to the next.
    """

    together: int
    """What clients that train at once may take."""
    alone: int
    """What one client may take that needs more than that."""
    decided_by: str

    def as_dict(self) -> dict[str, Any]:
        """What `run.json` says of it."""
        return {"bytes": self.together, "decided_by": self.decided_by}


def memory_for_clients(device: torch.device, gib: float | None) -> ClientMemory:
    """What is asked for, or a fixed amount that the machine, its control group and Slurm allow."""
    if gib is not None:
        asked = _bytes_of(gib)
        return ClientMemory(asked, asked, "--memory")
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return ClientMemory(total // _SHARE_OF_DEVICE, int(total * _USABLE), "an eighth of the GPU's memory")
    total, whose = memory_limit()
    allowed = int(total * _USABLE)
    if allowed < _DEFAULT:
        return ClientMemory(allowed, allowed, f"three quarters of the limit by {whose}")
    return ClientMemory(_DEFAULT, allowed, "the default")


def _bytes_of(gib: float) -> int:
    if not math.isfinite(gib) or gib * 2**30 < 1:
        raise ConfigurationError(f"--memory {gib:g}: give a number of GiB above 0, for example 0.5.")
    return int(gib * 2**30)


def use_own_cores() -> None:
    """Let torch use no more threads than this process has cores, unless OMP_NUM_THREADS says otherwise."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))


def keep_freed_memory() -> None:
    """Let glibc keep what temporaries free, up to 1 GiB: the system would clear the same pages every round.

    Nothing changes where the C library is another, or where the environment sets its thresholds.
    """
    if platform.libc_ver()[0] == "glibc" and not any(name in os.environ for name in _MALLOC_VARIABLES):
        library = ctypes.CDLL(None)
        for option in (_MMAP, _TRIM):
            library.mallopt(option, _THRESHOLD)


def measured_of(timing: Sequence[Mapping[str, float]], device: torch.device) -> dict[str, Any]:
    """What `run.json` says of the machine: seconds, memory, device and versions; they decide no result."""
    seconds = [row["local_seconds"] + row["server_seconds"] for row in timing]
    # From the round on in which a run diverged its rounds take no time at all.
    trained = [second for second in seconds if second > 0] or [0.0]
    return {
        "seconds": sum(seconds),
        "seconds_per_round": float(np.median(trained)),
        "peak_memory_bytes": peak_memory(device),
        "device": device_name(device),
        "versions": {
            "fedrec": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
    }


def forget_peak_memory(device: torch.device) -> None:
    """Let the peak of memory be measured from here on: a process may train one run after another."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        # Where the system does not know this, it measures from the start of the process.
        with suppress(OSError):
            _PEAK.write_text(_FORGET, encoding="ascii")


def release_memory(device: torch.device) -> None:
    """Give what a run held of memory back to other processes: of a GPU's, and what glibc kept."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory(device: torch.device) -> int:
    """The most bytes this process held since `forget_peak_memory`: on the device, or on a CPU all of them."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def device_name(device: torch.device) -> str:
    """A device as results name it."""
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
    )
