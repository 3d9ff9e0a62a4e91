"""Everything the configuration says, read and checked once, and which data is available here."""

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
from fedrec.config.found_file import with_found
from fedrec.config.method_file import read_entries
from fedrec.config.methods import Methods, canonical, canonical_all, resolve, title
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Artefact, Paper, artefacts_of, load_papers
from fedrec.config.protocol import OWN, Protocol, paper_of, short_name
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.config.schema import check, load
from fedrec.config.tuning import Tuning, check_found, load_tuning
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
"""Keys of the configuration that name the other files."""


@dataclass(frozen=True)
class Stored:
    """What there is where nothing is trained: the runs of a store, and what was kept beside them."""

    runs: frozenset[RunId]
    older: frozenset[RunId] = frozenset()
    """Those of them whose code is not today's."""
    measured: Mapping[str, frozenset[RunId]] = field(default_factory=dict)
    """By what the audit measures inside models (a layout's name), the runs it was measured of."""
    diverged: frozenset[RunId] = frozenset()
    """Those that diverged: nobody can look inside their models."""
    datasets: frozenset[str] = frozenset()
    """Those whose statistics are there."""
    frozen: frozenset[str] = frozenset()
    """Frozen targets: their files are stored as they were built, since their inputs are not stored."""
    evaluated: frozenset[str] = frozenset()
    """Folders of records of other systems' scores, which the leaderboard shows."""
    training: str | None = None
    """The folder of results in which what is lacking would be trained; None for that of the reports."""


