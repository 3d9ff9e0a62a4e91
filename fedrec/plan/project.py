"""The project: everything that can be built, by name, and the job of every training run."""

import re
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
"""Targets that the Snakefile defines itself."""
_RULE_NAME = re.compile(r"[A-Za-z_][\w-]*")
"""Names that Snakemake takes for a rule: that of a dataset may have hyphens."""
_FOLDERS = ("--data", "--out")
_CLEAN_FIRST = 1e8
"""Priority of runs under `clean`: more seconds than any run takes."""


@dataclass(frozen=True)
class RunJob:
    """A training run with everything that decides its files: all that a worker needs to train it."""

    run: RunId
    settings: Mapping[str, Any]
    """The value of every setting."""
    protocol: Mapping[str, Any]
    """The value of every setting of its protocol."""
    records: tuple[str, ...]
    """Its records in addition to the final state, as `fedrec train --record` reads them."""
    fingerprint: str
    """The fingerprint of the code that decides its numbers."""
    seconds: float
    """Estimated time on one CPU core."""
    model: str = SMALL
    """The models that it writes, one of `fedrec.plan.runs.MODELS`."""
    is_trial: bool = False
    """Whether it is a trial of a search. A trial that diverges is a result, not an error."""
    records_diverged: bool = False
    """Whether the configuration records every diverged run as a result."""

    @property
    def may_diverge(self) -> bool:
        """Whether a diverged run counts as finished."""
        return self.is_trial or self.records_diverged

    @property
    def priority(self) -> float:
        """Snakemake's priority: the longest runs first, so that no long run occupies one core at the end.

        Runs under the clean protocol come before all others: two runs of a method that start at the same time
        would compile its kernels twice.
        """
        return self.seconds + (_CLEAN_FIRST if self.run.protocol == "clean" else 0.0)

    @property
    def data(self) -> str:
        """The folder of its dataset, with the splits, below the results."""
        return f"data/{self.run.dataset}"

    @property
    def reads(self) -> tuple[str, str]:
        """The files of its split and its candidates, below the results."""
        return f"{self.run.split}/split.parquet", f"{self.run.split}/candidates.parquet"

    def spec(self, results: Path) -> RunSpec:
        """The specification that a finished run in its folder must match."""
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
        """The request that trains it into the folder of `results`."""
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
        """The run as an entry of a run list, for training on other machines."""
        request = self.request(results)
        return ListedRun(self.run.folder, request, self.fingerprint, self.seconds, self.protocol)

    def arguments(self) -> list[str]:
        """The arguments of `fedrec train` for this run, without folders and files.

        The configuration's choice for diverged runs is not among them, but in the environment: it decides no
        number, and a changed parameter would make Snakemake train finished runs again.
        """
        request = replace(self.request(Path()), diverged=KEPT if self.is_trial else REFUSED)
        return [word for option in request.words() if option[0] not in _FOLDERS for word in option]


