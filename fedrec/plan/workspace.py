"""The whole configuration, read and checked once, and the availability of data."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fedrec.config.catalogue import Catalogue, load_catalogue
from fedrec.config.causes import check_causes
from fedrec.config.claims import Claim, load_claims
from fedrec.config.conditions import PUBLISHED
from fedrec.config.default_files import file_or_default
from fedrec.config.document import Document, KeyPath, error_at
from fedrec.config.found_file import with_findings
from fedrec.config.method_file import read_entries
from fedrec.config.methods import Methods, canonical, canonical_all, resolve, title
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Artefact, Paper, artefacts_of, load_papers
from fedrec.config.protocol import OWN, Protocol, paper_of, short_name
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.config.schema import check, load
from fedrec.config.tuning import Tuning, check_findings, load_tuning
from fedrec.data.locate import located
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.files.checked_json import with_checksum
from fedrec.plan.availability import (
    why_file_unavailable,
    why_not_at_one_time,
    why_split_unavailable,
    why_unavailable,
)
from fedrec.plan.evaluated import check_evaluated
from fedrec.plan.fingerprint import check_code
from fedrec.plan.layouts import Layout, layout_named, load_layouts
from fedrec.plan.runs import DIVERGED, KEPT, RunId, papers_in

CONFIGURATION_FILES = (
    "catalogue",
    "protocol_file",
    "method_file",
    "paper_folder",
    "claim_file",
    "tuning_file",
    "found_file",
)
"""Keys of the configuration that name its other files."""


@dataclass(frozen=True)
class Stored:
    """The content of a store, for reports without training."""

    runs: frozenset[RunId]
    older: frozenset[RunId] = frozenset()
    """The runs of older code."""
    measured: Mapping[str, frozenset[RunId]] = field(default_factory=dict)
    """The runs whose models were measured, by the layout that shows the measurement."""
    diverged: frozenset[RunId] = frozenset()
    """The runs that diverged: they have no model."""
    datasets: frozenset[str] = frozenset()
    """The datasets with stored statistics."""
    frozen: frozenset[str] = frozenset()
    """Targets whose files are stored as built, since their inputs are not stored."""
    evaluated: frozenset[str] = frozenset()
    """Folders of records of other systems' scores, which the leaderboard shows."""
    training: str | None = None
    """The folder of results in which missing runs would be trained; None for the folder of the reports."""


