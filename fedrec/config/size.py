"""The size of a dataset, for estimates of time."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Numbers of users, items and interactions."""

    users: int
    items: int
    interactions: int
