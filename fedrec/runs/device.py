"""The machine of a run: its device, how much of its memory clients may fill, and what was measured on it."""

import os
import platform
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from fedrec import __version__
from fedrec.errors import ConfigurationError


def device_named(name: str) -> torch.device:
    """The CPU, or of several GPUs the one with the most free memory: runs spread over them."""
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigurationError("--device cuda: torch finds no GPU here. Use --device cpu, or auto.")
    free = [torch.cuda.mem_get_info(number)[0] for number in range(torch.cuda.device_count())]
    return torch.device("cuda", free.index(max(free)))


def memory_for_clients(device: torch.device, gib: float | None) -> int:
    """Bytes for clients in training: what is asked for, or half of what is free."""
    if gib is not None:
        return int(gib * 2**30)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] // 2
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES") // 2


def measured_of(timing: Sequence[Mapping[str, float]], device: torch.device) -> dict[str, Any]:
    """What `run.json` says of the machine: seconds, memory, device and versions; they decide no result."""
    seconds = [row["local_seconds"] + row["server_seconds"] for row in timing]
    return {
        "seconds": sum(seconds),
        "seconds_per_round": float(np.median(seconds)),
        "peak_memory_bytes": _peak_memory(device),
        "device": _device_name(device),
        "versions": {
            "fedrec": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "pyarrow": pa.__version__,
        },
    }


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    # Linux counts in KiB, macOS in bytes.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _device_name(device: torch.device) -> str:
    return (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"cpu ({torch.get_num_threads()} threads)"
    )
