"""A protocol: every choice between interactions and a number in a table, named and frozen.

It is written into each split's metadata, and from there into every result.
"""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedrec.files.atomic import canonical_json

SWITCHES: Mapping[str, tuple[str, ...]] = {
    "pool": ("negative_pool",),
    "repeats": ("repeated_pairs",),
    "lists": ("candidate_lists",),
    "round": ("round_rule",),
    "ties": ("ranked_score", "rank_ties"),
    "order": ("equal_times", "no_times"),
}
"""What leads from a published protocol to the clean one, step by step, and the settings each step changes."""

_OF_A_PAPER = re.compile(rf"(published|(?:only|upto)-(?:{'|'.join(SWITCHES)}))-(.+)")


def protocol_name(kind: str, paper: str) -> str:
    """The protocol a run of `kind` follows: the paper's own, a step from it, or one all papers share."""
    name = f"{kind}-{paper}"
    return name if _OF_A_PAPER.fullmatch(name) else kind


def kind_of(name: str) -> str:
    """The inverse of `protocol_name`, without the paper."""
    found = _OF_A_PAPER.fullmatch(name)
    return found[1] if found else name


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

    @property
    def paper(self) -> str | None:
        """The paper whose rules these are, or were before steps from them; None for one of our own."""
        found = _OF_A_PAPER.fullmatch(self.name)
        return found[2] if found else None

    def as_dict(self) -> dict[str, Any]:
        """All settings, for metadata."""
        return asdict(self)

    def recipe(self) -> str:
        """All settings in one canonical line."""
        return canonical_json(self.as_dict())