@dataclass(frozen=True)
class Workspace:
    """A checked configuration; methods are spelt canonically in it."""

    configuration: Mapping[str, Any]
    root: Path
    """The folder for relative paths of the configuration."""
    mirror: Path | None
    methods: Methods
    catalogue: Catalogue
    protocols: Mapping[str, Protocol]
    papers: Mapping[str, Paper]
    claims: tuple[Claim, ...]
    tuning: Tuning
    layouts: Mapping[str, Layout]
    stored: Stored | None = None
    """The store to report on without training; None if missing runs are to be trained."""
    attacked_runs: frozenset[RunId] | None = None
    """The runs whose uploads the requested targets attack; None if no targets are known."""
    inspected: frozenset[RunId] | None = None
    """The runs whose models the requested targets read; None if no targets are known."""

    @property
    def results(self) -> Path:
        """The folder for everything produced."""
        return self.root / str(self.configuration["results"])

    @property
    def training(self) -> Path:
        """The folder of results in which a missing run is trained."""
        elsewhere = self.stored.training if self.stored is not None else None
        return self.results if elsewhere is None else self.root / elsewhere

    @property
    def raw(self) -> Path:
        """The folder of raw files."""
        return self.results / "raw"

    @cached_property
    def demonstration(self) -> Self:
        """The same workspace with the synthetic dataset `demo` only."""
        changes = {"datasets": ["demo"], "rounds": self.configuration["demo_rounds"], "artefacts": []}
        return replace(self, configuration={**self.configuration, **changes})

    @cached_property
    def first_look(self) -> Self:
        """The same workspace with at most `quick_rounds` rounds, and without artefacts of papers."""
        most, quick = self.configuration["rounds"], self.configuration["quick_rounds"]
        changes = {"rounds": quick if most is None else min(quick, most), "artefacts": []}
        return replace(self, configuration={**self.configuration, **changes})

    @property
    def seeds(self) -> list[int]:
        """The seeds of all runs."""
        seeds: list[int] = self.configuration["seeds"]
        return seeds

    @property
    def compared_protocols(self) -> list[str]:
        """The protocols that tables of papers show: the papers' own, `clean`, and further configured ones."""
        named: list[str] = self.configuration["protocols"]
        return [*BOTH, *(name for name in named if name not in BOTH and paper_of(name) is None)]

    def compared_on(self, dataset: str) -> list[str]:
        """The protocols for comparisons on a dataset: the configured ones by which it can be split.

        `published-pfedclr` counts as `published`: its runs follow the paper of the dataset.
        """
        named = {
            PUBLISHED.protocol if short_name(name) == PUBLISHED.protocol else name
            for name in self.configuration["protocols"]
        }
        missing = self.unavailable([dataset])
        return [
            name for name in self.compared_protocols if name in named and f"{dataset}/{name}" not in missing
        ]

    @property
    def evaluated(self) -> Sequence[str]:
        """The other systems that the configuration adds to tables; none if stored runs are shown."""
        names: Sequence[str] = self.configuration.get("evaluated", ())
        return names if self.stored is None else ()

    @property
    def records_diverged(self) -> bool:
        """Whether a diverged run is a result; otherwise it is an error, and the run is not finished."""
        return bool(self.configuration[DIVERGED] == KEPT)

    @cached_property
    def known_papers(self) -> list[str]:
        """Every paper with declared tables and figures, settings, protocols or datasets."""
        of_protocols = (protocol.paper for protocol in self.protocols.values() if protocol.paper)
        of_datasets = (paper for dataset in self.catalogue.values() for paper in dataset.papers)
        return list(dict.fromkeys([*self.papers, *papers_in(self.methods), *of_protocols, *of_datasets]))

    def check_paper(self, name: str) -> None:
        """Raise `ConfigurationError` if no paper is called `name`."""
        if name not in self.known_papers:
            raise ConfigurationError(
                f"unknown paper '{name}'.{did_you_mean(name, self.known_papers)} Known papers: "
                f"{', '.join(self.known_papers)}."
            )

    @cached_property
    def _unavailable(self) -> dict[str, dict[str, str]]:
        return {}

    def unavailable(self, names: Iterable[str]) -> dict[str, str]:
        """The unavailable datasets of `names`, and unavailable splits (`dataset/protocol`), with reasons."""
        reasons: dict[str, str] = {}
        for name in names:
            if name not in self._unavailable:
                self._unavailable[name] = self._why_unavailable(name)
            reasons |= self._unavailable[name]
        return reasons

    def unavailable_to_papers(self, names: Iterable[str]) -> dict[str, str]:
        """The same for papers' artefacts: a dataset outside `paper_datasets` is unavailable, too."""
        names, chosen = list(names), self.configuration["paper_datasets"]
        left_out = [name for name in names if chosen is not None and name not in chosen]
        return self.unavailable(names) | dict.fromkeys(
            left_out, "not in `paper_datasets` of the configuration"
        )

    def available(self, names: Iterable[str]) -> list[str]:
        """The datasets of `names` that are available."""
        names = list(names)
        missing = self.unavailable(names)
        return [name for name in names if name not in missing]

    def rounds_of(self, dataset: str) -> int | None:
        """The configured number of rounds; None for each paper's own number."""
        rounds: int | None = self.configuration["demo_rounds" if dataset == "demo" else "rounds"]
        return rounds

    def paper_of(self, dataset: str) -> str:
        """The paper whose settings runs on a dataset follow, of those whose split is available."""
        missing = self.unavailable([dataset])
        papers = [
            paper for paper in self.catalogue[dataset].papers if f"{dataset}/published-{paper}" not in missing
        ]
        preferred: str = self.configuration["paper"]
        return preferred if preferred in papers or not papers else papers[0]

    def protocols_of(self, dataset: str, protocols: Iterable[str]) -> list[str]:
        """The full names of `protocols` for one dataset: `published` means those of its papers.

        A paper's protocol is left out if the paper's row order is unavailable, and a protocol with a cut time
        if the dataset has no times. The table of statistics lists both.
        """
        missing = self.unavailable([dataset])
        names: list[str] = []
        for protocol in protocols:
            of_papers = [f"published-{paper}" for paper in self.catalogue[dataset].papers]
            names += of_papers if protocol == "published" else [protocol]
        return [name for name in names if f"{dataset}/{name}" not in missing]

    def protocol(self, name: str) -> Protocol:
        """A protocol by its full name."""
        return protocol_named(self.protocols, name)

    def check_split(self, dataset: str, protocol: str) -> None:
        """Raise `ConfigurationError` if a protocol needs times and the dataset has none."""
        if why := why_not_at_one_time(self.catalogue[dataset], self.protocol(protocol)):
            raise ConfigurationError(
                f"{dataset} cannot be split by '{protocol}': {why}. Use another protocol, or a dataset with "
                "times."
            )

    def raw_files(self, dataset: str) -> list[Path]:
        """The paths of a dataset's raw files, present or to be fetched.

        Optional files (titles, row orders) are included only if they are available.
        """
        entry = self.catalogue[dataset]
        optional = entry.optional_files()
        return [
            located(file, self.raw, self.root) or self.raw / file.path
            for file in entry.files()
            if file not in optional or why_file_unavailable(file, self.raw, self.mirror, self.root) is None
        ]

    def shown(self, runs: Iterable[RunId], layout: Layout) -> list[RunId]:
        """The runs that a layout shows: all, or with a store the stored ones.

        A layout that reads models shows measured runs. It also gets the diverged runs on their datasets, to
        list them as left out.
        """
        runs = list(runs)
        if self.stored is None:
            return runs
        if "states" not in layout.needs:
            return [run for run in runs if run in self.stored.runs]
        measured = self.stored.measured.get(layout.name, frozenset())
        datasets = {run.dataset for run in measured.intersection(runs)}
        inspected = measured | {run for run in self.stored.diverged if run.dataset in datasets}
        return [run for run in runs if run in inspected]

    def is_frozen(self, name: str) -> bool:
        """Whether a target's files are stored as built."""
        return self.stored is not None and name in self.stored.frozen

    def older(self, runs: Iterable[RunId]) -> dict[str, tuple[int, int]]:
        """The number of stored runs of older code, and of all runs, by the title of a method that has any.

        Empty without a store: then outdated runs are trained again.
        """
        return self.counted(runs, frozenset() if self.stored is None else self.stored.older)

    def counted(self, runs: Iterable[RunId], older: Collection[RunId]) -> dict[str, tuple[int, int]]:
        """The number of `older` runs, and of all runs, by the title of a method that has any."""
        of_method: dict[str, list[bool]] = {}
        for run in runs:
            of_method.setdefault(title(self.methods, parse(run.method).name), []).append(run in older)
        return {name: (sum(old), len(old)) for name, old in of_method.items() if any(old)}

    def artefact_named(self, name: str) -> Artefact:
        """The table or figure of a paper called `name`: `pfedclr_table1`."""
        (artefact,) = artefacts_of(self.papers, [name])
        return artefact

    def layout_of(self, artefact: Artefact) -> Layout:
        """The layout of a paper's table or figure."""
        return layout_named(self.layouts, artefact.layout, artefact.target)

    def configuration_text(self) -> str:
        """The content of the file that `fedrec build --project` reads."""
        return json.dumps(with_checksum(self.configuration), indent=2, sort_keys=True) + "\n"

    def _why_unavailable(self, name: str) -> dict[str, str]:
        if name not in self.catalogue:
            return {name: f"it is not in {self.configuration['catalogue']}"}
        if self.stored is not None:
            return {} if name in self.stored.datasets else {name: "the reference runs do not include it"}
        dataset = self.catalogue[name]
        reason = why_unavailable(dataset, self.raw, self.mirror, self.root)
        if reason is not None:
            return {name: reason}
        splits = {
            f"{name}/published-{paper}": why_split_unavailable(
                dataset, paper, self.raw, self.mirror, self.root
            )
            for paper in dataset.row_orders
        }
        # Only configured protocols can be left out.
        splits |= {
            f"{name}/{protocol}": why_not_at_one_time(dataset, self.protocol(protocol))
            for protocol in self.compared_protocols
            if protocol not in BOTH
        }
        return {split: why for split, why in splits.items() if why is not None}


