"""Share a GPU between processes by NVIDIA's Multi-Process Service (MPS).

Without MPS the GPU runs the processes in time slices, one after the other. Runs of small federations use only
a part of a GPU, and would then take as long together as one by one.
"""

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

SHARED = "FEDREC_GPU_IS_SHARED"
"""The environment variable of processes that share GPUs by this module."""
_CONTROL = "nvidia-cuda-mps-control"
_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
_SECONDS_TO_END = 20.0
_SECONDS_TO_TRY = 60.0
_READY = "ready"
_BLOCKING = 4
"""CU_CTX_SCHED_BLOCKING_SYNC of the CUDA driver."""

# This shell ends the service when its input closes: also if the process that started it is killed.
_SUPERVISOR = f"""
{_CONTROL} -d </dev/null >"$CUDA_MPS_LOG_DIRECTORY/started" 2>&1 || {{ rm -rf "${_PIPE}"; exit 1; }}
echo {_READY}
cat >/dev/null
echo quit | {_CONTROL} >/dev/null 2>&1
rm -rf "${_PIPE}"
"""

# MPS may start although its server cannot: only a trial shows whether a program reaches the GPU.
_TRIAL = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
raise SystemExit(driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
"""


@contextmanager
def shared_gpus(processes: int, environment: Mapping[str, str] = os.environ) -> Iterator[dict[str, str]]:
    """Start MPS for the duration of the context, and yield the environment variables of its clients.

    The variables are empty for a single process, if MPS is running or not installed, and, with a warning, if
    it does not work. A fatal error of one process may also end the others on the same GPU.
    """
    if processes == 1 or _PIPE in environment or shutil.which(_CONTROL, path=environment.get("PATH")) is None:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="fedrec-gpu-")
    variables = {_PIPE: folder, "CUDA_MPS_LOG_DIRECTORY": folder, SHARED: "1"}
    supervisor = subprocess.Popen(
        ["/bin/sh", "-c", _SUPERVISOR],
        env={**environment, **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield variables if _works(supervisor, {**environment, **variables}) else {}
    finally:
        # MPS ends after its last client, also without this process.
        with suppress(subprocess.TimeoutExpired):
            supervisor.communicate(timeout=_SECONDS_TO_END)


def _works(supervisor: "subprocess.Popen[str]", environment: Mapping[str, str]) -> bool:
    """Whether a process reaches a GPU through MPS."""
    started = supervisor.stdout is not None and supervisor.stdout.readline().strip() == _READY
    if started and _reaches_gpu(environment):
        return True
    print(
        f"fedrec: {_CONTROL} is installed but does not work, so runs take turns on the GPU. Start it "
        f"yourself, or set {_PIPE} to silence this warning.",
        file=sys.stderr,
    )
    return False


def _reaches_gpu(environment: Mapping[str, str]) -> bool:
    try:
        trial = subprocess.run(
            [sys.executable, "-c", _TRIAL],
            env=dict(environment),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS_TO_TRY,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return trial.returncode == 0


def use_blocking_sync() -> None:
    """Make a process that shares GPUs sleep while it waits for one; call this before it uses a GPU.

    By default CUDA waits in a busy loop, which occupies a core that other runs need.
    """
    if SHARED not in os.environ:
        return
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    for number in range(0 if failed else count.value):
        driver.cuDevicePrimaryCtxSetFlags_v2(number, _BLOCKING)
