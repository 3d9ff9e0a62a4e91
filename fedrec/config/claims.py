"""The papers' main claims: which line of a table is better than which.

`config/claims.yaml` declares them. A claim refers to lines of tables in `config/papers`, and takes methods,
settings and numbers from there.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrec.config.document import Document, KeyPath
from fedrec.config.papers import Artefact, Line, Paper
from fedrec.config.schema import load
from fedrec.errors import ConfigurationError, did_you_mean

NOT_COUNTED = "not_counted"
"""The key with datasets whose verdicts are not counted; every other key is a paper."""
COSTS_LITTLE = "costs_little"
"""The kind of claims that something, such as noise, costs little."""
OTHERS = "others"
"""The word for every other line that the paper calls federated."""


@dataclass(frozen=True)
class Claim:
    """A claim about a line of a table or figure: that it is above others, or not far below one."""

    paper: str
    name: str
    text: str
    kind: str
    """beats (the best of several others), gain (over one other) or costs_little (against one other)."""
    artefacts: tuple[Artefact, ...]
    """The tables and figures that show it."""
    line: str
    """The line's label, or its run without a label."""
    over: tuple[str, ...]
    """The lines it is compared with."""
    datasets: tuple[str, ...]
    """The datasets of its tables for which the paper makes the claim."""
    not_counted: Mapping[str, str] = field(default_factory=dict)
    """Reasons by dataset: verdicts there are shown, but not counted."""
    exact: tuple[Artefact, ...] = ()
    """The paper's tables with exact metrics."""
    over_others: bool = False
    """Whether it compares with every other federated line, without naming them."""

    @property
    def id(self) -> str:
        """Its name among all: `pfedclr-beats-federated`."""
        return f"{self.paper}-{self.name}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Every line it is about, its own first."""
        return (self.line, *self.over)


def load_claims(path: Path, papers: Mapping[str, Paper]) -> list[Claim]:
    """Read and check the file of claims: every line it names must be a run in the tables it names."""
    document = load(path, "claims")
    of_papers = {paper: claims for paper, claims in document.content.items() if paper != NOT_COUNTED}
    for paper in of_papers:
        _check_known(document, (paper,), paper, papers)
    claims = [_claim(document, papers[paper], name) for paper, named in of_papers.items() for name in named]
    datasets = {dataset for claim in claims for dataset in claim.datasets}
    for dataset in document.content.get(NOT_COUNTED, ()):
        _check_known(document, (NOT_COUNTED, dataset), dataset, sorted(datasets))
    return claims


def named_lines(artefact: Artefact) -> dict[str, Line]:
    """The runs among an artefact's lines, by label, or by run where a line has no label.

    A name that several lines share names none of them.
    """
    named = [(line.label or line.run, line) for line in artefact.lines if line.run is not None]
    names = [name for name, _ in named]
    return {name: line for name, line in named if name is not None and names.count(name) == 1}


def _claim(document: Document, paper: Paper, name: str) -> Claim:
    content, key = document.content[paper.name][name], (paper.name, name)
    for shown in content["shown"]:
        _check_known(document, (*key, "shown"), shown, paper.artefacts)
    artefacts = tuple(paper.artefacts[shown] for shown in content["shown"])
    over = _compared(document, key, content, artefacts[0])
    for artefact in artefacts:
        lines = named_lines(artefact)
        _check_known(document, (*key, "line"), content["line"], lines)
        for other in over:
            _check_known(document, (*key, "over"), other, lines)
    common = [
        dataset
        for dataset in artefacts[0].datasets
        if all(dataset in artefact.datasets for artefact in artefacts)
    ]
    datasets = tuple(content.get("datasets", common))
    for dataset in datasets:
        _check_known(document, (*key, "datasets"), dataset, common)
    reasons = document.content.get(NOT_COUNTED, {})
    return Claim(
        paper.name, name, content["text"], content["kind"], artefacts, content["line"], over, datasets,
        {dataset: reasons[dataset] for dataset in datasets if dataset in reasons},
        tuple(artefact for artefact in paper.artefacts.values() if artefact.has_exact_ranks),
        content["over"] == OTHERS,
    )  # fmt: skip


def _compared(
    document: Document, key: KeyPath, content: Mapping[str, Any], artefact: Artefact
) -> tuple[str, ...]:
    """The names of the lines a claim is compared with."""
    location = document.location((*key, "over"))
    line, over, kind = content["line"], content["over"], content["kind"]
    if over == OTHERS:
        federated = [
            name
            for name, line in named_lines(artefact).items()
            if line.printed is not None and line.printed[1] == "federated"
        ]
        over = [name for name in federated if name != line]
        if not over:
            raise ConfigurationError(
                f"{location}: {artefact.target} prints no other federated line. Name the lines to compare "
                "with."
            )
    if line in over:
        raise ConfigurationError(f"{location}: '{line}' would be compared with itself. Remove it.")
    if kind != "beats" and len(over) != 1:
        raise ConfigurationError(
            f"{location}: a claim of kind {kind} compares with one line, but {len(over)} are given. "
            "Give one, or write kind: beats."
        )
    return tuple(over)


def _check_known(document: Document, key: KeyPath, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ConfigurationError(
            f"{document.location(key)}: unknown name '{name}'.{did_you_mean(name, known)} Known names: "
            f"{', '.join(known)}."
        )
