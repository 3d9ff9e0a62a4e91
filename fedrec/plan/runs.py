"""Training runs by name: the spelling of a run, the folder of its files, and the papers that share it.

A run's name leaves out settings that equal the paper's value. Papers share runs under a protocol that belongs
to no paper, such as `clean`: a run with the settings of several papers is stored under the first of them, in
the order in which `config/methods.yaml` mentions papers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedrec.config.methods import Methods, canonical, resolve
from fedrec.config.names import folder_name, parse
from fedrec.config.protocol import full_name, paper_of

SUMMARY, STATE = "run.json", "state.safetensors"
TABLES = ("curve", "timing", "ranks")
FILES = (SUMMARY, STATE, *(f"{table}.parquet" for table in TABLES))
"""The files of a finished run, in its folder."""
DIVERGED = "diverged"
"""The key of a diverged run's summary: the round, and the reason as text."""
MODEL, MODEL_BYTES = "model", "model_bytes"
"""Keys of a summary: whether the model was omitted or requested, and the size of an omitted model."""
NOT_KEPT, WANTED = "not kept", "kept on request"
"""The values of `MODEL`: the model was not written; it was written because the user asked for it."""
SMALL, ALWAYS, NEVER = MODELS = ("small", "always", "never")
"""Choices of models to write: those of at most `LARGE_MODEL` bytes, all, or none."""
LARGE_MODEL = 100_000_000
"""Size in bytes above which a model is written only on request: code forges refuse larger files."""
REFUSED, KEPT = "refused", "kept"
"""Outcomes of a training that diverges: an error, or a result marked as diverged."""


RUN_DEPTH = 6
"""Parts of a run's path: runs/paper/dataset/protocol/method/seed."""


@dataclass(frozen=True, order=True)
class RunId:
    """One training run: `method` is spelt canonically, `protocol` by its full name."""

    paper: str
    dataset: str
    protocol: str
    method: str
    seed: int

    @classmethod
    def of_summary(cls, summary: Mapping[str, Any]) -> "RunId":
        """The run that a run.json names."""
        protocol = summary["protocol"]["name"]
        return cls(summary["paper"], summary["dataset"], protocol, summary["method"], summary["seed"])

    @property
    def folder(self) -> str:
        """Its folder below the results; no part needs quoting in a shell or in a glob pattern."""
        return f"runs/{self.paper}/{self.dataset}/{self.protocol}/{folder_name(self.method)}/seed{self.seed}"

    @property
    def split(self) -> str:
        """The folder of its split below the results."""
        return f"data/{self.dataset}/{self.protocol}"


def lacks_model(summary: Mapping[str, Any], wanted: str) -> bool:
    """Whether a finished run has no model, although `wanted`, one of `MODELS`, requires one."""
    if summary.get(MODEL) != NOT_KEPT or wanted == NEVER:
        return False
    return wanted == ALWAYS or summary.get(MODEL_BYTES, 0) <= LARGE_MODEL


def below_results(folder: Path) -> Path | None:
    """The part of a run's folder below its results; None if the path is not one of the workflow's."""
    parts = folder.parts
    return Path(*parts[-RUN_DEPTH:]) if len(parts) >= RUN_DEPTH and parts[-RUN_DEPTH] == "runs" else None


def log_of(folder: Path) -> Path | None:
    """The log of the run in a folder; None if the path is not one of the workflow's."""
    below = below_results(folder)
    return None if below is None else Path(*folder.parts[:-RUN_DEPTH], "logs", below, "train.log")


def run_of(methods: Methods, paper: str, dataset: str, protocol: str, method: str, seed: int) -> RunId:
    """The run that trains `method` with the settings of `paper`, by its unique name.

    `protocol` may be a short name of the paper's own: `published`, `only-pool`.
    """
    protocol = full_name(protocol, paper)
    shared = paper_of(protocol) is None
    paper, name = methods.memoised(
        ("run_of", paper, dataset, shared, method),
        lambda: _settings_of(methods, paper, dataset, method, shared=shared),
    )
    return RunId(paper, dataset, protocol, name, seed)


def _settings_of(methods: Methods, paper: str, dataset: str, method: str, *, shared: bool) -> tuple[str, str]:
    """The paper that a run is stored under, and its method's name there."""
    name = minimal(methods, method, paper, dataset)
    if not shared:
        return paper, name
    first = papers_with_equal_settings(methods, name, paper, dataset)[0]
    return first, minimal(methods, method, first, dataset)


def minimal(methods: Methods, name: str, paper: str, dataset: str) -> str:
    """The canonical name without changes that repeat the paper's value on the dataset."""
    composition = parse(canonical(methods, name))
    plain, _, _ = resolve(methods, str(replace(composition, changes=())), paper, dataset)
    changed, _, _ = resolve(methods, str(composition), paper, dataset)
    differing = tuple((key, text) for key, text in composition.changes if changed[key] != plain[key])
    return str(replace(composition, changes=differing))


def shortened(
    methods: Methods, names: Iterable[str], paper: str, dataset: str, rounds: int | None
) -> list[str]:
    """The names of methods limited to `rounds` rounds, except where a name sets its own number."""
    spellings = []
    for name in names:
        composition = parse(name)
        settings, sources, _ = resolve(methods, name, paper, dataset)
        if rounds is not None and settings["rounds"] > rounds and sources["rounds"] != "user":
            composition = replace(composition, changes=(*composition.changes, ("rounds", str(rounds))))
        spellings.append(canonical(methods, str(composition)))
    return spellings


def papers_with_equal_settings(
    methods: Methods, name: str, paper: str, dataset: str, changes: Sequence[str] = ()
) -> list[str]:
    """The papers whose settings of `name` equal those of `paper`, itself included; in order."""
    wanted, _, _ = resolve(methods, name, paper, dataset, changes)
    known = papers_in(methods)
    return [
        other
        for other in (known if paper in known else (*known, paper))
        if other == paper or resolve(methods, name, other, dataset, changes)[0] == wanted
    ]


def papers_in(methods: Methods) -> tuple[str, ...]:
    """Every paper that `config/methods.yaml` mentions, in the order of their first mention."""
    return methods.memoised(
        "papers",
        lambda: tuple(dict.fromkeys(paper for entry in methods.values() for paper in entry.papers_named)),
    )
