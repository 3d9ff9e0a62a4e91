"""A GPU is opened while torch is still being imported: both take seconds, and neither waits for the other."""

import ctypes
from threading import Thread

_DRIVER = "libcuda.so.1"


def open_gpu_early() -> Thread:
    """Begin to open the GPU of this machine, if it has a single one; torch takes it up as it is.

    For a process that has not imported torch yet. Of several GPUs only the driver is made ready: to open one
    takes some of its memory, and which is used is decided later. What fails here fails again where the GPU
    is wanted, and is told there.
    """
    opening = Thread(target=_open, name="early-gpu", daemon=True)
    opening.start()
    return opening


def _open() -> None:
    try:
        driver = ctypes.CDLL(_DRIVER)
    except OSError:
        return
    count, context = ctypes.c_int(), ctypes.c_void_p()
    if not driver.cuInit(0) and not driver.cuDeviceGetCount(ctypes.byref(count)) and count.value == 1:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
