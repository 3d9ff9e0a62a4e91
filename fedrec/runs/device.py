"""The device of a run, the memory that its clients may use, and the measurements of the run."""

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
"""The file and the value that make Linux reset the peak memory of this process."""
_TRIM, _MMAP = -1, -3
"""M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's `mallopt`."""
_THRESHOLD = 2**30
_MALLOC_VARIABLES = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES")
_USABLE = 0.75
"""The largest share of memory for clients: the rest is for tables, data and torch itself."""


def device_named(name: str, local_rank: int | None = None) -> torch.device:
    """The CPU, or the GPU with the most free memory, so that runs spread over GPUs.

    If several processes of this machine train one run, `local_rank` selects the GPU: ranks take the GPUs in
    turn.
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
    if local_rank is not None:
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return torch.device("cuda", free.index(max(free)))


def gpus() -> int:
    """The number of GPUs that torch finds."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


@dataclass(frozen=True)
class ClientMemory:
    """Memory for clients in training, in bytes.

    It decides how many clients train at once, and that number decides the last bits of sums. So it must not
    depend on the memory that is free at the moment.
    """

    together: int
    """Bytes for all clients that train at once."""
    alone: int
    """Bytes for a single client that needs more than that."""
    decided_by: str

    def as_dict(self) -> dict[str, Any]:
        """Its entry in `run.json`."""
        return {"bytes": self.together, "decided_by": self.decided_by}


def memory_for_clients(device: torch.device, gib: float | None) -> ClientMemory:
    """The requested memory, or a fixed amount within the limits of the machine, control group and Slurm."""
    if gib is not None:
        requested = _bytes_of(gib)
        return ClientMemory(requested, requested, "--memory")
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return ClientMemory(total // _SHARE_OF_DEVICE, int(total * _USABLE), "an eighth of the GPU's memory")
    total, limited_by = memory_limit()
    allowed = int(total * _USABLE)
    if allowed < _DEFAULT:
        return ClientMemory(allowed, allowed, f"three quarters of the limit by {limited_by}")
    return ClientMemory(_DEFAULT, allowed, "the default")


def _bytes_of(gib: float) -> int:
    if not math.isfinite(gib) or gib * 2**30 < 1:
        raise ConfigurationError(f"--memory {gib:g}: give a number of GiB above 0, for example 0.5.")
    return int(gib * 2**30)


def limit_torch_threads() -> None:
    """Limit torch to as many threads as this process has cores, unless OMP_NUM_THREADS is set."""
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(min(torch.get_num_threads(), usable_cores()))


def raise_malloc_thresholds() -> None:
    """Raise glibc's thresholds, so that it reuses up to 1 GiB of freed memory for temporaries.

    Otherwise the system would clear the same pages every round. Other C libraries, and thresholds in the
    environment, stay as they are.
    """
    if platform.libc_ver()[0] == "glibc" and not any(name in os.environ for name in _MALLOC_VARIABLES):
        library = ctypes.CDLL(None)
        for option in (_MMAP, _TRIM):
            library.mallopt(option, _THRESHOLD)


def measured_of(timing: Sequence[Mapping[str, float]], device: torch.device) -> dict[str, Any]:
    """Measurements for `run.json`: seconds, memory, device and versions. They decide no result."""
    seconds = [row["local_seconds"] + row["server_seconds"] for row in timing]
    # After its divergence, the rounds of a run take no time.
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


def reset_peak_memory(device: torch.device) -> None:
    """Reset the measured peak of memory, since a process may train one run after another."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    else:
        # Other systems than Linux measure the peak since the start of the process.
        with suppress(OSError):
            _PEAK.write_text(_FORGET, encoding="ascii")


def release_memory(device: torch.device) -> None:
    """Return unused memory to the system: torch's cache on a GPU, and freed memory of glibc."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def peak_memory(device: torch.device) -> int:
    """Peak memory in bytes since `reset_peak_memory`: on the GPU, or of the whole process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def device_name(device: torch.device) -> str:
    """The name of a device in results."""
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu ({platform.machine()}, {torch.get_num_threads()} threads)"
    )
