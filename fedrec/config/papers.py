"""The papers' tables and figures as configuration: what each shows, and the runs it is made of.

`config/papers/<paper>.yaml` names them. A run is shared by all that show it: settings that say
nothing new leave a run's name, and under the clean protocol, where all papers have the same
split, a run belongs to the first paper with these settings.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedrec.config.document import load
from fedrec.config.methods import canonical, resolve
from fedrec.config.names import parse
from fedrec.config.protocol import protocol_name
from fedrec.config.records import merged_records, spelled_records
from fedrec.errors import ConfigurationError, did_you_mean

PAPERS = ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap")
KINDS = ("published", "clean")
PICTURES = ("trajectories", "maps", "heatmaps", "abundance", "inference")
"""Figures that look inside trained models."""
FIGURES = ("convergence", "sweep", "bars", "curricula", "bubbles", "groups", *PICTURES)
UNTRAINED = ("statistics", "rates", "curricula", "inactive", "space", "costs")
"""Layouts that need no runs."""
DATALESS = ("rates", "curricula", "costs")
"""Layouts that need no data either."""


@dataclass(frozen=True, order=True)
class Run:
    """One training run."""

    paper: str
    dataset: str
    kind: str
    method: str
    seed: int

    @property
    def folder(self) -> str:
        """Its folder below the results."""
        return f"runs/{self.paper}/{self.dataset}/{self.kind}/{self.method}/seed{self.seed}"


@dataclass(frozen=True)
class Line:
    """A line of a table or a curve of a figure: a method, and what it stands for in print.

    A line of two others (`gain`) shows how much the second is above the first, in percent.
    """

    label: str | None = None
    run: str | None = None
    gain: tuple[str, str] | None = None
    mean: tuple[str, ...] = ()
    """Labels of lines whose mean this one shows."""
    printed: tuple[str, str] | None = None
    """Method and variant of the published numbers."""
    value: float | str | None = None
    """What a sweep changes for this line."""
    tables: tuple[str, ...] = ()
    """The item tables a picture shows of its model (see `fedrec.runs.inside`)."""


@dataclass(frozen=True)
class Artefact:
    """A table or figure of a paper."""

    paper: str
    name: str
    title: str
    layout: str
    datasets: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()
    printed: str | None = None
    """The table of the published numbers."""
    options: Mapping[str, Any] = field(default_factory=dict)
    keep: tuple[str, ...] = ()
    """What its runs keep besides their final state, as `fedrec train --keep` takes it."""

    @property
    def target(self) -> str:
        """Its name among all: `pfedclr_table1`."""
        return f"{self.paper}_{self.name}"

    @property
    def form(self) -> Literal["table", "figure"]:
        """Whether it is written or drawn."""
        return "figure" if self.layout in FIGURES else "table"

    @property
    def files(self) -> list[str]:
        """What it consists of, below the results; a figure's data is in the csv, its caption in the txt."""
        endings = ("csv", "pdf", "png", "txt") if self.form == "figure" else ("csv", "md", "tex")
        return [f"{self.form}s/{self.target}.{ending}" for ending in endings]


@dataclass(frozen=True)
class Paper:
    """A paper: its short name, what it is called, and its tables and figures by name."""

    name: str
    title: str
    artefacts: Mapping[str, Artefact]
    schemes: Mapping[str, str]
    """What of the paper shows no data, and so is not built."""


def load_papers(folder: Path) -> dict[str, Paper]:
    """Read and check the file of every paper."""
    return {name: _paper(name, load(folder / f"{name}.yaml", "paper").content) for name in PAPERS}


def artefacts_of(papers: Mapping[str, Paper], names: Iterable[str]) -> list[Artefact]:
    """The artefacts behind names of papers (all of theirs) or of artefacts, each once."""
    every = {one.target: one for paper in papers.values() for one in paper.artefacts.values()}
    found: dict[str, Artefact] = {}
    for name in names:
        if name in papers:
            chosen = list(papers[name].artefacts.values())
        elif name in every:
            chosen = [every[name]]
        else:
            known = [*papers, *every]
            raise ConfigurationError(
                f"unknown paper, table or figure '{name}'.{did_you_mean(name, known)} "
                "`fedrec papers` lists them."
            )
        found |= {one.target: one for one in chosen}
    return list(found.values())


def runs_of(
    artefact: Artefact, methods: Mapping[str, Any], seeds: Sequence[int], unavailable: Container[str] = ()
) -> dict[tuple[int, str, str], list[Run]]:
    """The runs of an artefact on those of its datasets, and splits of them, that can be had.

    By the place of the line, the dataset and the protocol: one run per seed. `unavailable` holds datasets,
    and splits of them as `dataset/protocol`, that cannot.
    """
    return {
        (place, dataset, kind): [
            run_of(methods, artefact.paper, dataset, kind, line.run, seed) for seed in seeds
        ]
        for place, line in enumerate(artefact.lines)
        if line.run is not None
        for dataset in artefact.datasets
        if dataset not in unavailable
        for kind in artefact.options.get("kinds", KINDS)
        if kind != "published" or f"{dataset}/published-{artefact.paper}" not in unavailable
    }


