"""A protocol: every choice between interactions and a metric.

Each split stores its protocol in the metadata, and every result copies it from there.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedrec.errors import ConfigurationError
from fedrec.files.atomic import canonical_json

SWITCHES: Mapping[str, tuple[str, ...]] = {
    "pool": ("negative_pool",),
    "repeats": ("repeated_pairs",),
    "lists": ("candidate_lists",),
    "round": ("round_rule",),
    "ties": ("ranked_score", "rank_ties"),
    "order": ("equal_times", "no_times"),
}
"""The steps from a published protocol to the clean one, and the settings that each step changes."""

OWN = "own"
"""The value in place of a paper for a run that follows none: its method's entry names no paper."""

_SEEDED = re.compile(r"([a-z]+)-\d+")
_OF_A_PAPER = re.compile(rf"(published|(?:only|upto)-(?:{'|'.join(SWITCHES)}))-(.+)")


def full_name(protocol: str, paper: str) -> str:
    """The full name of a protocol: `published-pfedrec` for `published` and the paper `pfedrec`.

    Full names, and names of protocols that belong to no paper (`clean`), do not change.
    """
    name = f"{protocol}-{paper}"
    if not _OF_A_PAPER.fullmatch(name) or _OF_A_PAPER.fullmatch(protocol):
        return protocol
    if paper == OWN:
        raise ConfigurationError(
            f"the protocol '{protocol}' differs by paper, and this method follows no paper. Name the paper: "
            f"{protocol}-pfedclr, or --paper pfedclr to use that paper's settings too."
        )
    return name


def short_name(protocol: str) -> str:
    """A protocol's name without its paper, for headings: `published`, `only-pool`, `clean`."""
    parts = _OF_A_PAPER.fullmatch(protocol)
    return parts[1] if parts else protocol


def paper_of(protocol: str) -> str | None:
    """The paper of a protocol, or of a step from that paper's protocol; None for shared protocols."""
    parts = _OF_A_PAPER.fullmatch(protocol)
    return parts[2] if parts else None


def rules_name(protocol: str) -> str:
    """The name of a protocol without its seed: `clean` for `clean-1`."""
    seeded = _SEEDED.fullmatch(protocol)
    return seeded[1] if seeded else protocol


@dataclass(frozen=True)
class Protocol:
    """One protocol. The values each setting may take are explained in `config/protocols.yaml`."""

    name: str
    seed: int
    repeated_pairs: Literal["keep", "drop"]
    equal_times: Literal["first_row", "random"]
    no_times: Literal["first_appearance", "random"]
    candidates: int
    candidate_lists: Literal["shared", "separate"]
    negative_pool: Literal["exclude_all", "exclude_train", "exclude_train_and_candidates"]
    ranked_score: Literal["probability", "logit"]
    rank_ties: Literal["target_last", "target_mean"]
    round_rule: Literal["best_validation", "best_test", "last"]
    cut: float | None = None
    """Share of rows before the cut time that splits all users; None to hold out each user's last items."""

    @property
    def paper(self) -> str | None:
        """The paper whose rules these are, or were before steps from them; None for one of our own."""
        return paper_of(self.name)

    def as_dict(self) -> dict[str, Any]:
        """All settings, for metadata; a cut only where there is one."""
        return {name: value for name, value in asdict(self).items() if name != "cut" or value is not None}

    def recipe(self) -> str:
        """All settings in one canonical line."""
        return canonical_json(self.as_dict())
