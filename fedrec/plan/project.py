"""The project: everything that can be built, by name, and the job of every training run."""

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from fedrec.config.document import Document
from fedrec.config.methods import canonical, resolve
from fedrec.config.modules import modules_of
from fedrec.config.names import folder_name, parse, spelling_of
from fedrec.config.papers import Artefact, artefacts_of
from fedrec.config.protocol import OWN, paper_of
from fedrec.config.protocol_file import protocol_named
from fedrec.config.records import TRAFFIC, merged_records, spelled_records
from fedrec.config.seeds import check_seed
from fedrec.errors import ConfigurationError, StorageError, did_you_mean
from fedrec.files.checked_json import read_checked_json
from fedrec.plan.cost import seconds_of
from fedrec.plan.equal_code import representative
from fedrec.plan.fingerprint import check_code, run_fingerprint
from fedrec.plan.run_list import ListedRun
from fedrec.plan.run_matching import RunSpec
from fedrec.plan.runs import ALWAYS, KEPT, MODEL, NOT_KEPT, REFUSED, SMALL, SUMMARY, WANTED, RunId
from fedrec.plan.selection import records_of_run
from fedrec.plan.targets import QUICK, Target, Targets, files_of, splits_of
from fedrec.plan.train_request import TrainRequest
from fedrec.plan.workspace import Workspace, read_workspace

_IN_SNAKEFILE = ("all", "quick", "audit", "demo", "datasets", "splits", "benchmark", "reference")
"""Targets that the Snakefile names itself."""
_FOLDERS = ("--data", "--out")
_CLEAN_FIRST = 1e8
"""Seconds that no run takes."""


@dataclass(frozen=True)
class RunJob:
    """A training run with everything that decides its files: what a worker needs to train it."""

    run: RunId
    settings: Mapping[str, Any]
    """The value of every setting."""
    protocol: Mapping[str, Any]
    """The value of every setting of its protocol."""
    records: tuple[str, ...]
    """What it records besides its final state, as `fedrec train --record` takes it."""
    fingerprint: str
    """Of the code that decides its numbers."""
    seconds: float
    """About how long it takes on one CPU core."""
    model: str = SMALL
    """Which models it writes, one of `fedrec.plan.runs.MODELS`."""
    is_trial: bool = False
    """Whether it is a trial of a search: one that diverges is a result, and no mistake."""
    is_kept_diverged: bool = False
    """Whether the configuration keeps runs that diverge as results, whatever they are trained for."""

    @property
    def may_diverge(self) -> bool:
        """Whether it is finished, too, where it diverged."""
        return self.is_trial or self.is_kept_diverged

    @property
    def priority(self) -> float:
        """How early it is to be trained: the longest first, so that none keeps a single core busy at the end.

        Runs under the clean protocol come before all others: two runs of a method that begin together would
        compile its kernels twice.
        """
        return self.seconds + (_CLEAN_FIRST if self.run.protocol == "clean" else 0.0)

    @property
    def data(self) -> str:
        """The folder of its dataset, with the splits, below the results."""
        return f"data/{self.run.dataset}"

    @property
    def reads(self) -> tuple[str, str]:
        """Its split and the candidates, below the results."""
        return f"{self.run.split}/split.parquet", f"{self.run.split}/candidates.parquet"

    def spec(self, results: Path) -> RunSpec:
        """What a finished run in its folder must agree with."""
        run = self.run
        return RunSpec(
            folder=results / run.folder,
            method=run.method,
            paper=run.paper,
            seed=run.seed,
            settings=self.settings,
            records=self.records,
            split=results / self.reads[0],
            may_diverge=self.may_diverge,
            protocol=self.protocol,
            model=self.model,
        )

    def request(self, results: Path) -> TrainRequest:
        """The options that train it, with the folder of results."""
        run = self.run
        return TrainRequest(
            data=results / self.data,
            method=run.method,
            paper=run.paper,
            protocol=run.protocol,
            seed=run.seed,
            diverged=KEPT if self.may_diverge else REFUSED,
            record=self.records,
            model=self.model,
            out=results / run.folder,
        )

    def listed(self, results: Path) -> ListedRun:
        """The same in a list of runs, which other machines train."""
        request = self.request(results)
        return ListedRun(self.run.folder, request, self.fingerprint, self.seconds, self.protocol)

    def arguments(self) -> list[str]:
        """The arguments of `fedrec train` that name this run, but for folders and files.

        Whether the configuration keeps runs that diverge is not among them, but in the environment: it
        decides no number, and finished runs would be trained again for another parameter.
        """
        request = replace(self.request(Path()), diverged=KEPT if self.is_trial else REFUSED)
        return [word for option in request.words() if option[0] not in _FOLDERS for word in option]


