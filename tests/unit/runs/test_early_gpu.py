"""The GPU is opened while torch is imported, and only where it can be this one."""

import ctypes

import pytest

from fedrec.runs import early_gpu


class Driver:
    """A GPU driver that notes what is asked of it."""

    def __init__(self, gpus: int, refuses: str = "") -> None:
        self.gpus, self.refuses, self.asked = gpus, refuses, []

    def __getattr__(self, name):
        def call(*arguments):
            self.asked.append(name)
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.gpus
            return int(name == self.refuses)

        return call


@pytest.mark.parametrize(
    ("driver", "opened"),
    [
        (Driver(1), True),
        (Driver(2), False),
        (Driver(0), False),
        (Driver(1, refuses="cuInit"), False),
        (Driver(1, refuses="cuDeviceGetCount"), False),
    ],
)
def test_the_only_gpu_is_opened(monkeypatch, driver, opened):
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
    early_gpu.open_gpu_early().join()
    assert ("cuDevicePrimaryCtxRetain" in driver.asked) == opened
    assert driver.asked[0] == "cuInit"


def test_without_a_driver_nothing_happens(monkeypatch, recwarn):
    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", missing)
    early_gpu.open_gpu_early().join()
    assert not recwarn.list