def read_workspace(document: Document, root: Path, mirror: Path | None) -> dict[str, Any]:
    """The fields of a `Workspace`; a mistake in any file of the configuration raises `ConfigurationError`."""
    check(document, "config")
    paths = {key: _named(document, key, root) for key in CONFIGURATION_FILES}
    found = load(paths["found_file"], "found")
    methods = Methods(with_findings(read_entries(load(paths["method_file"], "methods")), found))
    papers = load_papers(paths["paper_folder"])
    tuning = load_tuning(paths["tuning_file"], methods)
    check_findings(found, methods, tuning)
    check_causes(document, methods)
    fields: dict[str, Any] = {
        "configuration": _spelled(document, methods),
        "root": root,
        "mirror": mirror,
        "methods": methods,
        "catalogue": load_catalogue(paths["catalogue"]),
        "protocols": load_protocols(paths["protocol_file"]),
        "papers": papers,
        "claims": tuple(load_claims(paths["claim_file"], papers)),
        "tuning": tuning,
        "layouts": load_layouts(),
    }
    _check_names(Workspace(**fields), document)
    fields["papers"] = _with_all_protocols(Workspace(**fields))
    return fields


def _with_all_protocols(workspace: Workspace) -> dict[str, Paper]:
    """The papers; the main table of each paper with claims shows every compared protocol."""
    protocols, papers = workspace.compared_protocols, dict(workspace.papers)
    if protocols == [*BOTH]:
        return papers
    for paper, claim in {claim.paper: claim for claim in reversed(workspace.claims)}.items():
        main = claim.artefacts[0]
        shown = replace(main, options={"protocols": protocols, **main.options})
        papers[paper] = replace(papers[paper], artefacts={**papers[paper].artefacts, main.name: shown})
    return papers


