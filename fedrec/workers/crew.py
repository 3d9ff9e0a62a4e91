"""Many commands done by a few workers, each one after another; one that fails stops no other."""

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
from fedrec.workers.order import Order
from fedrec.workers.process import Worker, death_of

logger = logging.getLogger(__name__)

_SECONDS_BETWEEN_LOOKS = 0.5
_MOST_LINES = 30
"""Of what a command said before it failed."""
_OWN_WORDS = "fedrec: "
"""How the message begins of an error that is the input's or the machine's."""


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


_PLACED_BY: Mapping[Order, Callable[[Command], float]] = {
    "longest": lambda task: -task.seconds,
    "shortest": lambda task: task.seconds,
    "listed": lambda _: 0.0,
}


@dataclass
class Crew:
    """At most `size` workers, as `start` makes them, that do `tasks`: in `order`, but for those of a kind.

    With the longest first a worker stays with a kind until nothing is left of it. In another order, which is
    to hold wherever the work ends, a task is overtaken by fewer others than there are workers.
    """

    tasks: Iterable[Command]
    size: int
    start: Callable[[], Worker]
    order: Order = "longest"
    failures: dict[str, str] = field(default_factory=dict)
    """Why tasks failed, by their names."""

    def __post_init__(self) -> None:
        self._left = dict(enumerate(sorted(self.tasks, key=_PLACED_BY[self.order])))
        self._reach = len(self._left) if self.order == "longest" else self.size
        self._progress = TaskProgress([task.seconds for task in self._left.values()])
        self._workers: dict[int, Worker] = {}
        self._kinds: dict[int, str] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._at_work = 0
        # Not by joining threads: one that is interrupted takes them for ended (CPython, bpo-45274).
        self._look = threading.Event()

    def work(self) -> None:
        """Do all tasks. `KeyboardInterrupt` stops those in work, waits until they have, and comes back."""
        self._at_work = min(self.size, len(self._left))
        for number in range(self._at_work):
            threading.Thread(target=self._take_part, args=(number,), daemon=True).start()
        while self._at_work:
            try:
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
        """How many tasks are neither done nor have failed."""
        return self._progress.left

    @property
    def seconds_left(self) -> float | None:
        """About how long these take, by how long the others took; None where none was done."""
        return self._progress.seconds_left

    def _stop(self) -> None:
        with self._lock:
            self._stopping = True
            for worker in self._workers.values():
                worker.stop()

    def _take_part(self, number: int) -> None:
        """What a member does: one task after another."""
        try:
            self._do_tasks(number)
        finally:
            with self._lock:
                self._at_work -= 1
                if not self._at_work:
                    self._look.set()

    def _do_tasks(self, number: int) -> None:
        while (task := self._next(number)) is not None:
            status, said = self._done(number, task)
            with self._lock:
                if self._stopping and status != 0:
                    break
                if status != 0:
                    self.failures[task.name] = _reason(status, said)
                    _keep(task, said, self.failures[task.name])
                self._progress.update(task.seconds, failed=status != 0)
        worker = self._workers.get(number)
        if worker is not None:
            worker.end()

    def _next(self, number: int) -> Command | None:
        """The first task of the kind the worker did last; else of a kind nobody is at; else the first.

        No further on than `_reach` places from the first.
        """
        with self._lock:
            if self._stopping or not self._left:
                return None
            at = set(self._kinds.values())
            own = self._kinds.get(number)
            first = next(iter(self._left))
            near = takewhile(lambda place: place < first + self._reach, self._left)
            place = min(near, key=lambda place: (self._left[place].kind != own, self._left[place].kind in at))
            task = self._left.pop(place)
            self._kinds[number] = task.kind
            return task

    def _done(self, number: int, task: Command) -> tuple[int, str]:
        """The exit status of a task, and what it said."""
        with tempfile.TemporaryFile() as said:
            status = self._worker(number).do(task.arguments, said.fileno(), said.fileno())
            said.seek(0)
            return status, said.read().decode("utf-8", "replace")

    def _worker(self, number: int) -> Worker:
        with self._lock:
            known = self._workers.get(number)
            if known is None or not known.lives:
                self._workers[number] = self.start()
            if known is not None and not known.lives:
                known.end()
            return self._workers[number]


def _keep(task: Command, said: str, reason: str) -> None:
    """Keep what a task said that failed; it ends with the reason, for who looks at its log."""
    if task.log is None:
        return
    try:
        write_text(task.log, said if reason in said else f"{said}{_OWN_WORDS}{reason}\n")
    except StorageError as error:
        # The reason is told all the same, when all is over.
        logger.warning("%s", error)


def _reason(status: int, said: str) -> str:
    """Why a task failed: its own message, or the end of all it said where it has none."""
    return death_of(status) if status < 0 else last_words(said) or f"it ended with status {status}"


def last_words(said: str) -> str:
    """What a command said before it failed: its own message, or the end of all it said where it has none."""
    lines = said.strip().splitlines()
    own = [place for place, line in enumerate(lines) if line.startswith(_OWN_WORDS)]
    if own:
        return "\n".join(lines[own[-1] :]).removeprefix(_OWN_WORDS)
    return "\n".join(lines[-_MOST_LINES:])
