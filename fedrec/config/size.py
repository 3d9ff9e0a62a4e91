"""How large a dataset is, for who guesses how long something takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """So many users, items and interactions."""

    users: int
    items: int
    interactions: int
