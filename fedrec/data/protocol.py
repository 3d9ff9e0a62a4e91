"""A protocol: every choice between interactions and a number in a table, named and frozen.

It is written into each split's metadata, and from there into every result.
"""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from fedrec.files import canonical_json


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
        """The paper whose rules these are; None for a protocol of our own."""
        kind, _, paper = self.name.partition("-")
        return paper if kind == "published" else None

    def as_dict(self) -> dict[str, Any]:
        """All settings, for metadata."""
        return asdict(self)

    def recipe(self) -> str:
        """All settings in one canonical line."""
        return canonical_json(self.as_dict())
