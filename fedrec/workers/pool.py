"""A pool of workers that run many commands; one that fails stops no other.

One that does not fit into memory beside others, or loses its GPU beside others, has not failed: it is done
again with fewer at once. One whose process is killed is done again once.
"""

import logging
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from fedrec.errors import StorageError
from fedrec.files.atomic import write_text
from fedrec.progress import TaskProgress
from fedrec.workers.concurrency import ConcurrencyLimit
from fedrec.workers.log_tail import ERROR_PREFIX, log_tail
from fedrec.workers.order import Order
from fedrec.workers.process import (
    CRASHES,
    DEVICE_LOST,
    KILLED,
    NOT_REUSABLE,
    OUT_OF_MEMORY,
    Worker,
    describe_exit,
    error_text,
)

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
_MOST_LINES = 30
"""Of what a command said before it failed."""


@dataclass(frozen=True)
class Command:
    """A command, and what decides who does it when."""

    name: str
    arguments: tuple[str, ...]
    kind: str
    """Tasks of a kind share what a process has read and compiled: one worker is to do them."""
    seconds: float
    """About how long it takes, against others."""
    log: Path | None = None
    """Where what it said is kept if it fails."""
    members: tuple["Command", ...] = ()
    """The commands that it groups, if any: they run one by one if the group fails."""

    @property
    def count(self) -> int:
        """The number of commands that it counts for."""
        return max(1, len(self.members))


_TRIED_AGAIN: Mapping[int, str] = {
    OUT_OF_MEMORY: "%s runs at the same time do not fit into memory. fedrec trains fewer from here on, and "
    "retries those that failed.",
    DEVICE_LOST: "%s runs at the same time lost the GPU that they share, because of an error of one of "
    "them. fedrec retries them, fewer at a time, until the faulty run trains alone.",
    **dict.fromkeys(
        CRASHES,
        "one of %s processes crashed, which happens when they lose a shared GPU. fedrec retries it, with "
        "fewer at a time.",
    ),
    KILLED: "one of %s processes was killed: memory ran out, or somebody killed it. fedrec retries its run "
    "once, from its checkpoint.",
}
_PLACED_BY: Mapping[Order, Callable[[Command], float]] = {
    "longest": lambda task: -task.seconds,
    "shortest": lambda task: task.seconds,
    "listed": lambda _: 0.0,
}


