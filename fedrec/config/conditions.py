"""Under which conditions the papers' claims are judged: the one list that planning and reporting share."""

from collections.abc import Container
from dataclasses import dataclass

from fedrec.config.papers import BOTH


@dataclass(frozen=True)
class Condition:
    """A protocol, and with which settings methods are trained under it."""

    key: str
    """The beginning of the names of its columns in a csv."""
    title: str
    """For headings."""
    protocol: str
    """Its short name: `clean`."""
    tuned: bool = False
    """Whether methods have the settings that searches found under the clean protocol, or the paper's where
    these are better on validation."""

    @property
    def heading(self) -> str:
        """The protocol, and that settings were tuned, for columns."""
        return f"{self.protocol}, tuned" if self.tuned else self.protocol


PUBLISHED = Condition("published", "published", "published")
"""The paper's own protocol with the paper's settings: whether our runs reproduce a claim."""
CONDITIONS = (
    Condition("clean", "clean, untuned", "clean"),
    Condition("tuned", "clean, tuned", "clean", tuned=True),
    Condition("neutral", "neutral, untuned", "neutral"),
    Condition("neutral_tuned", "neutral, tuned", "neutral", tuned=True),
    Condition("temporal", "temporal, untuned", "temporal"),
)
"""Those that give verdicts. Untuned: with the paper's settings, as they are under its own protocol."""
MAIN = CONDITIONS[0]
"""The one that the headline counts."""


def conditions_among(protocols: Container[str], *, tuned: bool = False) -> tuple[Condition, ...]:
    """The conditions whose protocols are among `protocols`, or are those that everything is shown under.

    Those with tuned settings only where there are such.
    """
    return tuple(
        one
        for one in CONDITIONS
        if (one.protocol in BOTH or one.protocol in protocols) and (tuned or not one.tuned)
    )
