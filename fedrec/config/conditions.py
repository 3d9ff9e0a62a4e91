"""The conditions under which fedrec judges the papers' claims, for planning and reporting."""

from collections.abc import Container
from dataclasses import dataclass

from fedrec.config.papers import BOTH


@dataclass(frozen=True)
class Condition:
    """A protocol, and the choice of settings under it."""

    key: str
    """The prefix of its columns in a csv."""
    title: str
    """Its name in headings."""
    protocol: str
    """Its short name: `clean`."""
    tuned: bool = False
    """Whether methods have settings that a search found under the clean protocol, or the paper's settings if
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
"""The conditions of verdicts. Untuned: with the settings that the paper uses under its own protocol."""
MAIN = CONDITIONS[0]
"""The one that the headline counts."""


def conditions_among(protocols: Container[str], *, tuned: bool = False) -> tuple[Condition, ...]:
    """The conditions whose protocols are in `protocols` or are always shown; tuned ones only with `tuned`."""
    return tuple(
        condition
        for condition in CONDITIONS
        if (condition.protocol in BOTH or condition.protocol in protocols) and (tuned or not condition.tuned)
    )