def keeps_of(
    papers: Mapping[str, Paper], methods: Mapping[str, Any], seeds: Sequence[int]
) -> dict[Run, list[str]]:
    """What runs have to keep for any table or figure, as `--keep` takes it; only runs that keep something.

    It does not depend on what is to be built: a run's files are the same whatever they were made for.
    """
    found: dict[Run, list[str]] = {}
    for paper in papers.values():
        for one in paper.artefacts.values():
            for runs in runs_of(one, methods, seeds).values() if one.keep else ():
                for run in runs:
                    found.setdefault(run, []).extend(one.keep)
    return {run: spelled_records(merged_records(found[run])) for run in sorted(found)}


def without(artefact: Artefact, unavailable: Mapping[str, str]) -> dict[str, str]:
    """Why datasets of an artefact, or their published splits (`dataset/protocol`), cannot be had."""
    own = [
        name for dataset in artefact.datasets for name in (dataset, f"{dataset}/published-{artefact.paper}")
    ]
    return {name: unavailable[name] for name in own if name in unavailable}


def can_be_built(artefact: Artefact, unavailable: Mapping[str, str]) -> bool:
    """Whether an artefact needs no data, or one of its datasets can be had under a protocol it shows."""
    split_matters = artefact.layout not in UNTRAINED and "clean" not in artefact.options.get("kinds", KINDS)
    missing = without(artefact, unavailable)
    return artefact.layout in DATALESS or any(
        dataset not in missing and not (split_matters and f"{dataset}/published-{artefact.paper}" in missing)
        for dataset in artefact.datasets
    )


def run_of(methods: Mapping[str, Any], paper: str, dataset: str, kind: str, method: str, seed: int) -> Run:
    """The run that trains `method` as `paper` would, under its one name."""
    name = minimal(methods, method, paper, dataset)
    if protocol_name(kind, paper) == kind:
        paper = _first_alike(methods, name, paper, dataset)
        name = minimal(methods, method, paper, dataset)
    return Run(paper, dataset, kind, name, seed)


def minimal(methods: Mapping[str, Any], name: str, paper: str, dataset: str) -> str:
    """The canonical name without changes to what is the paper's own value on the dataset anyway."""
    composition = parse(canonical(methods, name))
    plain, _, _ = resolve(methods, str(replace(composition, changes=())), paper, dataset)
    changed, _, _ = resolve(methods, str(composition), paper, dataset)
    kept = tuple((key, text) for key, text in composition.changes if changed[key] != plain[key])
    return str(replace(composition, changes=kept))


def shortened(
    methods: Mapping[str, Any], names: Iterable[str], paper: str, dataset: str, rounds: int | None
) -> list[str]:
    """The names of the same methods trained for `rounds` at most; unless a name sets its own number."""
    found = []
    for name in names:
        composition = parse(name)
        own, sources, _ = resolve(methods, name, paper, dataset)
        if rounds is not None and own["rounds"] > rounds and sources["rounds"] != "user":
            composition = replace(composition, changes=(*composition.changes, ("rounds", str(rounds))))
        found.append(canonical(methods, str(composition)))
    return found


def _first_alike(methods: Mapping[str, Any], name: str, paper: str, dataset: str) -> str:
    wanted, _, _ = resolve(methods, name, paper, dataset)
    return next(
        other for other in PAPERS if other == paper or resolve(methods, name, other, dataset)[0] == wanted
    )


def _paper(name: str, content: Mapping[str, Any]) -> Paper:
    artefacts = {key: _artefact(name, key, dict(found)) for key, found in content["artefacts"].items()}
    return Paper(name, content["title"], artefacts, content.get("schemes", {}))


def _artefact(paper: str, name: str, content: dict[str, Any]) -> Artefact:
    known = {key: content.pop(key, None) for key in ("title", "layout", "datasets", "metrics", "printed")}
    lines = [_line(line) for line in content.pop("lines", ())]
    if "values" in content:
        lines = [_varied(line, content["setting"], value) for line in lines for value in content["values"]]
    keeps = {kind: [] if users is True else users for kind, users in content.pop("keep", {}).items()}
    return Artefact(
        paper, name, known["title"], known["layout"], tuple(known["datasets"] or ()),
        tuple(known["metrics"] or ()), tuple(lines), known["printed"], content, tuple(spelled_records(keeps)),
    )  # fmt: skip


def _line(content: str | Mapping[str, Any]) -> Line:
    """A line given by its run alone, or by more."""
    if isinstance(content, str):
        return Line(run=content)
    found = dict(content)
    for key in ("gain", "mean", "printed", "tables"):
        if key in found:
            found[key] = tuple(found[key])
    return Line(**found)


def _varied(line: Line, setting: str, value: object) -> Line:
    assert line.run is not None, "a sweep varies runs"
    text = ("x".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    composition = parse(line.run)
    varied = replace(composition, changes=(*composition.changes, (setting, text)))
    return replace(line, run=str(varied), value=text if isinstance(value, list) else value)  # type: ignore[arg-type]
