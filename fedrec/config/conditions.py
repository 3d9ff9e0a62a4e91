"""Under which conditions the papers' claims are judged: the one list that planning and reporting share."""

from collections.abc import Container
from dataclasses import dataclass

from fedrec.config.papers import BOTH


@dataclass(frozen=True)
class Condition:
    """A protocol, and with which settings methods are trained under it."""

    key: str
    """What its columns in a csv begin with."""
    title: str
    """For headings."""
    protocol: str
    """Its short name: `clean`."""


PUBLISHED = Condition("published", "published", "published")
"""The paper's own protocol with the paper's settings: whether our runs reproduce a claim."""
CONDITIONS = (
    Condition("clean", "clean, untuned", "clean"),
    Condition("neutral", "neutral, untuned", "neutral"),
)
"""Those that give verdicts. Untuned: with the paper's settings, as they are under its own protocol."""
MAIN = CONDITIONS[0]
"""The one that the headline counts."""


def conditions_among(protocols: Container[str]) -> tuple[Condition, ...]:
    """The conditions whose protocols are among `protocols`, or are those that everything is shown under."""
    return tuple(one for one in CONDITIONS if one.protocol in BOTH or one.protocol in protocols)
