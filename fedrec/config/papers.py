"""The papers' tables and figures: their layouts, datasets, metrics and lines.

`config/papers/<paper>.yaml` declares them; every file there is a paper. `fedrec.plan.selection` selects their
runs.
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
"""The default protocols of a table or figure: the paper's own, and `clean`."""
BEST_FEDERATED = "best federated"
"""The word in a gain for the best other line that the paper calls federated."""


@dataclass(frozen=True)
class Line:
    """A line of a table or a curve of a figure: a method, and its printed counterpart.

    A line with `gain` compares two other lines: how much the second is above the first, in percent, or in
    megabytes for a table of space.
    """

    label: str | None = None
    run: str | None = None
    gain: tuple[str, str] | None = None
    mean: tuple[str, ...] = ()
    """The labels of lines whose mean this line shows."""
    printed: tuple[str, str] | None = None
    """Method and variant of the published numbers."""
    value: float | str | None = None
    """The value of a sweep for this line."""
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
    """The records of its runs in addition to the final state, as `fedrec train --record` spells them."""

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
        """Its files, below the results; a figure's csv has its data, its txt the caption."""
        endings = ("csv", "pdf", "png", "txt") if self.form == "figure" else ("csv", "md", "tex")
        return [f"{self.form}s/{self.target}.{ending}" for ending in endings]


@dataclass(frozen=True)
class Paper:
    """A paper: its short name, what it is called, and its tables and figures by name."""

    name: str
    title: str
    artefacts: Mapping[str, Artefact]
    schemes: Mapping[str, str]
    """Figures without data, which fedrec does not build, with their subjects."""
    order: int | None = None
    """Its position among the papers; papers without a position come last, by name."""


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
    chosen_by_target: dict[str, Artefact] = {}
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
        chosen_by_target |= {artefact.target: artefact for artefact in chosen}
    return list(chosen_by_target.values())


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
