"""The size of a made dataset that is to be large; of its own, so that training machines can read it."""

from dataclasses import dataclass

from fedrec.errors import ConfigurationError

FEWEST_PER_USER = 10
"""Interactions of a user on average: fewer leave many users none to train on."""


@dataclass(frozen=True)
class Population:
    """So many users, items and interactions, made by `fedrec.data.population` from a seed."""

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
