"""Many commands by a few workers: in which order, by whom, and what a failure stops."""

import errno
import itertools
import os
import signal
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from fedrec import progress
from fedrec.workers.pool import Command, WorkerPool
from fedrec.workers.process import DEVICE_LOST, OUT_OF_MEMORY, Worker, describe_exit
from tests.unit.workers.made import COMMAND, ENVIRONMENT, STOPPED


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
    pool = WorkerPool(
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
    pool.work()
    assert [words for _, words in start.asked][-2:] == ["say yes", "leave"]
    assert [words for _, words in start.asked].count("die") == 2, "who is killed is tried once more"
    assert start.started == 3, "another worker takes the place of a dead one"
    assert pool.left == 0
    assert list(pool.failures) == ["wrong", "defect", "dead", "silent"]
    assert pool.failures["wrong"] == "it is wrong"
    assert pool.failures["defect"].startswith("Traceback")
    assert pool.failures["defect"].endswith("RuntimeError: a defect")
    assert pool.failures["dead"] == (
        "its process was ended by SIGKILL: memory ran out, or somebody killed it, twice"
    )
    assert pool.failures["silent"] == "it ended with status 2"


def test_that_one_failed_is_reported_while_others_continue(caplog):
    told = []

    class Listens(Noted):
        def __call__(self):
            told.append(list(caplog.messages))
            return super().__call__()

    # A process that died is started anew: what was told until then was told in between.
    tasks = [
        ("dead", "die"),
        ("defect", "crash"),
        ("wrong", "fail", "it is wrong\nand here is how"),
        ("whole", "say", "yes"),
    ]
    WorkerPool([task(*words) for words in tasks], 1, Listens()).work()
    assert told[0] == []
    again = (
        "one of 1 processes was killed: memory ran out, or somebody killed it. fedrec retries its run once, "
        "from its checkpoint."
    )
    assert told[1] == [again]
    assert told[2] == [again, f"dead failed: {describe_exit(-signal.SIGKILL)}, twice"]
    assert "defect failed: RuntimeError: a defect" in caplog.messages
    assert "wrong failed: it is wrong" in caplog.messages


def test_the_output_of_a_failed_command_is_kept_and_ends_with_the_reason(tmp_path):
    logs = {name: tmp_path / "logs" / name for name in ("whole", "wrong", "defect", "dead")}
    words = {
        "whole": ("say", "yes"),
        "wrong": ("fail", "it is wrong"),
        "defect": ("crash",),
        "dead": ("die",),
    }
    pool = WorkerPool(
        [Command(name, words[name], "kind", 1.0, log) for name, log in logs.items()], 1, Noted()
    )
    pool.work()
    assert not logs["whole"].exists()
    assert logs["wrong"].read_text() == "before\nfedrec: it is wrong\n"
    assert logs["defect"].read_text().endswith("RuntimeError: a defect\n")
    assert logs["dead"].read_text().startswith("fedrec: its process was ended by SIGKILL")


def test_a_log_that_cannot_be_kept_stops_nothing(tmp_path, caplog):
    (tmp_path / "logs").write_text("in the way")
    pool = WorkerPool([Command("wrong", ("fail", "no"), "kind", 1.0, tmp_path / "logs/wrong")], 1, Noted())
    pool.work()
    assert pool.failures == {"wrong": "no"}
    assert "logs: cannot be written: a file has that name" in caplog.text


def test_who_gets_no_process_has_failed_with_the_reason_and_others_are_done(tmp_path, caplog):
    class Refused(Noted):
        def __call__(self):
            worker = super().__call__()
            if self.started == 3:
                worker.end()
                raise OSError(errno.EAGAIN, "no more processes")
            return worker

    log = tmp_path / "log"
    tasks = [task("first", "die"), Command("second", ("say",), "kind", 1.0, log), task("third", "say")]
    pool = WorkerPool(tasks, 1, Refused())
    pool.work()
    assert list(pool.failures) == ["first", "second"]
    assert "no more processes. Free memory, processes or disk space" in pool.failures["second"]
    assert f"second failed: {pool.failures['second']}" in caplog.messages
    assert log.read_text() == f"fedrec: {pool.failures['second']}\n"
    assert pool.left == 0


def test_where_no_file_takes_what_they_say_all_have_failed_with_the_reason(monkeypatch):
    def full(*_how, **_more):
        raise OSError(errno.ENOSPC, "no space left", "/tmp")

    monkeypatch.setattr("tempfile.TemporaryFile", full)
    pool = WorkerPool([task("a", "say"), task("b", "say"), task("c", "say")], 2, Noted())
    pool.work()
    assert sorted(pool.failures) == ["a", "b", "c"]
    assert all("no space left: '/tmp'" in reason for reason in pool.failures.values())
    assert pool.left == 0


def test_a_defect_of_the_crew_itself_fails_its_task_and_shows_the_traceback(caplog):
    def do(*_how):
        raise ValueError("a defect here")

    pool = WorkerPool([task("a", "say")], 1, lambda: SimpleNamespace(is_alive=True, do=do, end=lambda: None))
    pool.work()
    assert pool.failures["a"].startswith("Traceback")
    assert "a failed: ValueError: a defect here" in caplog.messages
    assert pool.left == 0


def test_the_long_ones_come_first_and_a_kind_stays_with_its_worker():
    start = Noted()
    tasks = [
        task(f"{kind}{number}", "say", kind, kind=kind, seconds=seconds)
        for number in range(3)
        for kind, seconds in (("short", 1.0), ("long", 9.0), ("middle", 5.0))
    ]
    WorkerPool(tasks, 1, start).work()
    assert [words for _, words in start.asked] == ["say long"] * 3 + ["say middle"] * 3 + ["say short"] * 3


class InStep:
    """Starts workers that do nothing, each a task as soon as all have one, and notes who was given what."""

    def __init__(self, size):
        self.given = []
        self._started = itertools.count()
        self._all = threading.Barrier(size)

    def __call__(self):
        number = next(self._started)

        def do(arguments, *_files):
            self.given.append((number, *arguments))
            self._all.wait(60)
            return 0

        return SimpleNamespace(is_alive=True, do=do, end=lambda: None)


MADE = [
    ("a0", "a", 5.0),
    ("b0", "b", 1.0),
    ("a1", "a", 5.0),
    ("c0", "c", 9.0),
    ("b1", "b", 1.0),
    ("d0", "d", 3.0),
]
"""Tasks of a list: name, kind, seconds."""


def given(order, size, made=MADE):
    """Workers and names of tasks as they are handed out, to so many that take one at the same time."""
    start = InStep(size)
    tasks = [task(name, name, kind=kind, seconds=seconds) for name, kind, seconds in made]
    WorkerPool(tasks, size, start, order).work()
    return start.given


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("longest", "c0 a0 a1 d0 b0 b1"),
        ("shortest", "b0 b1 d0 a0 a1 c0"),
        ("listed", "a0 b0 a1 c0 b1 d0"),
    ],
)
def test_a_single_worker_is_given_tasks_in_the_order_that_is_requested(order, expected):
    assert [name for _, name in given(order, 1)] == expected.split()


