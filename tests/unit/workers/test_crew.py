"""Many commands by a few workers: in which order, by whom, and what a failure stops."""

import signal
import threading
import time

import pytest

from fedrec.workers.crew import Command, Crew
from fedrec.workers.process import Worker
from tests.unit.workers.made import COMMAND, ENVIRONMENT


def task(name, *words, kind="kind", seconds=1.0):
    return Command(name, words, kind, seconds)


class Noted:
    """Starts workers, and notes what they were asked to do."""

    def __init__(self):
        self.asked = []
        self.started = 0

    def __call__(self):
        self.started += 1
        worker, number, do = Worker(COMMAND, ENVIRONMENT), self.started, None
        do = worker.do

        def noted(arguments, *files):
            self.asked.append((number, " ".join(arguments)))
            return do(arguments, *files)

        worker.do = noted
        return worker


def test_one_that_fails_stops_no_other_and_its_reason_is_kept():
    start = Noted()
    crew = Crew(
        [
            task("whole", "say", "yes"),
            task("wrong", "fail", "it is wrong"),
            task("defect", "crash"),
            task("dead", "die"),
            task("after", "say", "yes"),
            task("silent", "leave"),
        ],
        1,
        start,
    )
    crew.work()
    assert [words for _, words in start.asked][-2:] == ["say yes", "leave"]
    assert start.started == 2, "another worker takes the place of a dead one"
    assert crew.left == 0
    assert list(crew.failures) == ["wrong", "defect", "dead", "silent"]
    assert crew.failures["wrong"] == "it is wrong"
    assert crew.failures["defect"].startswith("Traceback")
    assert crew.failures["defect"].endswith("RuntimeError: a defect")
    assert "SIGKILL" in crew.failures["dead"]
    assert crew.failures["silent"] == "it ended with status 2"


def test_what_one_said_that_failed_is_kept_and_ends_with_the_reason(tmp_path):
    logs = {name: tmp_path / "logs" / name for name in ("whole", "wrong", "defect", "dead")}
    words = {
        "whole": ("say", "yes"),
        "wrong": ("fail", "it is wrong"),
        "defect": ("crash",),
        "dead": ("die",),
    }
    crew = Crew([Command(name, words[name], "kind", 1.0, log) for name, log in logs.items()], 1, Noted())
    crew.work()
    assert not logs["whole"].exists()
    assert logs["wrong"].read_text() == "before\nfedrec: it is wrong\n"
    assert logs["defect"].read_text().endswith("RuntimeError: a defect\n")
    assert logs["dead"].read_text().startswith("fedrec: its process was ended by SIGKILL")


def test_a_log_that_cannot_be_kept_stops_nothing(tmp_path, caplog):
    (tmp_path / "logs").write_text("in the way")
    crew = Crew([Command("wrong", ("fail", "no"), "kind", 1.0, tmp_path / "logs/wrong")], 1, Noted())
    crew.work()
    assert crew.failures == {"wrong": "no"}
    assert "logs: cannot be written: there is a file of that name" in caplog.text


def test_the_long_ones_come_first_and_a_kind_stays_with_its_worker():
    start = Noted()
    tasks = [
        task(f"{kind}{number}", "say", kind, kind=kind, seconds=seconds)
        for number in range(3)
        for kind, seconds in (("short", 1.0), ("long", 9.0), ("middle", 5.0))
    ]
    Crew(tasks, 1, start).work()
    assert [words for _, words in start.asked] == ["say long"] * 3 + ["say middle"] * 3 + ["say short"] * 3


def test_no_more_workers_are_started_than_there_are_tasks():
    start = Noted()
    Crew([task("one", "say"), task("two", "say", kind="other")], 8, start).work()
    assert start.started == 2


def test_who_is_interrupted_stops_what_is_in_work_and_starts_nothing(tmp_path):
    mark = tmp_path / "mark"
    crew = Crew([task("long", "wait", str(mark), seconds=9), task("next", "say")], 1, Noted())

    def interrupt():
        while not mark.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        crew.work()
    assert mark.read_text() == "stopped"
    assert crew.left == 2
    assert crew.failures == {}