class Project(Workspace):
    """A workspace with its targets, groups of targets, and jobs."""

    @classmethod
    def load(
        cls, configuration: Mapping[str, Any] | Document, root: Path = Path(), mirror: Path | None = None
    ) -> Self:
        """Read and check everything a configuration names; `mirror` overrides the configured one.

        Errors in a document name file and line, errors in plain values the key.
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
        return self.targets.get(name)

    def group(self, name: str) -> list[Target]:
        """The targets of a group (all, quick, audit, demo, tune, a paper, audit_<paper>), or one by name."""
        if name not in self.groups:
            return [self.target(name)]
        return [self.target(member) for member in self.groups[name]]

    @cached_property
    def groups(self) -> Mapping[str, list[str]]:
        """The names of the targets that can be built here, by group."""
        configuration, targets = self.configuration, self.targets
        compared = [name for dataset in configuration["datasets"] for name in targets.compared(dataset)]
        groups = {
            "all": [
                "selected_statistics",
                *compared,
                *targets.audit_targets(),
                *self._buildable(artefacts_of(self.papers, configuration["artefacts"])),
                "report",
            ],
            QUICK: [
                "selected_statistics",
                *(name for dataset in configuration["datasets"] for name in targets.compared(dataset, QUICK)),
                *targets.audit_targets(self.first_look),
                QUICK,
            ],
            "audit": targets.audit_targets(),
            "demo": [
                "demo_statistics",
                *targets.compared("demo"),
                *targets.audit_targets(self.demonstration),
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
            if targets.audit_targets_of_paper(paper.name):
                groups[f"audit_{paper.name}"] = targets.audit_targets_of_paper(paper.name)
        return groups

    def files(self, group: str) -> list[str]:
        """Every file of a group, or of one target if it can be built, below the results; plans included."""
        names = self.groups[group] if group in self.groups else self._single(group)
        forms = self.targets.names
        return [file for name in names for file in (*files_of(forms[name], name), f"plan/{name}.json")]

    def result_path(self, file: str) -> str:
        """The path of a file below the results, as Snakemake's rules spell it."""
        return f"{self.configuration['results']}/{file}"

    @property
    def rule_names(self) -> set[str]:
        """Every name of a rule that stands for several files."""
        return {*self.groups, *_IN_SNAKEFILE}

    def no_target(self, name: str) -> str:
        """Error message: there is no target called `name`, and the nearest one."""
        known = [*self.targets.names, *self.groups]
        hint = did_you_mean(name, known)
        return (
            f"there is no target '{name}'.{hint} `fedrec artefacts` lists the tables and figures of papers, "
            "`snakemake --list-rules` all targets."
        )

    def snakemake_target(self, target: Target) -> str:
        """The target for Snakemake's command line: its name if a rule can have it, else its file."""
        path = self.training / target.files[0]
        return target.name if target.name.isidentifier() else shlex.quote(str(path))

    def splits(self, datasets: Iterable[str], protocols: Iterable[str]) -> list[str]:
        """The files of datasets' splits, below the results; `published` means their papers' protocols."""
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
        protocol_paper = paper_of(protocol_named(self.protocols, protocol).name)
        if protocol_paper not in (None, paper):
            raise ConfigurationError(
                f"'{protocol}' is not a protocol of {paper}, but of {protocol_paper}. Write runs/"
                f"{protocol_paper}/... instead of runs/{paper}/..., or a protocol of {paper}."
            )
        if paper != OWN:
            self.check_paper(paper)
        check_seed(int(seed))
        self.check_split(dataset, protocol)
        return RunId(paper, dataset, protocol, spelling, int(seed))

    def job(self, run: RunId) -> RunJob:
        """The job that trains a run."""
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
                records_diverged=self.records_diverged,
            )
        return self._jobs[run]

    def spec(self, run: RunId) -> RunSpec:
        """The specification that a finished run in the folder of `run` must match."""
        return self.job(run).spec(self.results)

    def pattern(self, form: str | None = None) -> str:
        """A regular expression of the names of all targets, or of those of one form."""
        return "|".join(name for name, its_form in self.targets.names.items() if form in (None, its_form))

    def chapter_of(self, name: str) -> str:
        """The chapter of Snakemake's report for a target: its paper, its dataset or the audit."""
        stem = name.rpartition("_")[0]
        if name in self.targets.audits:
            return "Audit"
        return self.papers[stem].title if stem in self.papers else stem

    def names_for_rules(self) -> list[str]:
        """The names of groups and targets that get their own rules, without those of the Snakefile."""
        names = [*self.groups, *(name for name in self.targets.names if name not in self.groups)]
        return [name for name in names if _RULE_NAME.fullmatch(name) and name not in _IN_SNAKEFILE]

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
        """The records of a run: those that a target of this configuration needs, and those it has already.

        So a finished run with more records stays current. A finished run without `traffic` also stays current
        unless a requested target attacks its uploads.
        """
        needed, before = self._records.get(run, []), self._finished_summary(run)
        if before is not None and self.attacked_runs is not None and run not in self.attacked_runs:
            needed = [text for text in needed if text != TRAFFIC]
        return tuple(spelled_records(merged_records([*needed, *(before or {}).get("record", [])])))

    def _model_of(self, run: RunId) -> str:
        """The models that a run writes: `always` if a target of this configuration reads it, else `small`.

        A finished run without its model is trained again only if a requested target reads the model. A
        finished run with a model that no target reads stays current.
        """
        before = self._finished_summary(run)
        needed = self.runs_with_models if before is None or self.inspected is None else self.inspected
        if before is None:
            return ALWAYS if run in needed else SMALL
        was_requested = before.get(MODEL) == WANTED
        return ALWAYS if was_requested or (before.get(MODEL) == NOT_KEPT and run in needed) else SMALL

    @cached_property
    def runs_with_models(self) -> frozenset[RunId]:
        """The runs whose models any target of this configuration reads."""
        return self.targets.inspected_runs()

    def _finished_summary(self, run: RunId) -> Mapping[str, Any] | None:
        """The content of a finished run's run.json; None if there is no run, or it is damaged."""
        try:
            summary: Mapping[str, Any] = read_checked_json(self.results / run.folder / SUMMARY)
        except (FileNotFoundError, StorageError, ValueError):
            # The reader of a damaged file reports it.
            return None
        return summary

    def _fingerprint(self, method: str) -> str:
        """The fingerprint of a method's code, or its representative if the ledger proves code equal to it."""
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
