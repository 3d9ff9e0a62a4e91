"""The papers' tables and figures as configuration: what each shows, and the methods it is made of.

`config/papers/<paper>.yaml` names them; any file there is a paper. `fedrec.plan.selection` knows their runs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from fedrec.config.names import parse
from fedrec.config.protocol import full_name
from fedrec.config.records import spelled_records
from fedrec.config.schema import load
from fedrec.errors import ConfigurationError, did_you_mean

BOTH = ("published", "clean")
"""The protocols a table or figure is shown under unless it says otherwise: the paper's own and ours."""
BEST_FEDERATED = "best federated"
"""Stands in a gain for the best of the other lines that the paper calls federated."""


@dataclass(frozen=True)
class Line:
    """A line of a table or a curve of a figure: a method, and what it stands for in print.

    A line of two others (`gain`) shows how much the second is above the first: in percent, or in a table of
    space in megabytes.
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
    """The item tables a picture shows of its model (see `fedrec.runs.model_inspection`)."""

    @property
    def is_called_federated(self) -> bool:
        """Whether the paper prints it among its federated methods."""
        return self.printed is not None and self.printed[1] == "federated"


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
    record: tuple[str, ...] = ()
    """What its runs record besides their final state, as `fedrec train --record` takes it."""

    @property
    def target(self) -> str:
        """Its name among all: `pfedclr_table1`."""
        return f"{self.paper}_{self.name}"

    @property
    def has_exact_ranks(self) -> bool:
        """Whether its metrics are exact: by ranks among all items."""
        return self.options.get("ranks") == "catalogue"

    @property
    def protocols(self) -> tuple[str, ...]:
        """The full names of the protocols it is shown under."""
        return tuple(full_name(name, self.paper) for name in self.options.get("protocols", BOTH))

    @property
    def form(self) -> Literal["table", "figure"]:
        """Whether it is written or drawn."""
        return "figure" if self.name.startswith("fig") else "table"

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
    order: int | None = None
    """Its place among the papers; those without come last, by name."""


def load_papers(folder: Path) -> dict[str, Paper]:
    """Read and check the file of every paper in a folder; in their order."""
    paths = sorted(folder.glob("*.yaml"))
    if not paths:
        raise ConfigurationError(
            f"{folder}: contains no paper. Start the command in the project's top folder."
        )
    papers = [_paper(path.stem, load(path, "paper").content) for path in paths]
    papers.sort(key=lambda paper: (paper.order is None, paper.order or 0, paper.name))
    return {paper.name: paper for paper in papers}


def artefacts_of(papers: Mapping[str, Paper], names: Iterable[str]) -> list[Artefact]:
    """The artefacts behind names of papers (all of theirs) or of artefacts, each once."""
    every = {artefact.target: artefact for paper in papers.values() for artefact in paper.artefacts.values()}
    named: dict[str, Artefact] = {}
    for name in names:
        if name in papers:
            chosen = list(papers[name].artefacts.values())
        elif name in every:
            chosen = [every[name]]
        else:
            known = [*papers, *every]
            raise ConfigurationError(
                f"unknown paper, table or figure '{name}'.{did_you_mean(name, known)} `fedrec artefacts` "
                "lists them."
            )
        named |= {artefact.target: artefact for artefact in chosen}
    return list(named.values())


def _paper(name: str, content: Mapping[str, Any]) -> Paper:
    artefacts = {key: _artefact(name, key, dict(entry)) for key, entry in content["artefacts"].items()}
    return Paper(name, content["title"], artefacts, content.get("schemes", {}), content.get("order"))


def _artefact(paper: str, name: str, content: dict[str, Any]) -> Artefact:
    known = {key: content.pop(key, None) for key in ("title", "layout", "datasets", "metrics", "printed")}
    lines = [_line(line) for line in content.pop("lines", ())]
    if "values" in content:
        lines = [_varied(line, content["setting"], value) for line in lines for value in content["values"]]
    records = {kind: [] if users is True else users for kind, users in content.pop("record", {}).items()}
    return Artefact(
        paper, name, known["title"], known["layout"], tuple(known["datasets"] or ()),
        tuple(known["metrics"] or ()), tuple(lines), known["printed"], content,
        tuple(spelled_records(records)),
    )  # fmt: skip


def _line(content: str | Mapping[str, Any]) -> Line:
    """A line given by its run alone, or by more."""
    if isinstance(content, str):
        return Line(run=content)
    fields = dict(content)
    for key in ("gain", "mean", "printed", "tables"):
        if key in fields:
            fields[key] = tuple(fields[key])
    return Line(**fields)


def _varied(line: Line, setting: str, value: object) -> Line:
    assert line.run is not None, "a sweep varies runs"
    text = ("x".join(map(str, value)) or "none") if isinstance(value, list) else str(value)
    composition = parse(line.run)
    varied = replace(composition, changes=(*composition.changes, (setting, text)))
    return replace(line, run=str(varied), value=text if isinstance(value, list) else value)  # type: ignore[arg-type]
