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
"""The types without a range, and their allowed values as text."""
_SPELLED = {"text": re.compile(r"[A-Za-z0-9_.+-]+"), "path": re.compile(r"[A-Za-z0-9_.+/-]+")}
OURS, SEARCHED = "ours", "searched"
"""Sources of a value: fedrec's own choice; found by a search (see `fedrec.config.tuning`)."""
SHARED_PROTOCOL = "clean"
"""The protocol of searches that belong to no paper. Runs use their findings only by name."""
COMMON_DATASET = "ml-100k"
"""The dataset of all papers. Its findings apply to datasets without a search."""
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
"""Settings, by their names in other libraries."""


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
class Finding:
    """The finding of a search on a dataset."""

    trials: int
    settings: Mapping[str, Any]
    """The best values of what was searched."""
    held: Mapping[str, Any]
    """All other settings of every trial."""
    seeds: int = 1
    """The number of seeds of the chosen trial."""
    validation: float | None = None
    """Its mean NDCG@10 on validation; None in old entries."""


def setting_meant(word: str, known: Iterable[str]) -> str:
    """The hint ` Did you mean 'rate'?` for an unknown setting, by other libraries' names or by spelling."""
    names = list(known)
    meant = _OTHER_NAMES.get(word.lower())
    return f" Did you mean '{meant}'?" if meant in names else did_you_mean(word, names)


def entry_key(composition: Composition, paper: str) -> str:
    """The key of a finding in its entry: a plug-in's backbone, the name's settings, and the paper."""
    backbone = "" if composition.plugin is None else composition.backbone
    changed = str(replace(composition, backbone=backbone, plugin=None))
    return f"{changed}@{paper}" if changed else paper


def is_shared(key: str) -> bool:
    """Whether the finding with this key belongs to the shared protocol."""
    return key.rpartition("@")[2] == SHARED_PROTOCOL


FindingsByKey = Mapping[str, Mapping[str, Finding]]
"""Findings of searches, by place (see `entry_key`) and by dataset."""


@dataclass(frozen=True)
class Setting:
    """A setting of a method or plug-in: its meaning, its allowed values, and its values by paper."""

    meaning: str
    type: SettingType
    default: SourcedValue
    origin: str
    """The entry that defines it; others may include it by an anchor."""
    range: tuple[float, float] | None = None
    """The lowest and the highest value; None for a type without a range."""
    choices: tuple[str, ...] = ()
    nullable: bool = False
    papers: Mapping[str, SourcedValue] = field(default_factory=dict)
    """The values of papers that differ from the default."""

    def allows(self, value: object) -> bool:
        """Whether a value is allowed."""
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
        """The allowed values, as text."""
        if self.type in WORDS:
            return WORDS[self.type] + (", or null" if self.nullable else "")
        if self.range is None:
            return f"one of {', '.join(self.choices)}"
        low, high = self.range
        kind = "integers joined by x, each" if self.type == "integers" else self.type
        return f"{kind} from {low:g} to {high:g}" + (" or null" if self.nullable else "")

    def refusal(self, value: object) -> str:
        """The message about a value that is not allowed."""
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
    """The default paper of its runs."""
    seconds: float | None = None
    """Seconds of a round on MovieLens 100K on one CPU core; of a plug-in, those it adds to fedmf."""
    table_seconds: float = 0.0
    """The part of `seconds` that grows with users x items."""
    teaching: Mapping[str, Any] | None = None
    """Settings with which a test can see it learn, if the defaults are not suitable."""
    reference: str | None = None
    """For a baseline: the reason why it cannot learn from other users."""
    backbones: Mapping[str, str] = field(default_factory=dict)
    """The methods that a plug-in supports, and how it applies to each."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The methods that a plug-in does not support, and the reason."""
    composed: ValuesByKey = field(default_factory=dict)
    """Values that differ with one backbone under one paper, by both: `fedmf@plgc`."""
    findings: FindingsByKey = field(default_factory=dict)
    """Findings of searches."""

    @cached_property
    def papers_named(self) -> tuple[str, ...]:
        """The papers in the entry: its own, and those for which a setting differs or was searched."""
        default = () if self.paper is None else (self.paper,)
        differing = (paper for setting in self.settings.values() for paper in setting.papers)
        searched = () if self.backbones else (paper for paper in self.findings if not is_shared(paper))
        return tuple(dict.fromkeys((*default, *differing, *searched)))