@pytest.mark.parametrize("order", ["shortest", "listed"])
def test_where_work_may_end_early_a_task_is_overtaken_by_fewer_than_there_are_workers(order):
    """Though a worker could go on with the kind of its first: the others of it are last, and must wait."""
    made = [(f"{kind}{place}", kind, 1.0 + place) for place, kind in enumerate("abcdefgaaa")]
    places = [int(name[1:]) for _, name in given(order, 2, made)]
    for number, place in enumerate(places):
        assert place - min(places[number:]) < 2, places


def test_with_the_longest_first_a_worker_stays_with_its_kind():
    made = [(f"{kind}{place}", kind, 99.0 - place) for place, kind in enumerate("abcdefgaaa")]
    assert {"a7", "c2"} == {name for _, name in given("longest", 2, made)[2:4]}


def test_within_reach_a_worker_continues_with_its_kind():
    made = [(f"{kind}{place}", kind, 1.0) for place, kind in enumerate("abbabababa")]
    assert len({(worker, name[0]) for worker, name in given("listed", 2, made)}) == 2


def test_no_more_workers_are_started_than_there_are_tasks():
    start = Noted()
    WorkerPool([task("one", "say"), task("two", "say", kind="other")], 8, start).work()
    assert start.started == 2


def test_who_is_interrupted_stops_what_is_in_work_and_starts_nothing(tmp_path):
    mark = tmp_path / "mark"
    pool = WorkerPool([task("long", "wait", str(mark), seconds=9), task("next", "say")], 1, Noted())

    def interrupt():
        while not mark.exists():
            time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        pool.work()
    assert mark.read_text() == "stopped"
    assert pool.left == 2
    assert pool.failures == {}


