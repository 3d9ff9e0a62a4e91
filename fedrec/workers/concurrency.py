"""Limit the number of workers at once: the requested number, and fewer after a failure.

A failure is a lack of memory, or the loss of a GPU for all workers that share it.
"""


class ConcurrencyLimit:
    """The limit, and the members: workers that use memory.

    Each failed task lowers the limit to the members that stay, or to half of them if all fail together. Once
    every failed task has been repeated, each success raises the limit by one. A task that fails repeatedly
    has fewer neighbours each time, and finally runs alone.

    The class is not thread-safe: the caller must hold a lock.
    """

    def __init__(self, size: int) -> None:
        self.at_once = size
        """The current limit."""
        self._size = size
        self._most: dict[int, int] = {}
        """The largest number of members since each member's task began, by member."""
        self._leaving: set[int] = set()
        self._came_back: set[str] = set()

    @property
    def is_smaller(self) -> bool:
        """Whether the limit is below the requested number."""
        return self.at_once < self._size

    def admits(self, member: int) -> bool:
        """Whether a present or new member may begin a task."""
        return len(self._most.keys() - {member}) < self.at_once

    def begin(self, member: int) -> None:
        """Record that a member begins a task."""
        self._most[member] = 0
        now = len(self._most)
        self._most = {other: max(most, now) for other, most in self._most.items()}

    def most_at_once(self, member: int) -> int:
        """The largest number of members since the task of a member began; 1 if it was alone."""
        return self._most[member]

    def did_not_fit(self, member: int, task: str) -> None:
        """Record that the task of a member, which will leave, failed beside others and will be repeated."""
        self._came_back.add(task)
        self._leaving.add(member)
        staying = len(self._most) - len(self._leaving)
        self.at_once = min(self.at_once, max(1, staying, self._most[member] // 2))

    def is_over(self, task: str, *, failed: bool) -> None:
        """Record that a task has ended and will not be repeated."""
        self._came_back.discard(task)
        if not failed and not self._came_back:
            self.at_once = min(self._size, self.at_once + 1)

    def leave(self, member: int) -> None:
        """Remove a member, whose process has ended."""
        self._most.pop(member, None)
        self._leaving.discard(member)
