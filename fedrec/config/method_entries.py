"""Entries of `config/methods.yaml` as objects: a method or plug-in, its settings, and where values come from.

`fedrec.config.method_file` reads and checks them, `fedrec.config.found_file` adds what searches found.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from fedrec.config.document import quoted_value
from fedrec.config.names import Composition
from fedrec.errors import did_you_mean

SettingType = Literal["integer", "number", "choice", "integers", "text", "path", "bool"]
WORDS = {
    "text": "text of letters, digits, _, ., + and -",
    "path": "the path of a file, of letters, digits, _, ., -, + and /",
    "bool": "true or false",
}
"""The types without a range, and the values that each allows."""
_SPELLED = {"text": re.compile(r"[A-Za-z0-9_.+-]+"), "path": re.compile(r"[A-Za-z0-9_.+/-]+")}
OURS, SEARCHED = "ours", "searched"
"""Sources of a value: no paper and no code states it; a search found it (see `fedrec.config.tuning`)."""
SHARED_PROTOCOL = "clean"
"""The protocol of searches that belong to no paper: no run has what they found but by its name."""
COMMON_DATASET = "ml-100k"
"""The dataset that all papers share: what was found there holds where nothing was found."""
_OTHER_NAMES = {
    other: name
    for name, others in {
        "rate": "lr learning_rate eta step_size",
        "d": "dim dims dimension embed_dim embedding_dim emb_size embedding_size latent_dim n_factors",
        "rounds": "num_rounds n_rounds round iterations n_iter",
        "local_epochs": "epochs epoch num_epochs n_epochs local_epoch",
        "batch_size": "bs batch batchsize",
        "negatives": "num_negatives num_negative n_negatives num_neg neg n_neg",
        "participation": "fraction client_fraction clients_per_round sample_ratio",
        "optimiser": "optim opt",
        "reg": "regularization regularisation l2_reg lambda",
    }.items()
    for other in others.split()
}
"""Settings by the names that other libraries give them."""


@dataclass(frozen=True)
class SourcedValue:
    """A value of a setting, and where it comes from."""

    value: Any
    source: str
    datasets: Mapping[str, Any] = field(default_factory=dict)
    """Values on datasets where it differs."""

    def on(self, dataset: str) -> Any:  # noqa: ANN401
        """The value on a dataset."""
        return self.datasets.get(dataset, self.value)


@dataclass(frozen=True)
class Found:
    """The finding of a search on a dataset."""

    trials: int
    settings: Mapping[str, Any]
    """The best values of what was searched."""
    held: Mapping[str, Any]
    """All other settings of every trial."""
    seeds: int = 1
    """With how many seeds the chosen trial was trained."""
    validation: float | None = None
    """Its mean NDCG@10 on validation; None of what was found before this was noted."""


def setting_meant(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'rate'?` for a setting that is none of `known`: one that it is a name of, or near to."""
    names = list(known)
    meant = _OTHER_NAMES.get(word.lower())
    return f" Did you mean '{meant}'?" if meant in names else did_you_mean(word, names)


def entry_key(composition: Composition, paper: str) -> str:
    """Where a finding stands in its entry: by backbone of a plug-in, settings of the name, and paper."""
    backbone = "" if composition.plugin is None else composition.backbone
    changed = str(replace(composition, backbone=backbone, plugin=None))
    return f"{changed}@{paper}" if changed else paper


def is_shared(place: str) -> bool:
    """Whether the finding at a place belongs to the shared protocol, and to no paper."""
    return place.rpartition("@")[2] == SHARED_PROTOCOL


FoundByKey = Mapping[str, Mapping[str, Found]]
"""Findings of searches, by place (see `entry_key`) and by dataset."""


@dataclass(frozen=True)
class Setting:
    """A setting of a method or plug-in: its meaning, the values it may have, and those it has."""

    meaning: str
    type: SettingType
    default: SourcedValue
    origin: str
    """The entry that it is written in; others may take it over by an anchor."""
    range: tuple[float, float] | None = None
    """The least and the largest value; None for a type that has none."""
    choices: tuple[str, ...] = ()
    nullable: bool = False
    papers: Mapping[str, SourcedValue] = field(default_factory=dict)
    """The values in papers where it differs."""

    def allows(self, value: object) -> bool:
        """Whether it may have a value."""
        if value is None:
            return self.nullable
        if self.type == "bool":
            return isinstance(value, bool)
        if self.type in _SPELLED:
            return isinstance(value, str) and _SPELLED[self.type].fullmatch(value) is not None
        if self.range is None:
            return value in self.choices
        if (self.type == "integers") != isinstance(value, list):
            return False
        return all(self._has_in_range(part) for part in (value if isinstance(value, list) else [value]))

    def _has_in_range(self, number: object) -> bool:
        if self.range is None or isinstance(number, bool) or not isinstance(number, int | float):
            return False
        low, high = self.range
        return (isinstance(number, int) or self.type == "number") and low <= number <= high

    @property
    def allowed_values(self) -> str:
        """The values that it may have, in words."""
        if self.type in WORDS:
            return WORDS[self.type] + (", or null" if self.nullable else "")
        if self.range is None:
            return f"one of {', '.join(self.choices)}"
        low, high = self.range
        kind = "integers joined by x, each" if self.type == "integers" else self.type
        return f"{kind} from {low:g} to {high:g}" + (" or null" if self.nullable else "")

    def refusal(self, value: object) -> str:
        """The message about a value of a file that it may not have."""
        return f"{quoted_value(value)} is not allowed: {self.meaning}; {self.allowed_values}."


ValuesByKey = Mapping[str, Mapping[str, SourcedValue]]
"""Values that differ somewhere, by place and setting."""


@dataclass(frozen=True)
class MethodEntry:
    """The entry of a method, or of a plug-in."""

    name: str
    """Its key: `fedmf`, or `+plgc` for a plug-in."""
    title: str
    """Its name in tables."""
    settings: Mapping[str, Setting]
    paper: str | None = None
    """The paper that a run follows when none is named."""
    seconds: float | None = None
    """Seconds of a round on MovieLens 100K on one CPU core; of a plug-in, those it adds to fedmf."""
    table_seconds: float = 0.0
    """The seconds of those that grow with users x items."""
    teaching: Mapping[str, Any] | None = None
    """Values of settings with which a test sees it learn, where the usual ones are not for it."""
    reference: str | None = None
    """The reason why it cannot learn what users have in common, if others are compared with it."""
    backbones: Mapping[str, str] = field(default_factory=dict)
    """The methods that a plug-in goes with, and how it applies to each."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The methods that a plug-in does not go with, and the reason."""
    composed: ValuesByKey = field(default_factory=dict)
    """Values that differ with one backbone under one paper, by both: `fedmf@plgc`."""
    found: FoundByKey = field(default_factory=dict)
    """Findings of searches."""

    @cached_property
    def papers_named(self) -> tuple[str, ...]:
        """The papers that it speaks of: its own, and those in which a setting differs or was searched for."""
        own = () if self.paper is None else (self.paper,)
        differing = (paper for setting in self.settings.values() for paper in setting.papers)
        searched = () if self.backbones else (paper for paper in self.found if not is_shared(paper))
        return tuple(dict.fromkeys((*own, *differing, *searched)))