# Tasks that do not fit into memory beside others


class Gpu:
    """Starts workers whose tasks take memory, as much as their second word says.

    A process keeps what its task took until it begins another or ends. Tasks wait until `at_first` of them
    were asked for, of which small ones are served first; one that fits then waits until as many came
    back, their processes having ended, as its third word says.
    """

    def __init__(self, holds, at_first):
        self.holds = holds
        self.asked = 0
        self.done = []
        self.refused = []
        """Names, and how many processes there were."""
        self._at_first = at_first
        self._asked_for = {}
        self._served = set()
        self._came_back = 0
        self.processes = 0
        self._change = threading.Condition()

    def __call__(self):
        with self._change:
            self.processes = number = self.processes + 1
        return SimpleNamespace(
            is_alive=True,
            do=lambda arguments, *files: self._do(number, *arguments, file=files[-1]),
            end=lambda: self.end(number),
        )

    def _do(self, number, name, need, returns="0", *, file):
        with self._change:
            self.asked += 1
            self._asked_for[number] = int(need)
            self._served.discard(number)
            self._until(lambda: self.asked >= self._at_first)
            if not self._fits(number):
                self.refused.append((name, len(self._asked_for)))
                os.write(file, b"fedrec: it does not fit\n")
                return OUT_OF_MEMORY
            self._served.add(number)
            self._until(lambda: self._came_back >= int(returns))
            self.done.append(name)
            return 0

    def end(self, number):
        with self._change:
            self._came_back += number not in self._served
            self._change.notify_all()
            del self._asked_for[number]
            self._served.discard(number)

    def _fits(self, number):
        own = self._asked_for[number]
        before = [
            asked
            for other, asked in self._asked_for.items()
            if other in self._served - {number} or asked < own
        ]
        return own + sum(before) <= self.holds

    def _until(self, true):
        self._change.notify_all()
        assert self._change.wait_for(true, 60)


def test_two_that_fit_only_alone_are_done_one_after_the_other(caplog):
    gpu = Gpu(holds=1, at_first=2)
    pool = WorkerPool([task("a", "a", "1", "1"), task("b", "b", "1", "1")], 2, gpu)
    pool.work()
    assert sorted(gpu.done) == ["a", "b"]
    assert len(gpu.refused) == 1
    assert pool.failures == {}
    assert pool.left == 0
    assert (
        caplog.text.count("2 runs at the same time do not fit into memory. fedrec trains fewer from here on")
        == 1
    )


def test_one_that_does_not_fit_alone_has_failed(tmp_path):
    gpu, log = Gpu(holds=3, at_first=2), tmp_path / "log"
    huge = Command("huge", ("huge", "9"), "kind", 1.0, log)
    pool = WorkerPool([huge, task("small", "small", "1", "1"), task("next", "next", "1")], 2, gpu, "listed")
    pool.work()
    assert gpu.refused == [("huge", 2), ("huge", 1)]
    assert gpu.done == ["small", "next"]
    assert pool.failures == {"huge": "it does not fit"}
    assert pool.left == 0
    assert log.read_text() == "fedrec: it does not fit\n"


def test_a_single_worker_tries_nothing_twice(caplog):
    gpu = Gpu(holds=1, at_first=1)
    pool = WorkerPool([task("huge", "huge", "2"), task("small", "small", "1")], 1, gpu)
    pool.work()
    assert list(pool.failures) == ["huge"]
    assert gpu.asked == 2
    assert gpu.processes == 2, "one that ran out of memory does nothing else"
    assert "fit into memory" not in caplog.text


