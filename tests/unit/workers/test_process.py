"""One worker: what it does, says and survives."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from fedrec.workers.process import Worker, describe_exit
from tests.conftest import ROOT
from tests.unit.workers.made import COMMAND, ENVIRONMENT, STOPPED


@pytest.fixture
def worker():
    worker = Worker(COMMAND, ENVIRONMENT)
    yield worker
    worker.end()


def done(worker, *words):
    """The status of a command, and what it said."""
    with tempfile.TemporaryFile() as said:
        status = worker.do(words, said.fileno(), said.fileno())
        said.seek(0)
        return status, said.read().decode()


def until(path, text):
    while not path.exists() or path.read_text() != text:
        time.sleep(0.01)


def test_one_process_does_many_commands_and_each_says_its_own(worker):
    assert done(worker, "say", "a", "b") == (0, "a b\nto stderr\n")
    first, again = done(worker, "process"), done(worker, "process")
    assert first == again
    assert first[1].split()[0] != str(os.getpid())


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [(["fail", "why"], 1, "fedrec: why"), (["crash"], 1, "RuntimeError: a defect"), (["leave"], 2, "")],
)
def test_a_command_that_fails_leaves_the_worker_as_it_was(worker, words, status, said):
    before = done(worker, "process")
    found, text = done(worker, *words)
    assert found == status
    assert said in text
    assert done(worker, "process") == before


STARTER = """
import sys
from fedrec.workers.process import Worker

imports = "import os, fedrec.workers.worker; os._exit(7)"
sys.exit(Worker((sys.executable, "-S", "-P", "-c", imports), {}).do([], 1, 2))
"""


def test_a_worker_of_a_checkout_that_is_not_installed_imports_it():
    """`-S`: there are no installed packages. The starter finds `fedrec` in its folder, where no worker looks."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", STARTER], cwd=ROOT, env={}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 7, done.stderr


def test_a_worker_that_dies_is_reported_by_its_signal(worker):
    status, _ = done(worker, "die")
    assert status == -signal.SIGKILL
    assert not worker.is_alive
    assert describe_exit(status) == "its process was ended by SIGKILL: memory ran out, or somebody killed it"
    assert describe_exit(-signal.SIGTERM) == "its process was ended by SIGTERM"


def test_a_command_in_work_is_stopped_and_an_idle_worker_is_not(worker, tmp_path):
    mark = tmp_path / "mark"
    outcome = []
    thread = threading.Thread(target=lambda: outcome.append(done(worker, "wait", str(mark))))
    thread.start()
    until(mark, "waits")
    worker.stop()
    thread.join()
    assert outcome == [(STOPPED, "")]
    worker.stop()
    assert done(worker, "say")[0] == 0


def test_a_worker_whose_starter_is_killed_stops_what_it_does(tmp_path):
    mark = tmp_path / "mark"
    script = (
        "from tests.unit.workers.made import *\nfrom fedrec.workers.process import Worker\n"
        f"Worker(COMMAND, ENVIRONMENT).do(['wait', {str(mark)!r}], 1, 2)"
    )
    starter = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    until(mark, "waits")
    starter.kill()
    starter.wait()
    until(mark, "stopped")