@dataclass
class WorkerPool:
    """At most `size` workers, as `start` makes them, that do `tasks`: in `order`, but for those of a kind.

    With the longest first a worker stays with a kind until nothing is left of it. In another order, which is
    to hold wherever the work ends, a task is overtaken by fewer others than there are workers.

    A task that runs out of memory beside others takes its place again, and fewer work at once from then on;
    the process of who does not work ends, since it would keep memory from the others. One that runs out of
    memory alone has failed. Likewise one that loses its GPU, or crashes: of those that share it the fault is
    one's, and with fewer at once every time the others are done, and that one fails alone. One whose process
    is killed takes its place again once, whether it was alone or not.
    """

    tasks: Iterable[Command]
    size: int
    start: Callable[[], Worker]
    order: Order = "longest"
    failures: dict[str, str] = field(default_factory=dict)
    """Why tasks failed, by their names."""

    def __post_init__(self) -> None:
        self._left: dict[float, Command] = dict(enumerate(sorted(self.tasks, key=_PLACED_BY[self.order])))
        self._reach = len(self._left) if self.order == "longest" else self.size
        self._progress = TaskProgress([(task.seconds, task.count) for task in self._left.values()])
        self._limit = ConcurrencyLimit(self.size)
        self._workers: dict[int, Worker] = {}
        self._kinds: dict[int, str] = {}
        # Guards all of these; it is told to those who wait that one of them may go on.
        self._change = threading.Condition()
        self._stopping = False
        self._told: set[int] = set()
        self._killed: set[str] = set()
        self._members = 0
        # Not by joining threads: one that is interrupted takes them for ended (CPython, bpo-45274).
        self._look = threading.Event()

    def work(self) -> None:
        """Do all tasks. `KeyboardInterrupt` stops those in work, waits until they have, and comes back."""
        self._members = min(self.size, len(self._left))
        for number in range(self._members):
            threading.Thread(target=self._run_member, args=(number,), daemon=True).start()
        while self._members:
            try:
                # A loop of its own: wherever between two looks a signal comes, it is heeded.
                while self._members:
                    self._look.wait(_SECONDS_BETWEEN_LOOKS)
                    self._progress.show()
            except KeyboardInterrupt:
                # Once more, and what is in work gets a second signal: it stops at once.
                self._stop()
        self._progress.close()
        if self._stopping:
            raise KeyboardInterrupt

    @property
    def left(self) -> int:
        """How many runs are neither done nor have failed."""
        return self._progress.left

    @property
    def seconds_left(self) -> float | None:
        """About how long these take, by how long the others took; None where none was done."""
        return self._progress.seconds_left

    def _stop(self) -> None:
        with self._change:
            self._stopping = True
            for worker in self._workers.values():
                worker.stop()
            self._change.notify_all()

    def _run_member(self, number: int) -> None:
        """Run one task after another, as a thread of the pool."""
        try:
            self._do_tasks(number)
        finally:
            self._leave(number)
            with self._change:
                self._members -= 1
                if not self._members:
                    self._look.set()

    def _do_tasks(self, number: int) -> None:
        while (taken := self._next(number)) is not None:
            place, task = taken
            status, said = self._done(number, task)
            with self._change:
                if self._stopping and status != 0:
                    return
                if self._comes_back(number, task, status):
                    self._requeue(number, place, task, status)
                elif status and status != KILLED and task.members:
                    self._split(place, task, _reason(status, said))
                else:
                    self._note(task, status, said)
            if status in (*NOT_REUSABLE, KILLED):
                # Its process keeps memory that nothing uses any more, or has no GPU, or is dead.
                self._leave(number)

    def _comes_back(self, number: int, task: Command, status: int) -> bool:
        """Whether a task is tried again: if it had too much beside it, or was killed for the first time."""
        if status != KILLED:
            return status in NOT_REUSABLE and self._limit.most(number) > 1
        is_first = task.name not in self._killed
        self._killed.add(task.name)
        return is_first

    def _requeue(self, number: int, place: float, task: Command, status: int) -> None:
        """Let a task that had too much beside it, which `status` tells, be done again, and fewer at once."""
        if status not in self._told:
            logger.warning(_TRIED_AGAIN[status], self._limit.most(number))
        self._told.add(status)
        self._limit.did_not_fit(number, task.name)
        self._left = dict(sorted([*self._left.items(), (place, task)], key=lambda item: item[0]))
        self._show_limit()

    def _split(self, place: float, task: Command, reason: str) -> None:
        """Run the members of a failed group one by one, so that each reports its own error."""
        logger.warning(
            "%s and %d more runs failed when trained together, so fedrec trains them one by one: %s",
            task.name, task.count - 1, reason,
        )  # fmt: skip
        places = ((place + number / task.count, each) for number, each in enumerate(task.members))
        self._left = dict(sorted([*self._left.items(), *places], key=lambda item: item[0]))
        self._progress.is_longer_by(sum(each.seconds for each in task.members) - task.seconds)
        self._limit.is_over(task.name, failed=True)
        self._change.notify_all()

    def _note(self, task: Command, status: int, said: str) -> None:
        """Take down that a task is over."""
        failed = status != 0
        if failed:
            reason = _reason(status, said)
            for each in task.members or (task,):
                self.failures[each.name] = reason
                # Said at once as well: who is stopped for good does not come to the end, which tells it all.
                logger.warning("%s failed: %s", each.name, _in_a_line(reason, said))
                _write_log(each, said, reason)
        self._limit.is_over(task.name, failed=failed)
        self._show_limit()
        self._progress.update(task.seconds, task.count, failed=failed)
        self._change.notify_all()

    def _show_limit(self) -> None:
        self._progress.at_once = self._limit.at_once if self._limit.is_smaller else None

    def _next(self, number: int) -> tuple[float, Command] | None:
        """A task and its place, as soon as the member may do one; None where none is left.

        A task that comes back when none is left is done by the member that put it back.
        """
        with self._change:
            if self._is_over or self._limit.admits(number):
                return self._taken(number)
        self._leave(number)
        with self._change:
            self._change.wait_for(lambda: self._is_over or self._limit.admits(number))
            return self._taken(number)

    @property
    def _is_over(self) -> bool:
        return self._stopping or not self._left

    def _taken(self, number: int) -> tuple[float, Command] | None:
        """The first task of the kind the worker did last; else of a kind nobody is at; else the first.

        No further on than `_reach` places from the first.
        """
        if self._is_over:
            return None
        at = set(self._kinds.values())
        own = self._kinds.get(number)
        first = next(iter(self._left))
        near = takewhile(lambda place: place < first + self._reach, self._left)
        place = min(near, key=lambda place: (self._left[place].kind != own, self._left[place].kind in at))
        task = self._left.pop(place)
        self._kinds[number] = task.kind
        self._limit.begin(number)
        # Where it was the last one, nobody needs to wait for another.
        self._change.notify_all()
        return place, task

    def _leave(self, number: int) -> None:
        """Let the process of a member end, which holds memory until then, and others have its place."""
        with self._change:
            worker = self._workers.pop(number, None)
            self._kinds.pop(number, None)
        if worker is not None:
            worker.end()
        with self._change:
            self._limit.leave(number)
            self._change.notify_all()

    def _done(self, number: int, task: Command) -> tuple[int, str]:
        """The exit status of a task, and what it said."""
        try:
            with tempfile.TemporaryFile() as said:
                status = self._worker(number).do(task.arguments, said.fileno(), said.fileno())
                said.seek(0)
                return status, said.read().decode("utf-8", "replace")
        except Exception as error:
            # The process, if there is one, may have received a part of the task.
            self._leave(number)
            return 1, error_text(error)

    def _worker(self, number: int) -> Worker:
        with self._change:
            known = self._workers.get(number)
            if known is None or not known.is_alive:
                self._workers[number] = self.start()
            if known is not None and not known.is_alive:
                known.end()
            return self._workers[number]


def _write_log(task: Command, said: str, reason: str) -> None:
    """Keep what a task said that failed; it ends with the reason, for who looks at its log."""
    if task.log is None:
        return
    try:
        write_text(task.log, said if reason in said else f"{said}{ERROR_PREFIX}{reason}\n")
    except StorageError as error:
        # The reason is told all the same, when all is over.
        logger.warning("%s", error)


def _reason(status: int, said: str) -> str:
    """Why a task failed: its own message, or the end of all it said where it has none."""
    if status < 0:
        return describe_exit(status) + (", twice" if status == KILLED else "")
    return failure_message(said) or f"it ended with status {status}"


def _in_a_line(reason: str, said: str) -> str:
    """What is wrong, in short: a message of its own begins with it, a traceback ends with it."""
    lines = reason.splitlines()
    return lines[0 if f"{ERROR_PREFIX}{lines[0]}" in said else -1]


def failure_message(said: str) -> str:
    """What a command said before it failed: its own message, or the end of all it said where it has none."""
    return "\n".join(log_tail(said, _MOST_LINES)).removeprefix(ERROR_PREFIX)