@dataclass(frozen=True)
class Workspace:
    """A checked configuration; methods are spelt canonically in it."""

    configuration: Mapping[str, Any]
    root: Path
    """The folder that paths of the configuration start from."""
    mirror: Path | None
    methods: Methods
    catalogue: Catalogue
    protocols: Mapping[str, Protocol]
    papers: Mapping[str, Paper]
    claims: tuple[Claim, ...]
    tuning: Tuning
    layouts: Mapping[str, Layout]
    stored: Stored | None = None
    """What is to be reported on without training; None where what is missing is trained."""
    attacked: frozenset[RunId] | None = None
    """The runs whose uploads the targets attack; None where it is not known which targets are asked for."""
    looked_into: frozenset[RunId] | None = None
    """The runs inside whose models these targets look; None as above."""

    @property
    def results(self) -> Path:
        """The folder for everything produced."""
        return self.root / str(self.configuration["results"])

    @property
    def training(self) -> Path:
        """The folder of results in which a run that is lacking is trained."""
        elsewhere = self.stored.training if self.stored is not None else None
        return self.results if elsewhere is None else self.root / elsewhere

    @property
    def raw(self) -> Path:
        """The folder of raw files."""
        return self.results / "raw"

    @cached_property
    def demonstration(self) -> Self:
        """The same workspace, asking for the made dataset alone."""
        asked = {"datasets": ["demo"], "rounds": self.configuration["demo_rounds"], "artefacts": []}
        return replace(self, configuration={**self.configuration, **asked})

    @cached_property
    def first_look(self) -> Self:
        """The same workspace with `quick_rounds` rounds at most, and without artefacts of papers."""
        most, quick = self.configuration["rounds"], self.configuration["quick_rounds"]
        asked = {"rounds": quick if most is None else min(quick, most), "artefacts": []}
        return replace(self, configuration={**self.configuration, **asked})

    @property
    def seeds(self) -> list[int]:
        """The seeds of all runs."""
        seeds: list[int] = self.configuration["seeds"]
        return seeds

    @property
    def compared_protocols(self) -> list[str]:
        """The protocols that tables of papers show: the papers' own, ours, and other named ones."""
        named: list[str] = self.configuration["protocols"]
        return [*BOTH, *(name for name in named if name not in BOTH and paper_of(name) is None)]

    def compared_on(self, dataset: str) -> list[str]:
        """The protocols under which methods are compared on a dataset: those named that it can be split by.

        `published-pfedclr` is named as `published`: its runs follow the paper of the dataset.
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
        """The other systems that the configuration lets join tables; none where stored runs are shown."""
        names: Sequence[str] = self.configuration.get("evaluated", ())
        return names if self.stored is None else ()

    @property
    def records_diverged(self) -> bool:
        """Whether a run that diverges is a result; otherwise it is an error, and its run not finished."""
        return bool(self.configuration[DIVERGED] == KEPT)

    @cached_property
    def known_papers(self) -> list[str]:
        """Every paper that tables and figures, settings, protocols or datasets are declared for."""
        of_protocols = (protocol.paper for protocol in self.protocols.values() if protocol.paper)
        of_datasets = (paper for dataset in self.catalogue.values() for paper in dataset.papers)
        return list(dict.fromkeys([*self.papers, *papers_in(self.methods), *of_protocols, *of_datasets]))

    def check_paper(self, name: str) -> None:
        """Raise `ConfigurationError` where no paper is called `name`."""
        if name not in self.known_papers:
            raise ConfigurationError(
                f"unknown paper '{name}'.{did_you_mean(name, self.known_papers)} Known papers: "
                f"{', '.join(self.known_papers)}."
            )

    @cached_property
    def _unavailable(self) -> dict[str, dict[str, str]]:
        return {}

    def unavailable(self, names: Iterable[str]) -> dict[str, str]:
        """Why datasets of `names`, or splits of them (`dataset/protocol`), are unavailable."""
        reasons: dict[str, str] = {}
        for name in names:
            if name not in self._unavailable:
                self._unavailable[name] = self._why_unavailable(name)
            reasons |= self._unavailable[name]
        return reasons

    def unavailable_to_papers(self, names: Iterable[str]) -> dict[str, str]:
        """The same for what papers show: what `paper_datasets` leaves out is not there for them, either."""
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
        """The rounds the configuration, or the demonstration, asks for; None for each paper's own."""
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
        """The full names behind `protocols` for one dataset: `published` is each of its papers' own.

        A paper's protocol is left out, and listed in the table of statistics, where its own order of rows is
        unavailable; so is one that needs times, where there are none.
        """
        missing = self.unavailable([dataset])
        names: list[str] = []
        for protocol in protocols:
            own = [f"published-{paper}" for paper in self.catalogue[dataset].papers]
            names += own if protocol == "published" else [protocol]
        return [name for name in names if f"{dataset}/{name}" not in missing]

    def protocol(self, name: str) -> Protocol:
        """A protocol by its full name."""
        return protocol_named(self.protocols, name)

    def check_split(self, dataset: str, protocol: str) -> None:
        """Raise `ConfigurationError` where a dataset has no times to split it by a protocol."""
        if why := why_not_at_one_time(self.catalogue[dataset], self.protocol(protocol)):
            raise ConfigurationError(
                f"{dataset} cannot be split by '{protocol}': {why}. Use another protocol, or a dataset with "
                "times."
            )

    def raw_files(self, dataset: str) -> list[Path]:
        """The raw files of a dataset, where they lie or are to be fetched to.

        Optional ones (titles, orders of rows) only where available.
        """
        entry = self.catalogue[dataset]
        optional = entry.optional_files()
        return [
            located(file, self.raw, self.root) or self.raw / file.path
            for file in entry.files()
            if file not in optional or why_file_unavailable(file, self.raw, self.mirror, self.root) is None
        ]

    def shown(self, runs: Iterable[RunId], layout: Layout) -> list[RunId]:
        """The runs that a layout shows of those it asks for: all, or of a store those that are there.

        Where it looks inside models, what diverged is among them beside others on its dataset: it is said to
        be left out.
        """
        runs = list(runs)
        if self.stored is None:
            return runs
        if "states" not in layout.needs:
            return [run for run in runs if run in self.stored.runs]
        measured = self.stored.measured.get(layout.name, frozenset())
        datasets = {run.dataset for run in measured.intersection(runs)}
        there = measured | {run for run in self.stored.diverged if run.dataset in datasets}
        return [run for run in runs if run in there]

    def is_frozen(self, name: str) -> bool:
        """Whether a target is kept as it was built, and not built."""
        return self.stored is not None and name in self.stored.frozen

    def older(self, runs: Iterable[RunId]) -> dict[str, tuple[int, int]]:
        """Of methods whose stored runs are older than the code: how many of them are, of how many.

        Nothing where outdated runs are trained again.
        """
        return self.counted(runs, frozenset() if self.stored is None else self.stored.older)

    def counted(self, runs: Iterable[RunId], older: Collection[RunId]) -> dict[str, tuple[int, int]]:
        """Of methods that have `older` ones among their runs: how many, of how many."""
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
        """The configuration as a file that `fedrec build --project` reads."""
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
        # Only what is asked for is left out.
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
    methods = Methods(with_found(read_entries(load(paths["method_file"], "methods")), found))
    papers = load_papers(paths["paper_folder"])
    tuning = load_tuning(paths["tuning_file"], methods)
    check_found(found, methods, tuning)
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
    """The papers; the table that each one's first claim is about has every protocol that is compared."""
    protocols, papers = workspace.compared_protocols, dict(workspace.papers)
    if protocols == [*BOTH]:
        return papers
    for paper, claim in {claim.paper: claim for claim in reversed(workspace.claims)}.items():
        main = claim.artefacts[0]
        shown = replace(main, options={"protocols": protocols, **main.options})
        papers[paper] = replace(papers[paper], artefacts={**papers[paper].artefacts, main.name: shown})
    return papers


def _named(document: Document, key: str, root: Path) -> Path:
    """The file or folder that a key of the configuration names; it must be there."""
    path = file_or_default(Path(document.content[key]), root)
    if not path.exists():
        beside = [str(other.relative_to(root)) for other in path.parent.glob("*")]
        raise ConfigurationError(
            f"{document.location((key,))}: {path}: no such file."
            f"{did_you_mean(document.content[key], beside)} "
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
    """Every dataset, method, paper, protocol, layout and artefact that is named must exist."""
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
    """The layout and the methods of a paper's table or figure must exist."""
    try:
        workspace.layout_of(artefact)
        for line in artefact.lines:
            if line.run is not None:
                canonical(workspace.methods, line.run)
    except ConfigurationError as error:
        place = load(path, "paper").location(("artefacts", artefact.name))
        raise ConfigurationError(f"{place}: {error}") from None