def test_one_that_comes_back_has_fewer_beside_it_every_time(monkeypatch, capsys, caplog):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    gpu = Gpu(holds=4, at_first=4)
    small = [task(f"small{number}", f"small{number}", "1", str(number)) for number in (1, 2, 3)]
    pool = WorkerPool([task("large", "large", "4"), *small], 4, gpu, "listed")
    pool.work()
    assert gpu.refused == [("large", 4), ("large", 3), ("large", 2)]
    assert gpu.done == ["small1", "small2", "small3", "large"]
    assert pool.failures == {}
    assert pool.left == 0
    told = capsys.readouterr().err
    assert "1 of 4 runs, 3 at the same time" in told
    assert "3 of 4 runs, 1 at the same time" in told
    assert caplog.text.count("at the same time do not fit") == 1


@pytest.mark.parametrize("order", ["longest", "shortest", "listed"])
def test_whoever_is_refused_when_all_is_done_in_the_end(order):
    """Tasks of unlike size and kind; who comes when is left to chance."""
    gpu = Gpu(holds=3, at_first=4)
    tasks = [
        task(f"{number}", f"{number}", str(1 + number % 3), kind=str(number % 5), seconds=number)
        for number in range(60)
    ]
    pool = WorkerPool(tasks, 4, gpu, order)
    pool.work()
    assert sorted(gpu.done) == sorted(made.name for made in tasks)
    assert gpu.refused
    assert pool.failures == {}
    assert pool.left == 0


class SharedGpu:
    """Starts workers that share a GPU, which all at work lose as soon as a task `faulty` is among them.

    Tasks wait until `at_first` of them were asked for.
    """

    def __init__(self, at_first, status=DEVICE_LOST):
        self.done = []
        self.status = status
        self.beside_the_fault = []
        """How many others were at work, each time that the faulty one was."""
        self.processes = 0
        self._at_first = at_first
        self._asked = 0
        self._at_work = {}
        self._lost = set()
        self._change = threading.Condition()

    def __call__(self):
        with self._change:
            self.processes = number = self.processes + 1
        return SimpleNamespace(
            is_alive=True, do=lambda words, *files: self._do(number, *words, file=files[-1]), end=lambda: None
        )

    def _do(self, number, name, *, file):
        with self._change:
            assert number not in self._lost, "a process without a GPU is asked for more"
            self._asked += 1
            self._at_work[number] = name
            self._change.notify_all()
            assert self._change.wait_for(lambda: self._asked >= self._at_first, 60)
            if name == "faulty":
                self._lost |= self._at_work.keys()
                self.beside_the_fault.append(len(self._at_work) - 1)
            assert self._change.wait_for(lambda: self._is_over(number), 60)
            del self._at_work[number]
            self._change.notify_all()
            if number in self._lost:
                os.write(file, b"fedrec: the GPU is lost\n")
                return self.status
            self.done.append(name)
            return 0

    def _is_over(self, number):
        return number in self._lost or "faulty" not in self._at_work.values()


@pytest.mark.parametrize("order", ["longest", "shortest", "listed"])
def test_of_those_that_lose_a_gpu_together_only_the_one_fails_whose_error_it_is(order, caplog):
    gpu = SharedGpu(at_first=8)
    names = [*(f"whole{number}" for number in range(20)), "faulty"]
    tasks = [task(name, name, kind=name, seconds=3.0) for name in names[:4] + names[-1:] + names[4:-1]]
    pool = WorkerPool(tasks, 8, gpu, order)
    pool.work()
    assert sorted(gpu.done) == sorted(names[:-1])
    assert pool.failures == {"faulty": "the GPU is lost"}
    assert gpu.beside_the_fault[0] > 0
    assert gpu.beside_the_fault[-1] == 0
    assert gpu.beside_the_fault == sorted(gpu.beside_the_fault, reverse=True)
    assert caplog.text.count("lost the GPU that they share") == 1


