"""Commands that processes hand over: who does them, where they write, and who stops them."""

import errno
import os
import signal
import subprocess
import sys
import time

import pytest

from fedrec.workers.client import SOCKET_VARIABLE, run_on_server
from fedrec.workers.process import DEVICE_LOST, OUT_OF_MEMORY, Worker
from fedrec.workers.server import WorkerServer
from tests.conftest import ROOT
from tests.unit.workers.made import COMMAND, ENVIRONMENT, STOPPED

CLIENT = "import sys; from fedrec.workers.client import run_on_server; sys.exit(run_on_server(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def _server(monkeypatch):
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    server = WorkerServer(COMMAND)
    yield server
    server.close()
    assert SOCKET_VARIABLE not in os.environ


def started(*words, folder=ROOT, **more):
    environment = {**ENVIRONMENT, SOCKET_VARIABLE: os.environ[SOCKET_VARIABLE], **more}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def called(*words, folder=ROOT, **more):
    client = started(*words, folder=folder, **more)
    said, told = client.communicate(timeout=60)
    return client.returncode, said, told


def until(path, text):
    while not path.exists() or path.read_text() != text:
        time.sleep(0.01)


def test_commands_one_after_another_are_done_by_one_process():
    first, again = called("process"), called("process")
    assert first == again
    assert first[0] == 0
    assert called("say", "it") == (0, "it\n", "to stderr\n")
    assert called("fail", "why")[0] == 1


@pytest.mark.parametrize(("word", "status"), [("fill", OUT_OF_MEMORY), ("lose", DEVICE_LOST)])
def test_who_ran_out_of_memory_or_has_no_gpu_does_nothing_else(word, status):
    before = called("process")
    assert called(word)[0] == status
    assert called("process") != before


def test_another_environment_or_folder_is_another_process(tmp_path):
    (_, plain, _), (_, named, _), (_, placed, _) = (
        called("process"), called("process", MADE="up"), called("process", folder=tmp_path)
    )  # fmt: skip
    assert len({said.split()[0] for said in (plain, named, placed)}) == 3
    assert named.split()[1] == "up"
    assert placed.split()[-1] == str(tmp_path)


def test_who_has_imported_other_sources_is_not_used_again(monkeypatch):
    before = called("process")
    monkeypatch.setattr("fedrec.workers.server.state_of_sources", lambda: "edited")
    after = called("process")
    assert before != after
    assert called("process") == after


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, STOPPED), (signal.SIGKILL, -signal.SIGKILL)])
def test_a_client_that_is_stopped_or_killed_stops_its_command(tmp_path, number, status):
    mark = tmp_path / "mark"
    client = started("wait", str(mark))
    until(mark, "waits")
    client.send_signal(number)
    client.communicate()
    assert client.returncode == status
    until(mark, "stopped")


def test_a_worker_that_is_at_work_when_its_server_closes_ends_with_its_command(monkeypatch, tmp_path):
    made, mark = [], tmp_path / "mark"

    class Noted(Worker):
        def __init__(self, *how):
            super().__init__(*how)
            made.append(self)

    monkeypatch.setattr("fedrec.workers.server.Worker", Noted)
    server = WorkerServer(COMMAND)
    client = started("wait", str(mark))
    until(mark, "waits")
    server.close()
    (worker,) = made
    assert worker.is_alive
    client.terminate()
    client.communicate()
    while worker.is_alive:
        time.sleep(0.01)


def test_a_worker_that_dies_is_reported_to_its_client():
    status, _, told = called("die")
    assert status == 128 + signal.SIGKILL
    assert "fedrec: its process was ended by SIGKILL" in told
    assert called("say", "on")[0] == 0


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            OSError(errno.EAGAIN, "no more processes"),
            "no more processes. Free memory, processes or disk space",
        ),
        (ValueError("a defect here"), "ValueError: a defect here"),
    ],
)
def test_a_worker_that_cannot_be_started_is_reported_to_its_client(monkeypatch, error, reason):
    def refuse(*_how):
        raise error

    monkeypatch.setattr("fedrec.workers.server.Worker", refuse)
    status, said, told = called("say", "it")
    assert (status, said) == (1, "")
    assert reason in told
    assert "has gone" not in told
    monkeypatch.undo()


def test_where_nobody_listens_a_command_is_its_own(monkeypatch, tmp_path):
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    assert run_on_server(["say"]) is None
    monkeypatch.setenv(SOCKET_VARIABLE, str(tmp_path / "gone"))
    assert run_on_server(["say"]) is None
