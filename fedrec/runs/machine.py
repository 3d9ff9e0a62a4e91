"""Limits of this process: memory and cores, by the machine, its control groups and Slurm."""

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

_SYSTEM = Path("/")
_MIB = 2**20
_UNLIMITED = 2**60
"""Values from here on mean no limit in control groups of version 1."""


def memory_limit(
    root: Path = _SYSTEM, environment: Mapping[str, str] = os.environ, physical: int | None = None
) -> tuple[int, str]:
    """The lowest memory limit of this process in bytes, and its origin as text."""
    physical_bytes = (
        os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if physical is None else physical
    )
    limits = [(physical_bytes, "the machine's memory")]
    limits += [(limit, "its control group") for limit in _group_memory(root)]
    slurm = _slurm_memory(environment)
    return min([*limits, (slurm, "Slurm")] if slurm else limits)


def usable_cores(root: Path = _SYSTEM) -> int:
    """The number of cores for this process, by its affinity and the quota of its control groups."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([available, *(math.ceil(quota) for quota in _group_cores(root))]))


def _group_memory(root: Path) -> Iterator[int]:
    for folder in _groups(root, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            text = _text(folder / name)
            if text.isdecimal() and int(text) < _UNLIMITED:
                yield int(text)


def _group_cores(root: Path) -> Iterator[float]:
    for folder in _groups(root, "cpu"):
        quota, _, period = _text(folder / "cpu.max").partition(" ")
        if not quota:
            quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            yield int(quota) / int(period)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of this process's control groups and all their parents: each may set a limit."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, names, path = (*line.split(":", 2), "", "")[:3]
        if names and controller not in names.split(","):
            continue
        mounted = root / "sys/fs/cgroup" / (controller if names else "")
        group = Path(path.lstrip("/"))
        # In a container the path may be the host's and not exist here: then only the top folder counts.
        yield from (mounted / above for above in (group, *group.parents))


def _slurm_memory(environment: Mapping[str, str]) -> int:
    """Memory that Slurm grants the job on this node, in bytes; 0 without a limit."""
    node, core = (environment.get(f"SLURM_MEM_PER_{what}", "") for what in ("NODE", "CPU"))
    cores = environment.get("SLURM_CPUS_ON_NODE", "1")
    if node.isdecimal():
        return int(node) * _MIB
    return int(core) * int(cores) * _MIB if core.isdecimal() and cores.isdecimal() else 0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        # The group or the controller does not exist here.
        return ""
