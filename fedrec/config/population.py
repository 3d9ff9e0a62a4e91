"""The size of a large synthetic dataset, in a module that machines without jsonschema can import."""

from dataclasses import dataclass

from fedrec.errors import ConfigurationError

FEWEST_PER_USER = 10
"""Least interactions per user on average: with fewer, many users have no training items."""


@dataclass(frozen=True)
class Population:
    """Numbers of users, items and interactions that `fedrec.data.population` generates from a seed."""

    seed: int
    users: int
    items: int
    interactions: int

    def __post_init__(self) -> None:
        most = self.users * self.items // FEWEST_PER_USER
        fewest = FEWEST_PER_USER * self.users
        if not fewest <= self.interactions <= most:
            raise ConfigurationError(
                f"{self.interactions:,} interactions of {self.users:,} users with {self.items:,} items: "
                f"give at least {fewest:,} ({FEWEST_PER_USER} per user) and at most {most:,} (one in "
                f"{FEWEST_PER_USER} of all pairs)."
            )
