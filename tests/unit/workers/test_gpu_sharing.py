"""Processes that share a GPU, by a service that is started and ended for them: here a script that notes what it is asked."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fedrec.workers import gpu_sharing
from fedrec.workers.gpu_sharing import SHARED, shared_gpus, use_blocking_sync

PIPE = "CUDA_MPS_PIPE_DIRECTORY"
SCRIPT = """#!/bin/sh
[ "$1" = -d ] && { echo "start $CUDA_MPS_PIPE_DIRECTORY" >> %(log)s; exit %(status)s; }
read word; echo "$word $CUDA_MPS_PIPE_DIRECTORY" >> %(log)s
"""
WAITS = """
import sys, time
from fedrec.workers import gpu_sharing
gpu_sharing._reaches_gpu = lambda environment: True
with gpu_sharing.shared_gpus(2):
    print("shares", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def service(tmp_path):
    """Makes a service that starts with a status; returns the environment that has it, and its log."""

    def make(status=0):
        log, script = tmp_path / "log", tmp_path / "nvidia-cuda-mps-control"
        script.write_text(SCRIPT % {"log": log, "status": status})
        script.chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name != PIPE}
        return environment | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}, log

    return make


def until(condition, seconds=10.0):
    """Wait for what another process does."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def test_it_lasts_as_long_as_it_is_used(service, monkeypatch):
    environment, log = service()
    monkeypatch.setattr(gpu_sharing, "_reaches_gpu", lambda environment: PIPE in environment)
    with shared_gpus(2, environment) as sharing:
        folder = sharing[PIPE]
        assert Path(folder).is_dir()
        assert log.read_text() == f"start {folder}\n"
    assert log.read_text() == f"start {folder}\nquit {folder}\n"
    assert not Path(folder).exists()


def test_it_ends_with_who_started_it_however_that_ends(service):
    environment, log = service()
    user = subprocess.Popen([sys.executable, "-c", WAITS], env=environment, stdout=subprocess.PIPE, text=True)
    assert user.stdout.readline() == "shares\n"
    user.send_signal(signal.SIGKILL)
    user.communicate()
    assert until(lambda: "quit" in log.read_text())
    folder = Path(log.read_text().split()[1])
    assert until(lambda: not folder.exists())


@pytest.mark.parametrize("status", [0, 1])
def test_one_that_does_not_work_is_reported_and_ended(service, status, monkeypatch, capsys):
    environment, log = service(status)
    monkeypatch.setattr(gpu_sharing, "_reaches_gpu", lambda _: False)
    with shared_gpus(2, environment) as sharing:
        assert sharing == {}
    assert "runs take turns on the GPU" in capsys.readouterr().err
    assert ("quit" in log.read_text()) == (status == 0)
    assert not Path(log.read_text().split()[1]).exists()


def test_a_machine_without_a_driver_is_not_reached(monkeypatch):
    monkeypatch.setattr(
        gpu_sharing, "_TRIAL", gpu_sharing._TRIAL.replace("libcuda.so.1", "no-such-driver.so")
    )
    assert not gpu_sharing._reaches_gpu(os.environ)


def test_who_arranged_it_or_has_no_service_is_let_be(service):
    environment, log = service()
    with shared_gpus(2, environment | {PIPE: "/arranged"}) as sharing:
        assert sharing == {}
    with shared_gpus(2, environment | {"PATH": "/nowhere"}) as sharing:
        assert sharing == {}
    with shared_gpus(1, environment) as sharing:
        assert sharing == {}
    assert not log.exists()


class Driver:
    """Notes what is set for which of two GPUs."""

    def __init__(self, status=0):
        self.status, self.flags = status, {}

    def cuInit(self, _):  # noqa: N802
        return self.status

    def cuDeviceGetCount(self, count):  # noqa: N802
        count._obj.value = 2
        return 0

    def cuDevicePrimaryCtxSetFlags_v2(self, number, flags):  # noqa: N802
        self.flags[number] = flags


@pytest.mark.parametrize(
    ("shared", "status", "flags"), [(True, 0, {0: 4, 1: 4}), (True, 100, {}), (False, 0, {})]
)
def test_who_shares_a_gpu_waits_asleep(monkeypatch, shared, status, flags):
    driver = Driver(status)
    monkeypatch.setattr(gpu_sharing.ctypes, "CDLL", lambda _: driver)
    monkeypatch.delenv(SHARED, raising=False)
    if shared:
        monkeypatch.setenv(SHARED, "1")
    use_blocking_sync()
    assert driver.flags == flags