def _named(document: Document, key: str, root: Path) -> Path:
    """The file or folder that a key of the configuration names; `ConfigurationError` if it does not exist."""
    path = file_or_default(Path(document.content[key]), root)
    if not path.exists():
        siblings = [str(other.relative_to(root)) for other in path.parent.glob("*")]
        raise ConfigurationError(
            f"{document.location((key,))}: {path}: no such file."
            f"{did_you_mean(document.content[key], siblings)} "
            "Start the command in the "
            "project's top folder, or give the path of your own file."
        )
    return path


def _spelled(document: Document, methods: Methods) -> dict[str, Any]:
    """The content of the configuration with its methods spelt canonically."""
    content = document.content
    audit = dict(content["audit"])
    for key in ("methods", "uploads"):
        audit[key] = _canonical(document, ("audit", key), audit[key], methods)
    compared = _canonical(document, ("methods",), content["methods"], methods)
    return content | {"methods": compared, "audit": audit}


def _canonical(document: Document, key: KeyPath, names: Sequence[str], methods: Methods) -> list[str]:
    for index, name in enumerate(names):
        with error_at(document.location((*key, index))):
            canonical(methods, name)
    with error_at(document.location(key)):
        return canonical_all(methods, names)


def _check_names(workspace: Workspace, document: Document) -> None:
    """Raise `ConfigurationError` for an unknown dataset, method, paper, protocol, layout or artefact."""
    configuration = workspace.configuration
    for index, dataset in enumerate(configuration["datasets"]):
        with error_at(document.location(("datasets", index))):
            for paper in workspace.catalogue[dataset].papers:
                protocol_named(workspace.protocols, f"published-{paper}")
    for index, dataset in enumerate(configuration["paper_datasets"] or ()):
        with error_at(document.location(("paper_datasets", index))):
            workspace.catalogue[dataset]
    with error_at(document.location(("paper",))):
        workspace.check_paper(configuration["paper"])
    for index, name in enumerate(configuration["artefacts"]):
        with error_at(document.location(("artefacts", index))):
            artefacts_of(workspace.papers, [name])
    for index, name in enumerate(configuration.get("evaluated", ())):
        with error_at(document.location(("evaluated", index))):
            check_evaluated(workspace.results, name, configuration["datasets"][0])
    named: dict[KeyPath, list[str]] = {("methods",): configuration["methods"]}
    named |= {("audit", key): configuration["audit"][key] for key in ("methods", "uploads")}
    for key, methods in named.items():
        for index, method in enumerate(methods):
            with error_at(document.location((*key, index))):
                resolve(workspace.methods, method, configuration["paper"], "")
                check_code(method, [setting for setting, _ in parse(method).changes])
    for index, seed in enumerate(workspace.seeds):
        if seed in workspace.tuning.seeds:
            raise ConfigurationError(
                f"{document.location(('seeds', index))}: {seed} is a seed of trials "
                f"({configuration['tuning_file']}), which chose settings, so it cannot report them. Use "
                "another seed."
            )
    for search in workspace.tuning.searches.values():
        with error_at(f"{configuration['tuning_file']}, {search.key}"):
            if search.paper != OWN:
                workspace.check_paper(search.paper)
    for index, protocol in enumerate(configuration["protocols"]):
        if protocol != "published":
            with error_at(document.location(("protocols", index))):
                protocol_named(workspace.protocols, protocol)
    folder = file_or_default(Path(configuration["paper_folder"]), workspace.root)
    for artefact in artefacts_of(workspace.papers, workspace.papers):
        _check_artefact(workspace, artefact, folder / f"{artefact.paper}.yaml")


def _check_artefact(workspace: Workspace, artefact: Artefact, path: Path) -> None:
    """Raise `ConfigurationError` for an unknown layout or method of a paper's table or figure."""
    try:
        workspace.layout_of(artefact)
        for line in artefact.lines:
            if line.run is not None:
                canonical(workspace.methods, line.run)
    except ConfigurationError as error:
        location = load(path, "paper").location(("artefacts", artefact.name))
        raise ConfigurationError(f"{location}: {error}") from None