class Project(Workspace):
    """A workspace with its targets, groups of targets, and jobs."""

    @classmethod
    def load(
        cls, configuration: Mapping[str, Any] | Document, root: Path = Path(), mirror: Path | None = None
    ) -> Self:
        """Read and check everything a configuration names; `mirror` overrides its own.

        Mistakes in a document are told with file and line, those in mere values by their key.
        """
        if not isinstance(configuration, Document):
            configuration = Document("configuration", dict(configuration))
        fields = read_workspace(configuration, root, mirror)
        if mirror is None and fields["configuration"]["mirror"]:
            fields["mirror"] = root / fields["configuration"]["mirror"]
        return cls(**fields)

    @cached_property
    def targets(self) -> Targets:
        """All targets."""
        return Targets(self)

    def target(self, name: str) -> Target:
        """One table, figure or page by name; an unknown name is an error with the nearest known one."""
        if name not in self.targets.names:
            raise ConfigurationError(self.no_target(name))
        return self.targets.made(name)

    def group(self, name: str) -> list[Target]:
        """The targets of a group (all, quick, audit, demo, tune, a paper, audit_<paper>), or one by name."""
        if name not in self.groups:
            return [self.target(name)]
        return [self.target(member) for member in self.groups[name]]

    @cached_property
    def groups(self) -> Mapping[str, list[str]]:
        """The names of targets in every group, of those that can be built here."""
        configuration, targets = self.configuration, self.targets
        compared = [name for dataset in configuration["datasets"] for name in targets.compared(dataset)]
        groups = {
            "all": [
                "selected_statistics",
                *compared,
                *targets.audited(),
                *self._buildable(artefacts_of(self.papers, configuration["artefacts"])),
                "report",
            ],
            QUICK: [
                "selected_statistics",
                *(name for dataset in configuration["datasets"] for name in targets.compared(dataset, QUICK)),
                *targets.audited(self.first_look),
                QUICK,
            ],
            "audit": targets.audited(),
            "demo": [
                "demo_statistics",
                *targets.compared("demo"),
                *targets.audited(self.demonstration),
                "demo",
            ],
            "datasets": ["dataset_statistics"],
            "tune": [
                search.target
                for search in self.tuning.searches.values()
                if self.targets.can_be_searched(search)
            ],
        }
        for search in self.tuning.under_shared_protocol:
            if self.targets.can_be_searched(search):
                for group in ("tune_clean", f"tune_clean_{search.dataset}".replace("-", "_")):
                    groups.setdefault(group, []).append(search.target)
        for paper in self.papers.values():
            groups[paper.name] = self._buildable(paper.artefacts.values())
            if targets.audited_for(paper.name):
                groups[f"audit_{paper.name}"] = targets.audited_for(paper.name)
        return groups

    def files(self, group: str) -> list[str]:
        """Every file of a group, or of one target if it can be built, below the results; plans included."""
        names = self.groups[group] if group in self.groups else self._single(group)
        forms = self.targets.names
        return [file for name in names for file in (*files_of(forms[name], name), f"plan/{name}.json")]

    def result_path(self, file: str) -> str:
        """A path below the results folder, as Snakemake is asked for it."""
        return f"{self.configuration['results']}/{file}"

    @property
    def rule_names(self) -> set[str]:
        """Every name by which Snakemake can be asked for several files."""
        return {*self.groups, *_IN_SNAKEFILE}

    def no_target(self, name: str) -> str:
        """Says that there is no target called `name`, and which is nearest."""
        known = [*self.targets.names, *self.groups]
        hint = did_you_mean(name, known)
        return (
            f"there is no target '{name}'.{hint} `fedrec artefacts` lists the tables and figures of papers, "
            "`snakemake --list-rules` all targets."
        )

    def snakemake_target(self, target: Target) -> str:
        """The target on the command line of Snakemake: its name if that can be a rule's, else its file."""
        path = self.training / target.files[0]
        return target.name if target.name.isidentifier() else shlex.quote(str(path))

    def splits(self, datasets: Iterable[str], protocols: Iterable[str]) -> list[str]:
        """The files of datasets' splits, below the results; `published` is each of their papers' own."""
        protocols = list(protocols)
        return [
            file for dataset in datasets for file in splits_of(dataset, self.protocols_of(dataset, protocols))
        ]

    def artefact(self, target: Target) -> Artefact:
        """The table or figure of a paper that a target builds."""
        return self.artefact_named(target.name)

    def run_at(self, *, paper: str, dataset: str, protocol: str, method: str, seed: str) -> RunId:
        """The run that the parts of a path name; the folder of a method must spell it canonically."""
        parts = (paper, dataset, protocol, method, seed)
        if parts not in self._runs_at:
            self._runs_at[parts] = self._run_at(*parts)
        return self._runs_at[parts]

    def _run_at(self, paper: str, dataset: str, protocol: str, method: str, seed: str) -> RunId:
        spelling = canonical(self.methods, spelling_of(method))
        if folder_name(spelling) != method:
            raise ConfigurationError(f"write '{method}' in a path as '{folder_name(spelling)}'.")
        check_code(spelling, [setting for setting, _ in parse(spelling).changes])
        whose = paper_of(protocol_named(self.protocols, protocol).name)
        if whose not in (None, paper):
            raise ConfigurationError(f"'{protocol}' is not a protocol of {paper}, but of {whose}.")
        if paper != OWN:
            self.check_paper(paper)
        check_seed(int(seed))
        self.check_split(dataset, protocol)
        return RunId(paper, dataset, protocol, spelling, int(seed))

    def job(self, run: RunId) -> RunJob:
        """What training a run takes."""
        if run not in self._jobs:
            settings, _, _ = resolve(self.methods, run.method, run.paper, run.dataset)
            self._jobs[run] = RunJob(
                run,
                settings,
                self.protocol(run.protocol).as_dict(),
                self._records_of(run),
                self._fingerprint(run.method),
                seconds_of(run, self.methods, self.catalogue),
                self._model_of(run),
                is_trial=run.seed in self.tuning.seeds,
                is_kept_diverged=self.records_diverged,
            )
        return self._jobs[run]

    def spec(self, run: RunId) -> RunSpec:
        """What a finished run in the folder of `run` must agree with."""
        return self.job(run).spec(self.results)

    def pattern(self, form: str | None = None) -> str:
        """A regular expression of the names of all targets, or of those of one form."""
        return "|".join(name for name, its in self.targets.names.items() if form in (None, its))

    def chapter_of(self, name: str) -> str:
        """The part of a report that a target belongs to: its paper, its dataset or the audit."""
        stem = name.rpartition("_")[0]
        if name in self.targets.audits:
            return "Audit"
        return self.papers[stem].title if stem in self.papers else stem

    def names_for_rules(self) -> list[str]:
        """The names of groups and targets with their own rules, without those of the Snakefile."""
        names = [*self.groups, *(name for name in self.targets.names if name not in self.groups)]
        return [name for name in names if name.isidentifier() and name not in _IN_SNAKEFILE]

    @cached_property
    def _runs_at(self) -> dict[tuple[str, ...], RunId]:
        return {}

    @cached_property
    def _jobs(self) -> dict[RunId, RunJob]:
        return {}

    @cached_property
    def _fingerprints(self) -> dict[tuple[str, ...], str]:
        return {}

    @cached_property
    def _records(self) -> dict[RunId, list[str]]:
        return records_of_run(self)

    def _records_of(self, run: RunId) -> tuple[str, ...]:
        """What a run records: what any target of this configuration needs, and what it recorded before.

        A finished run that recorded more than is needed stays as it is, and so does one without its traffic
        where the targets attack no uploads of it.
        """
        needed, before = self._records.get(run, []), self._finished_summary(run)
        if before is not None and self.attacked is not None and run not in self.attacked:
            needed = [text for text in needed if text != TRAFFIC]
        return tuple(spelled_records(merged_records([*needed, *(before or {}).get("record", [])])))

    def _model_of(self, run: RunId) -> str:
        """Which models a run writes: any that a target of this configuration looks into, and else small ones.

        Of finished runs those are trained again that targets look into which are asked for. A finished run
        with a model that nobody asked for stays as it is.
        """
        before = self._finished_summary(run)
        needed = self.modelled if before is None or self.looked_into is None else self.looked_into
        if before is None:
            return ALWAYS if run in needed else SMALL
        was_asked = before.get(MODEL) == WANTED
        return ALWAYS if was_asked or (before.get(MODEL) == NOT_KEPT and run in needed) else SMALL

    @cached_property
    def modelled(self) -> frozenset[RunId]:
        """The runs inside whose models any target of this configuration looks."""
        return self.targets.runs_looked_into()

    def _finished_summary(self, run: RunId) -> Mapping[str, Any] | None:
        """What the run.json of a finished run says; None of no run, or of a damaged one."""
        try:
            said: Mapping[str, Any] = read_checked_json(self.results / run.folder / SUMMARY)
        except (FileNotFoundError, StorageError, ValueError):
            # Whoever reads a damaged one will say so.
            return None
        return said

    def _fingerprint(self, method: str) -> str:
        """The fingerprint of a method's code; the same for all code that the ledger proves equal to it."""
        modules = tuple(modules_of(method))
        if modules not in self._fingerprints:
            self._fingerprints[modules] = representative(run_fingerprint(method))
        return self._fingerprints[modules]

    def _single(self, name: str) -> list[str]:
        if name not in self.targets.names:
            raise ConfigurationError(self.no_target(name))
        if name in self.tuning.searches:
            return [name] if self.targets.can_be_searched(self.tuning.searches[name]) else []
        artefacts = {artefact.target: artefact for artefact in artefacts_of(self.papers, self.papers)}
        return self._buildable([artefacts[name]]) if name in artefacts else [name]

    def _buildable(self, artefacts: Iterable[Artefact]) -> list[str]:
        return [artefact.target for artefact in artefacts if self.targets.can_be_built(artefact)]
