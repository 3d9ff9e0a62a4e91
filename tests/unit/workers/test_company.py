"""Several processes that do one command: what each is told, and what becomes of all when one ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from fedrec.errors import FedrecError
from fedrec.workers.company import LEFT_ALONE, do_together
from tests.conftest import ROOT

RANK = "import os, signal, sys, time; rank = int(os.environ['RANK']); "
LONG = "time.sleep(60)"
MEET = """
open(f"{sys.argv[1]}/{rank}", "w")
while len(os.listdir(sys.argv[1])) < 3: time.sleep(0.01)
"""
"""All have started, however long that took."""
PATIENCE = 30


def together(program, *words, processes=3, cores=6):
    return do_together((sys.executable, "-c", RANK + program, *map(str, words)), processes, cores)


def test_each_is_told_its_number_and_its_share_of_the_cores(tmp_path, monkeypatch, capfd):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("FEDREC_WORKERS", "a socket of others")
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "OMP_NUM_THREADS", "FEDREC_WORKERS")
    program = (
        f"said = ' '.join(os.environ.get(name, '-') for name in {names}); "
        "open(f'{sys.argv[1]}/{rank}', 'w').write(said); print('said by', rank)"
    )
    assert together(program, tmp_path) == 0
    assert [(tmp_path / str(rank)).read_text() for rank in range(3)] == [
        f"{rank} {rank} 3 3 2 -" for rank in range(3)
    ]
    assert capfd.readouterr().out == "said by 0\n"


def test_who_sets_the_number_of_threads_is_asked(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    assert together("sys.exit(os.environ['OMP_NUM_THREADS'] != '5')") == 0


def test_a_process_that_is_killed_is_named_and_the_others_end():
    program = f"rank != 1 or os.kill(os.getpid(), signal.SIGKILL); {LONG}"
    with pytest.raises(FedrecError) as raised:
        together(program)
    said = str(raised.value)
    assert said.startswith("of 3 processes, numbered from 0, number 1 (pid ")
    assert f"on {os.uname().nodename}) ended the run: its process was ended by SIGKILL" in said
    assert "goes on from the last checkpoint" in said


def test_what_a_process_says_that_fails_is_shown_and_what_others_say_is_not(capfd):
    program = f"print('from', rank, file=sys.stderr); sys.exit(3) if rank == 2 else {LONG}"
    with pytest.raises(
        FedrecError, match=r"number 2 \(pid \d+ on .*\) ended the run: it failed with status 3"
    ):
        together(program)
    assert sorted(capfd.readouterr().err.splitlines()) == ["from 0", "from 2"]


@pytest.mark.parametrize("last", ["sys.exit(1)", "os.kill(os.getpid(), signal.SIGTERM)"])
def test_who_is_left_alone_is_not_to_blame(tmp_path, last):
    """The first two end at once because the third is about to: its connections are gone before it is."""
    program = f"{MEET}rank == 2 or sys.exit({LEFT_ALONE}); time.sleep(0.3); {last}"
    with pytest.raises(FedrecError, match="number 2 "):
        together(program, tmp_path)


def test_where_all_fail_alike_one_says_why(tmp_path, capfd):
    with pytest.raises(FedrecError, match="number 0 "):
        together(f"{MEET}print('wrong', rank, file=sys.stderr); sys.exit(1)", tmp_path)
    assert capfd.readouterr().err == "wrong 0\n"


@pytest.mark.parametrize(("status", "of_all"), [(143, 128 + signal.SIGTERM), (0, 0)])
def test_a_signal_to_stop_reaches_all(tmp_path, status, of_all):
    """And once: they are no part of the terminal's group, to which a Ctrl-C goes as well. What was done nevertheless
    is done."""
    each = (
        "signal.signal(signal.SIGTERM, lambda number, _: (open(f'{sys.argv[1]}/{rank}', 'a').write('stopped '), "
        f"sys.exit({status}))); open(f'{{sys.argv[1]}}/ready{{rank}}', 'w'); {LONG}"
    )
    program = (
        "import sys; from fedrec.workers.company import do_together; "
        f"sys.exit(do_together((sys.executable, '-c', {RANK + each!r}, sys.argv[1]), 2, 2))"
    )
    starter = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], cwd=ROOT, start_new_session=True
    )
    until = time.monotonic() + PATIENCE
    while not all((tmp_path / f"ready{rank}").exists() for rank in range(2)):
        assert time.monotonic() < until
        time.sleep(0.05)
    os.killpg(starter.pid, signal.SIGTERM)
    assert starter.wait(PATIENCE) == of_all
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["stopped ", "stopped "]


@pytest.mark.parametrize("watched", [True, False])
def test_a_process_ends_with_its_starter(watched):
    """Whatever it waits for: another thread than the waiting one ends it."""
    program = f"import time; from fedrec.workers.company import end_with_starter; end_with_starter(); print(flush=True); {LONG}"
    environment = {**os.environ, "FEDREC_WATCHED": "1" if watched else ""}
    with subprocess.Popen(
        [sys.executable, "-c", program],
        env=environment,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        process.stdout.readline()
        process.stdin.close()
        if watched:
            assert process.wait(PATIENCE) == LEFT_ALONE
        else:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)
            process.kill()
