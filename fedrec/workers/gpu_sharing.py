"""Several processes on one GPU at the same time, by the service that its driver has for that (NVIDIA's MPS).

Without it a GPU works for one process after the other, and each waits for the slices of time of all others:
runs of small federations, which leave most of a GPU idle, then take no less time together than one by one.
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
"""The variable of the environment of processes that share GPUs with others of this program."""
_CONTROL = "nvidia-cuda-mps-control"
_PIPE = "CUDA_MPS_PIPE_DIRECTORY"
_SECONDS_TO_END = 20.0
_SECONDS_TO_TRY = 60.0
_READY = "ready"
_BLOCKING = 4
"""The driver's word for waiting asleep (CU_CTX_SCHED_BLOCKING_SYNC)."""

# The shell outlives who started it: it ends the service however that ends, which closes its input.
_KEEPER = f"""
{_CONTROL} -d </dev/null >"$CUDA_MPS_LOG_DIRECTORY/started" 2>&1 || {{ rm -rf "${_PIPE}"; exit 1; }}
echo {_READY}
cat >/dev/null
echo quit | {_CONTROL} >/dev/null 2>&1
rm -rf "${_PIPE}"
"""

# A service may start where its server cannot: whether a program reaches the GPU through it, one must try.
_TRIAL = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
raise SystemExit(driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
"""


@contextmanager
def shared_gpus(processes: int, environment: Mapping[str, str] = os.environ) -> Iterator[dict[str, str]]:
    """Variables for so many processes that are to share the GPUs here, for as long as the context lasts.

    None for a single one, where sharing is arranged already, where there is no such service, or where it does
    not work, which is said. Fatal errors of one process may reach those that share a GPU with it.
    """
    if processes == 1 or _PIPE in environment or shutil.which(_CONTROL, path=environment.get("PATH")) is None:
        yield {}
        return
    folder = tempfile.mkdtemp(prefix="fedrec-gpu-")
    own = {_PIPE: folder, "CUDA_MPS_LOG_DIRECTORY": folder, SHARED: "1"}
    keeper = subprocess.Popen(
        ["/bin/sh", "-c", _KEEPER],
        env={**environment, **own},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield own if _works(keeper, {**environment, **own}) else {}
    finally:
        # A service that still has processes to serve ends after them, without us.
        with suppress(subprocess.TimeoutExpired):
            keeper.communicate(timeout=_SECONDS_TO_END)


def _works(keeper: "subprocess.Popen[str]", environment: Mapping[str, str]) -> bool:
    """Whether a process reaches a GPU through the service."""
    started = keeper.stdout is not None and keeper.stdout.readline().strip() == _READY
    if started and _is_reached(environment):
        return True
    print(
        f"fedrec: runs take turns on the GPU, because {_CONTROL} is installed but does not work. Start it "
        f"yourself, or set {_PIPE} to silence this warning.",
        file=sys.stderr,
    )
    return False


def _is_reached(environment: Mapping[str, str]) -> bool:
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


def wait_asleep() -> None:
    """Let a process that shares GPUs sleep while it waits for one; to be called before it uses any.

    By itself it would look again and again, and take a core from those that could give the GPU work.
    """
    if SHARED not in os.environ:
        return
    driver = ctypes.CDLL("libcuda.so.1")
    count = ctypes.c_int()
    failed = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    for number in range(0 if failed else count.value):
        driver.cuDevicePrimaryCtxSetFlags_v2(number, _BLOCKING)