def test_who_crashes_beside_others_is_tried_again_and_fails_alone(caplog):
    """What a process recorded on a GPU that is lost is taken members with a crash, and no word."""
    gpu = SharedGpu(at_first=4, status=-signal.SIGSEGV)
    pool = WorkerPool([task(name, name, kind=name) for name in ("a", "faulty", "b", "c")], 4, gpu, "listed")
    pool.work()
    assert sorted(gpu.done) == ["a", "b", "c"]
    assert pool.failures == {"faulty": "its process was ended by SIGSEGV"}
    assert gpu.beside_the_fault[-1] == 0
    assert caplog.text.count("processes crashed") == 1


def test_where_one_fails_that_stands_for_several_they_are_done_one_by_one(capsys, monkeypatch):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    start = Noted()
    members = (task("a", "say", "a"), task("b", "fail", "b is wrong"), task("c", "say", "c"))
    both = (task("d", "say", "d"), task("e", "say", "e"))
    tasks = [
        replace(members[0], arguments=("fail", "one of them"), members=members),
        replace(both[0], arguments=("say", "both"), members=both),
        task("f", "say", "f"),
    ]
    pool = WorkerPool(tasks, 1, start, "listed")
    pool.work()
    assert [words for _, words in start.asked] == [
        "fail one of them", "say a", "fail b is wrong", "say c", "say both", "say f",
    ]  # fmt: skip
    assert pool.failures == {"b": "b is wrong"}
    assert pool.left == 0
    told = capsys.readouterr().err
    assert "3 of 6 runs, 1 failed" in told
    assert "5 of 6 runs, 1 failed" in told
    assert "6 of 6 runs, 1 failed" in told


def test_one_that_is_killed_twice_and_stands_for_several_is_not_parted(tmp_path):
    """Most likely memory ran out: it would again."""
    start, logs = Noted(), {name: tmp_path / name for name in "ab"}
    members = tuple(Command(name, ("say", name), "kind", 1.0, log) for name, log in logs.items())
    killed = replace(members[0], arguments=("die",), log=None, members=members)
    pool = WorkerPool([killed, task("c", "say", "c")], 1, start)
    pool.work()
    assert [words for _, words in start.asked] == ["die", "die", "say c"]
    assert list(pool.failures) == ["a", "b"]
    assert all("SIGKILL" in reason for reason in pool.failures.values())
    assert all("SIGKILL" in log.read_text() for log in logs.values())
    assert pool.left == 0


@pytest.mark.parametrize("size", [1, 3])
def test_one_whose_process_somebody_kills_is_done_again(size, tmp_path, caplog):
    mark, start = tmp_path / "mark", Noted()
    tasks = [task("killed", "be killed once", str(mark), seconds=9), task("a", "say"), task("b", "say")]

    def kill():
        while not mark.exists():
            time.sleep(0.01)
        os.kill(int(mark.read_text()), signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    pool = WorkerPool(tasks, size, start)
    pool.work()
    killer.join()
    assert pool.failures == {}
    assert pool.left == 0
    assert sorted(words.split()[0] for _, words in start.asked) == ["be", "be", "say", "say"]
    assert caplog.text.count("memory ran out, or somebody killed it. fedrec retries its run once") == 1


def test_who_is_interrupted_leaves_undone_what_was_to_be_tried_again():
    came_back, stopped = threading.Event(), threading.Event()
    both = threading.Barrier(2)
    asked = []

    def do(arguments, *_files):
        asked.append(*arguments)
        both.wait(60)
        if arguments == ("large",):
            return OUT_OF_MEMORY
        assert came_back.wait(60)
        signal.raise_signal(signal.SIGINT)
        assert stopped.wait(60)
        return STOPPED

    pool = WorkerPool(
        [task("large", "large"), task("small", "small"), task("next", "next")],
        2,
        lambda: SimpleNamespace(is_alive=True, do=do, end=came_back.set, stop=stopped.set),
        "listed",
    )
    with pytest.raises(KeyboardInterrupt):
        pool.work()
    assert sorted(asked) == ["large", "small"]
    assert pool.left == 3
    assert pool.failures == {}
