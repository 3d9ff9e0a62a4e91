"""Limits of memory and cores as control groups and Slurm state them."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from fedrec.errors import ConfigurationError
from fedrec.runs import device
from fedrec.runs.device import device_named, limit_torch_threads, memory_for_clients, raise_malloc_thresholds
from fedrec.runs.machine import memory_limit, usable_cores

GIB = 2**30
CPU = torch.device("cpu")


def system(root, **files):
    """A made `/proc` and `/sys`; in names `__` stands for `/`."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("DOT", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (64 * GIB, "the machine's memory")),
        ({"proc__self__cgroup": "0::/"}, (64 * GIB, "the machine's memory")),
        (
            {"proc__self__cgroup": "0::/a/b", "sys__fs__cgroup__a__b__memoryDOTmax": "max"},
            (64 * GIB, "the machine's memory"),
        ),
        (
            {
                "proc__self__cgroup": "0::/a/b",
                "sys__fs__cgroup__a__b__memoryDOTmax": "max",
                "sys__fs__cgroup__a__memoryDOTmax": str(3 * GIB),
            },
            (3 * GIB, "its control group"),
        ),
        (
            {
                "proc__self__cgroup": "4:memory:/host/path\n3:cpu,cpuacct:/x",
                "sys__fs__cgroup__memory__memoryDOTlimit_in_bytes": str(5 * GIB),
            },
            (5 * GIB, "its control group"),
        ),
        (
            {
                "proc__self__cgroup": "4:memory:/",
                "sys__fs__cgroup__memory__memoryDOTlimit_in_bytes": "9223372036854771712",
            },
            (64 * GIB, "the machine's memory"),
        ),
    ],
)
def test_memory_is_limited_by_control_groups(tmp_path, files, expected):
    assert memory_limit(system(tmp_path, **files), {}, 64 * GIB) == expected


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SLURM_MEM_PER_NODE": "4000"}, 4000 * 2**20),
        ({"SLURM_MEM_PER_CPU": "500", "SLURM_CPUS_ON_NODE": "4"}, 2000 * 2**20),
        ({"SLURM_MEM_PER_NODE": "0"}, 64 * GIB),
        ({"SLURM_MEM_PER_NODE": "some"}, 64 * GIB),
    ],
)
def test_memory_is_limited_by_slurm(tmp_path, environment, expected):
    assert memory_limit(tmp_path, environment, 64 * GIB)[0] == expected


@pytest.mark.parametrize(
    ("files", "most"),
    [
        ({"proc__self__cgroup": "0::/a", "sys__fs__cgroup__a__cpuDOTmax": "150000 100000"}, 2),
        ({"proc__self__cgroup": "0::/a", "sys__fs__cgroup__a__cpuDOTmax": "20000 100000"}, 1),
        ({"proc__self__cgroup": "0::/a", "sys__fs__cgroup__a__cpuDOTmax": "max 100000"}, 10**6),
        (
            {
                "proc__self__cgroup": "4:cpu,cpuacct:/",
                "sys__fs__cgroup__cpu__cpuDOTcfs_quota_us": "100000",
                "sys__fs__cgroup__cpu__cpuDOTcfs_period_us": "100000",
            },
            1,
        ),
        (
            {
                "proc__self__cgroup": "4:cpu,cpuacct:/",
                "sys__fs__cgroup__cpu__cpuDOTcfs_quota_us": "-1",
                "sys__fs__cgroup__cpu__cpuDOTcfs_period_us": "100000",
            },
            10**6,
        ),
    ],
)
def test_cores_are_limited_by_affinity_and_quota(tmp_path, files, most):
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert usable_cores(system(tmp_path, **files)) == min(own, most)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library keeps what it likes")
def test_freed_memory_is_kept_unless_the_environment_has_thresholds():
    """Bytes that glibc holds and nobody uses, after 200 MB were freed: 0 where it gives them back at once."""
    asked = (
        "import ctypes; from fedrec.runs.device import raise_malloc_thresholds, release_memory; import torch;"
        "raise_malloc_thresholds(); held = lambda: int(open('/proc/self/statm').read().split()[1]) * 4096;"
        "before = held(); torch.ones(50_000_000); kept = held() - before; release_memory(torch.device('cpu'));"
        "print(kept > 150e6, held() - before > 150e6)"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    for more, printed in (({}, "True False"), ({"MALLOC_TRIM_THRESHOLD_": "131072"}, "False False")):
        told = subprocess.check_output([sys.executable, "-c", asked], env=own | more, text=True)
        assert told.strip() == printed


def test_no_other_c_library_is_asked_to_keep_memory(monkeypatch):
    monkeypatch.setattr(device.platform, "libc_ver", lambda: ("", ""))
    monkeypatch.setattr(device.ctypes, "CDLL", None)
    raise_malloc_thresholds()


def test_threads_are_no_more_than_cores_unless_set_otherwise(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch, "set_num_threads", chosen.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(device, "usable_cores", lambda: 3)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    limit_torch_threads()
    assert chosen == []
    monkeypatch.delenv("OMP_NUM_THREADS")
    limit_torch_threads()
    assert chosen == [3]


@pytest.mark.parametrize(
    ("limit", "together", "alone", "decided_by"),
    [
        (64 * GIB, 2 * GIB, 48 * GIB, "the default"),
        (4000 * 2**20, 2 * GIB, 3000 * 2**20, "the default"),
        (2 * GIB, 3 * GIB // 2, 3 * GIB // 2, "three quarters of the limit by its control group"),
    ],
)
def test_clients_get_a_fixed_amount_that_the_machine_allows(monkeypatch, limit, together, alone, decided_by):
    monkeypatch.setattr(device, "memory_limit", lambda: (limit, "its control group"))
    found = memory_for_clients(CPU, None)
    assert (found.together, found.alone, found.decided_by) == (together, alone, decided_by)
    assert found.as_dict() == {"bytes": together, "decided_by": decided_by}


def test_what_is_requested_is_given(monkeypatch):
    monkeypatch.setattr(device, "memory_limit", lambda: (GIB, "its control group"))
    found = memory_for_clients(CPU, 1.5)
    assert (found.together, found.alone, found.decided_by) == (3 * GIB // 2, 3 * GIB // 2, "--memory")


@pytest.mark.parametrize("gib", [float("nan"), float("inf"), 0.0, -3.0, 1e-12])
def test_no_amount_of_memory_is_refused(gib):
    with pytest.raises(
        ConfigurationError, match=r"--memory .*: give a number of GiB above 0, for example 0\.5\."
    ):
        memory_for_clients(CPU, gib)


@pytest.mark.parametrize(("name", "nearest"), [("gpu", "cuda"), ("cud", "cuda"), ("cpuu", "cpu")])
def test_an_unknown_device_is_refused_with_the_nearest(name, nearest):
    with pytest.raises(ConfigurationError, match=rf"unknown device '{name}'. Did you mean '{nearest}'\?"):
        device_named(name)
