"""A pool of workers that run many commands; a failed command does not stop the others.

A command is repeated, with fewer at once, if it runs out of memory or loses its GPU while others run. A
command whose process is killed is repeated once.
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
"""Lines of a failed command's output to show."""


@dataclass(frozen=True)
class Command:
    """A command, with everything that decides its worker and its order."""

    name: str
    arguments: tuple[str, ...]
    kind: str
    """Commands of a kind share data and compiled kernels of a process, so that one worker should run them."""
    seconds: float
    """Estimated time, relative to other commands."""
    log: Path | None = None
    """The file for its output if it fails."""
    members: tuple["Command", ...] = ()
    """The commands that it groups, if any: they run one by one if the group fails."""

    @property
    def count(self) -> int:
        """The number of its members; 1 if it groups none."""
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
    """At most `size` workers, made by `start`, that run `tasks` in `order`; a worker prefers its last kind.

    With the longest first, a worker stays with a kind until no task of it is left. In other orders a task
    moves by fewer places than there are workers.

    A task that runs out of memory while others run returns to its place, and fewer tasks run at once from
    then on. Idle processes end, to free their memory. A task that runs out of memory alone has failed. The
    same holds for a task that loses its GPU or crashes: only one of the tasks on the GPU is faulty, and with
    fewer at once it finally fails alone. A task whose process is killed is repeated once.
    """

    tasks: Iterable[Command]
    size: int
    start: Callable[[], Worker]
    order: Order = "longest"
    failures: dict[str, str] = field(default_factory=dict)
    """The reasons of failed tasks, by name."""

    def __post_init__(self) -> None:
        self._left: dict[float, Command] = dict(enumerate(sorted(self.tasks, key=_PLACED_BY[self.order])))
        self._window = len(self._left) if self.order == "longest" else self.size
        self._progress = TaskProgress([(task.seconds, task.count) for task in self._left.values()])
        self._limit = ConcurrencyLimit(self.size)
        self._workers: dict[int, Worker] = {}
        self._kinds: dict[int, str] = {}
        # Guards the attributes above; notified when a waiting thread may continue.
        self._condition = threading.Condition()
        self._stopping = False
        self._warned: set[int] = set()
        self._killed: set[str] = set()
        self._members = 0
        # Instead of Thread.join, which an interrupt breaks (CPython, bpo-45274).
        self._all_ended = threading.Event()

    def work(self) -> None:
        """Run all tasks. `KeyboardInterrupt` stops running tasks, waits for them, and is raised again."""
        self._members = min(self.size, len(self._left))
        for number in range(self._members):
            threading.Thread(target=self._run_member, args=(number,), daemon=True).start()
        while self._members:
            try:
                # An inner loop, so that an interrupt at any point reaches the handler below.
                while self._members:
                    self._all_ended.wait(_SECONDS_BETWEEN_LOOKS)
                    self._progress.show()
            except KeyboardInterrupt:
                # A second interrupt sends a second signal: running tasks stop immediately.
                self._stop()
        self._progress.close()
        if self._stopping:
            raise KeyboardInterrupt

    @property
    def left(self) -> int:
        """The number of runs that are neither done nor failed."""
        return self._progress.left

    @property
    def seconds_left(self) -> float | None:
        """Estimated time of these runs, from finished ones; None if none is finished."""
        return self._progress.seconds_left

    def _stop(self) -> None:
        with self._condition:
            self._stopping = True
            for worker in self._workers.values():
                worker.stop()
            self._condition.notify_all()

    def _run_member(self, number: int) -> None:
        """Run one task after another, as a thread of the pool."""
        try:
            self._do_tasks(number)
        finally:
            self._leave(number)
            with self._condition:
                self._members -= 1
                if not self._members:
                    self._all_ended.set()

    def _do_tasks(self, number: int) -> None:
        while (taken := self._next(number)) is not None:
            place, task = taken
            status, output = self._run_task(number, task)
            with self._condition:
                if self._stopping and status != 0:
                    return
                if self._comes_back(number, task, status):
                    self._requeue(number, place, task, status)
                elif status and status != KILLED and task.members:
                    self._split(place, task, _reason(status, output))
                else:
                    self._note(task, status, output)
            if status in (*NOT_REUSABLE, KILLED):
                # The process still uses memory, has lost its GPU, or is dead.
                self._leave(number)

    def _comes_back(self, number: int, task: Command, status: int) -> bool:
        """Whether to repeat a task: it failed while others ran, or was killed for the first time."""
        if status != KILLED:
            return status in NOT_REUSABLE and self._limit.most_at_once(number) > 1
        is_first = task.name not in self._killed
        self._killed.add(task.name)
        return is_first

    def _requeue(self, number: int, place: float, task: Command, status: int) -> None:
        """Put a task that failed with `status` back into its place, and lower the limit."""
        if status not in self._warned:
            logger.warning(_TRIED_AGAIN[status], self._limit.most_at_once(number))
        self._warned.add(status)
        self._limit.did_not_fit(number, task.name)
        self._left = dict(sorted([*self._left.items(), (place, task)], key=lambda item: item[0]))
        self._show_limit()

    def _split(self, place: float, task: Command, reason: str) -> None:
        """Run the members of a failed group one by one, so that each reports its own error."""
        logger.warning(
            "%s and %d more runs failed when trained together, so fedrec trains them one by one: %s",
            task.name, task.count - 1, reason,
        )  # fmt: skip
        places = ((place + number / task.count, member) for number, member in enumerate(task.members))
        self._left = dict(sorted([*self._left.items(), *places], key=lambda item: item[0]))
        self._progress.is_longer_by(sum(member.seconds for member in task.members) - task.seconds)
        self._limit.is_over(task.name, failed=True)
        self._condition.notify_all()

    def _note(self, task: Command, status: int, output: str) -> None:
        """Record the end of a task."""
        failed = status != 0
        if failed:
            reason = _reason(status, output)
            for member in task.members or (task,):
                self.failures[member.name] = reason
                # Log it at once as well: a killed list prints no summary of failures.
                logger.warning("%s failed: %s", member.name, _in_a_line(reason, output))
                _write_log(member, output, reason)
        self._limit.is_over(task.name, failed=failed)
        self._show_limit()
        self._progress.update(task.seconds, task.count, failed=failed)
        self._condition.notify_all()

    def _show_limit(self) -> None:
        self._progress.at_once = self._limit.at_once if self._limit.is_smaller else None

    def _next(self, number: int) -> tuple[float, Command] | None:
        """Wait until the member may run a task; return its place and the task, or None if none is left.

        Waiting members end when no task is left, so a task that is put back later runs on one
        of the others, often the one that put it back.
        """
        with self._condition:
            if self._is_over or self._limit.admits(number):
                return self._take(number)
        self._leave(number)
        with self._condition:
            self._condition.wait_for(lambda: self._is_over or self._limit.admits(number))
            return self._take(number)

    @property
    def _is_over(self) -> bool:
        return self._stopping or not self._left

    def _take(self, number: int) -> tuple[float, Command] | None:
        """Take the first task of the worker's last kind, else of a kind that no worker runs, else the first.

        The task is at most `_window` places after the first.
        """
        if self._is_over:
            return None
        kinds_in_work = set(self._kinds.values())
        last_kind = self._kinds.get(number)
        first = next(iter(self._left))
        reachable = takewhile(lambda place: place < first + self._window, self._left)
        place = min(
            reachable,
            key=lambda place: (self._left[place].kind != last_kind, self._left[place].kind in kinds_in_work),
        )
        task = self._left.pop(place)
        self._kinds[number] = task.kind
        self._limit.begin(number)
        # Wake waiting threads: this may have been the last task.
        self._condition.notify_all()
        return place, task

    def _leave(self, number: int) -> None:
        """End the process of a member: its memory is free, and another member may begin a task."""
        with self._condition:
            worker = self._workers.pop(number, None)
            self._kinds.pop(number, None)
        if worker is not None:
            worker.end()
        with self._condition:
            self._limit.leave(number)
            self._condition.notify_all()

    def _run_task(self, number: int, task: Command) -> tuple[int, str]:
        """Run a task; return its exit status and its output."""
        try:
            with tempfile.TemporaryFile() as output:
                status = self._worker(number).do(task.arguments, output.fileno(), output.fileno())
                output.seek(0)
                return status, output.read().decode("utf-8", "replace")
        except Exception as error:
            # The process may have received a part of the task.
            self._leave(number)
            return 1, error_text(error)

    def _worker(self, number: int) -> Worker:
        with self._condition:
            known = self._workers.get(number)
            if known is None or not known.is_alive:
                self._workers[number] = self.start()
            if known is not None and not known.is_alive:
                known.end()
            return self._workers[number]


def _write_log(task: Command, output: str, reason: str) -> None:
    """Write the output of a failed task to its log, with the reason at the end."""
    if task.log is None:
        return
    try:
        write_text(task.log, output if reason in output else f"{output}{ERROR_PREFIX}{reason}\n")
    except StorageError as error:
        # The summary at the end has the reason as well.
        logger.warning("%s", error)


def _reason(status: int, output: str) -> str:
    """The reason of a failure: the task's own message, or the end of its output."""
    if status < 0:
        return describe_exit(status) + (", twice" if status == KILLED else "")
    return failure_message(output) or f"it ended with status {status}"


def _in_a_line(reason: str, output: str) -> str:
    """The reason in one line: the first line of fedrec's message, or the last line of a traceback."""
    lines = reason.splitlines()
    return lines[0 if f"{ERROR_PREFIX}{lines[0]}" in output else -1]


def failure_message(output: str) -> str:
    """fedrec's message in the output of a failed command, or the end of the output."""
    return "\n".join(log_tail(output, _MOST_LINES)).removeprefix(ERROR_PREFIX)
