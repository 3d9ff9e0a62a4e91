"""The limit of workers at once: the requested number, and fewer for a while after a failure.

A failure is a lack of memory, or an error that makes all workers that share a GPU lose it.
"""


class ConcurrencyLimit:
    """The workers that hold memory, and their highest number.

    Each that does not fit makes it smaller: to those that stay, but for a whole pool that fails together, of
    which one half may do. Once none of these is left it grows again, by one for each that did fit. A task
    that comes back has fewer beside it every time, so that it ends up alone if need be.

    Knows nothing of threads: who shares it among some lets in one at a time.
    """

    def __init__(self, size: int) -> None:
        self.at_once = size
        """How many may be at work."""
        self._size = size
        self._most: dict[int, int] = {}
        """Who is in: how many were, at most, since its task began."""
        self._leaving: set[int] = set()
        self._came_back: set[str] = set()

    @property
    def is_smaller(self) -> bool:
        """Whether fewer may be at work than are asked for."""
        return self.at_once < self._size

    def admits(self, member: int) -> bool:
        """Whether a member that is in, or comes in, may begin a task."""
        return len(self._most.keys() - {member}) < self.at_once

    def begin(self, member: int) -> None:
        """A member begins a task."""
        self._most[member] = 0
        now = len(self._most)
        self._most = {each: max(most, now) for each, most in self._most.items()}

    def most(self, member: int) -> int:
        """How many were in at once, at most, since the task of a member began; 1 if it was alone."""
        return self._most[member]

    def did_not_fit(self, member: int, task: str) -> None:
        """The task of a member, who is to leave, did not fit beside the others, and comes back."""
        self._came_back.add(task)
        self._leaving.add(member)
        staying = len(self._most) - len(self._leaving)
        self.at_once = min(self.at_once, max(1, staying, self._most[member] // 2))

    def is_over(self, task: str, *, failed: bool) -> None:
        """A task does not come back any more."""
        self._came_back.discard(task)
        if not failed and not self._came_back:
            self.at_once = min(self._size, self.at_once + 1)

    def leave(self, member: int) -> None:
        """A member, if it is in, holds no memory any more."""
        self._most.pop(member, None)
        self._leaving.discard(member)
