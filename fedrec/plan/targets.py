"""Tables, figures and pages by name: their inputs, and everything that decides their content."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Self

from fedrec.config.claims import NOT_COUNTED
from fedrec.config.document import error_at
from fedrec.config.method_entries import SHARED_PROTOCOL
from fedrec.config.methods import title
from fedrec.config.modules import modules_of
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Artefact, artefacts_of
from fedrec.config.printed import printed_for, printed_numbers
from fedrec.config.protocol import short_name
from fedrec.config.tuning import Search, has_tuned
from fedrec.files.atomic import canonical_json
from fedrec.files.checked_json import verified, with_checksum
from fedrec.plan.availability import can_be_built
from fedrec.plan.cause_runs import cause_runs, trials_behind
from fedrec.plan.evaluated import EvaluatedPlan, evaluated_plan, stored_plan
from fedrec.plan.fingerprint import check_code, code_fingerprint
from fedrec.plan.layouts import FOLDER, Form, Layout
from fedrec.plan.leaderboard import LEADERBOARD, leaderboard_lines, runs_of_lines
from fedrec.plan.runs import STATE, SUMMARY, RunId
from fedrec.plan.selection import (
    compared,
    runs_of,
    selection_named,
    with_majority_seeds,
    with_seeds_of_all,
)
from fedrec.plan.trial_results import trial_validation
from fedrec.plan.trials import design, early_rounds, stages
from fedrec.plan.workspace import Workspace

ENDINGS: Mapping[str, tuple[str, ...]] = {
    "table": ("csv", "md", "tex", "json"),
    "figure": ("csv", "pdf", "png", "svg", "txt"),
    "page": ("html", "runs.html", "txt"),
    "search": ("csv", "md", "tex", "json"),
}
"""The files of each form. Pages show a table's json and a figure's svg; a figure's csv and txt hold its data
and its caption, a page's runs.html its runs, and a page's txt its finding."""
_NOT_FROZEN: Mapping[str, tuple[str, ...]] = {"figure": ("pdf", "png")}
"""Extensions that a frozen target leaves out, by form: a smaller file shows the same."""
RESULT_FOLDERS: Mapping[str, str] = {
    "table": "tables",
    "figure": "figures",
    "page": "report",
    "search": "tuning",
}
QUICK = "quick"
"""The page of the first look, and the prefix of its tables and figures."""
PAGES = ("report", "demo", QUICK)
COVERAGE = "coverage"
"""The table of every printed number beside ours, and the name of its layout."""


@dataclass(frozen=True)
class AuditTarget:
    """The subject of a target of the audit."""

    layout: Layout
    workspace: Workspace
    """The workspace with its datasets: that of the configuration, the first look or the demonstration."""
    paper: str | None = None
    """The paper, if the target is about a single one."""


@dataclass(frozen=True)
class Target:
    """One table, figure or page."""

    name: str
    form: Form
    layout: str
    files: tuple[str, ...]
    """Its files, below the results."""
    runs: tuple[RunId, ...] = ()
    reads: tuple[str, ...] = ()
    """Further input files in addition to the summaries of `runs`, below the results."""
    content: Mapping[str, Any] = field(default_factory=dict)
    """Everything else that decides it, as JSON values."""
    fingerprint: str = ""
    """The fingerprint of the code that builds it."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """All its input files, below the results."""
        return (*(f"{run.folder}/{SUMMARY}" for run in self.runs), *self.reads)

    @property
    def priority(self) -> int:
        """Snakemake's priority: targets that read most models start first, because they take longest."""
        return sum(file.endswith(f"/{STATE}") for file in self.reads)

    @property
    def plan(self) -> str:
        """The file that stores this plan, below the results."""
        return f"plan/{self.name}.json"

    def as_json(self) -> str:
        """The plan as text."""
        return json.dumps(with_checksum(asdict(self)), indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `as_json`; `ValueError` if the text is damaged."""
        content = verified(text)
        content["runs"] = tuple(RunId(**run) for run in content["runs"])
        for key in ("files", "reads"):
            content[key] = tuple(content[key])
        return cls(**content)


def files_of(form: Form, name: str) -> tuple[str, ...]:
    """The files of a target, below the results."""
    return tuple(f"{RESULT_FOLDERS[form]}/{name}.{ending}" for ending in ENDINGS[form])


def frozen_files_of(layout: Layout, name: str) -> tuple[str, ...]:
    """The stored files of a frozen target, below the results: none with rows of data."""
    left_out = {*_NOT_FROZEN.get(layout.form, ()), *(["csv"] if layout.has_rows_of_data else [])}
    return tuple(file for file in files_of(layout.form, name) if file.rpartition(".")[2] not in left_out)


def splits_of(dataset: str, protocols: Iterable[str]) -> list[str]:
    """The files of a dataset's splits under protocols by their full names, below the results."""
    return [
        f"data/{dataset}/{protocol}/{file}.parquet"
        for protocol in protocols
        for file in ("split", "candidates")
    ]


class Targets:
    """All targets of a workspace; each is planned on first access."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._targets: dict[str, Target] = {}
        self._fingerprints: dict[frozenset[str], str] = {}

    @cached_property
    def names(self) -> dict[str, Form]:
        """The form of every target by its name."""
        workspace = self._workspace
        names: dict[str, Form] = {}
        for artefact in artefacts_of(workspace.papers, workspace.papers):
            names[artefact.target] = workspace.layout_of(artefact).form
        for dataset in workspace.catalogue:
            for layout in self._dataset_layouts():
                name = f"{dataset}_{layout.name}"
                names |= {name: layout.form, f"{QUICK}_{name}": layout.form}
        names |= dict.fromkeys((f"{selection}_statistics" for selection in self.selections), "table")
        names |= {name: audit.layout.form for name, audit in self.audits.items()}
        names |= {COVERAGE: "table", LEADERBOARD: "table"}
        names |= dict.fromkeys(PAGES, "page")
        names |= dict.fromkeys(workspace.tuning.searches, "search")
        return names

    @cached_property
    def selections(self) -> dict[str, list[str]]:
        """The datasets of each table of statistics."""
        workspace = self._workspace
        return {
            "dataset": workspace.catalogue.whole(),
            "selected": list(workspace.configuration["datasets"]),
            "demo": ["demo"],
        }

    @cached_property
    def audits(self) -> dict[str, AuditTarget]:
        """The targets of the audit: of the configuration, each claiming paper, first look, demonstration."""
        workspace = self._workspace
        others = {QUICK: workspace.first_look, "demo": workspace.demonstration}
        claiming = {claim.paper for claim in workspace.claims}
        audits: dict[str, AuditTarget] = {}
        for layout in workspace.layouts.values():
            if layout.selection is None:
                continue
            selection = selection_named(layout.selection, layout.module)
            if not (layout.of_audit or selection.of_audit):
                continue
            name = f"{selection.prefix}{layout.name}"
            audits[name] = AuditTarget(layout, workspace)
            if selection.runs_of_paper is not None:
                papers = [paper for paper in workspace.papers if paper in claiming]
                audits |= {f"{name}_{paper}": AuditTarget(layout, workspace, paper) for paper in papers}
            for prefix, other in others.items():
                if selection.concerns(other):
                    audits[f"{prefix}_{name}"] = AuditTarget(layout, other)
        return audits

    def compared(self, dataset: str, page: str = "") -> list[str]:
        """The names of the targets that compare methods on a dataset; `page` only decides their prefix."""
        return [f"{_prefix_on(page)}{dataset}_{layout.name}" for layout in self._dataset_layouts()]

    def audit_targets(self, workspace: Workspace | None = None) -> list[str]:
        """The audit targets of the configuration, the first look or the demonstration.

        Targets without runs to read are left out; without data there are none.
        """
        workspace = workspace or self._workspace
        # With stored runs nothing is trained, so the audits of single papers are cheap.
        papers = {None} if workspace.stored is None else {None, *workspace.papers}
        if not workspace.available(workspace.configuration["datasets"]):
            return []
        names = [
            name
            for name, audit in self.audits.items()
            if audit.workspace is workspace and audit.paper in papers and _has_inputs(audit)
        ]
        if workspace.stored is None:
            return names
        # The leaderboard and the coverage read the runs of many targets: cheap, since nothing is trained.
        tuned = [LEADERBOARD] * has_tuned(workspace.methods)
        return [*names, *tuned, COVERAGE]

    def audit_targets_of_paper(self, paper: str) -> list[str]:
        """The targets of the audit of one paper."""
        return [name for name, audit in self.audits.items() if audit.paper == paper]

    def can_be_built(self, artefact: Artefact) -> bool:
        """Whether any part of a paper's artefact can be built with the available data."""
        workspace = self._workspace
        missing = workspace.unavailable_to_papers(artefact.datasets)
        layout = workspace.layout_of(artefact)
        if workspace.stored is None or layout.dataless or "runs" not in layout.needs:
            return can_be_built(artefact, layout, missing)
        return workspace.is_frozen(artefact.target) or bool(self.get(artefact.target).runs)

    def can_be_searched(self, search: Search) -> bool:
        """Whether the split for a search's trials is available."""
        return not self._missing_for(search)

    def get(self, name: str) -> Target:
        """The target called `name`, which must be one of `names`."""
        if name not in self._targets:
            self._targets[name] = self._make(name)
        return self._targets[name]

    def _make(self, name: str) -> Target:
        stem, _, last = name.rpartition("_")
        layouts = self._workspace.layouts
        if name in PAGES:
            return self._page(name)
        if name == COVERAGE:
            return self._coverage()
        if name == LEADERBOARD:
            return self._leaderboard()
        if name in self.audits:
            return self._audit(name, self.audits[name])
        if name in self._workspace.tuning.searches:
            return self._search(self._workspace.tuning.searches[name])
        if last == "statistics" and stem in self.selections:
            return self._statistics_target(name, stem)
        if stem in self._workspace.catalogue and last in layouts:
            return self._dataset_target(name, self._workspace, layouts[last], stem)
        if stem.startswith(f"{QUICK}_") and last in layouts:
            dataset = stem.removeprefix(f"{QUICK}_")
            return self._dataset_target(name, self._workspace.first_look, layouts[last], dataset)
        return self._artefact_target(self._workspace.artefact_named(name))

    def _dataset_layouts(self) -> list[Layout]:
        """The layouts of the targets of each dataset."""
        layouts = self._workspace.layouts.values()
        return [layout for layout in layouts if layout.selection == "comparison" and not layout.of_audit]

    def inspected_runs(self) -> frozenset[RunId]:
        """The runs whose models any target reads."""
        workspace = self._workspace
        of_papers = (
            self._runs_of_paper(artefact)
            for artefact in artefacts_of(workspace.papers, workspace.papers)
            if "states" in workspace.layout_of(artefact).needed(artefact.options)
        )
        of_audit = (_runs_of_audit(audit) for audit in self.audits.values() if "states" in audit.layout.needs)
        return frozenset(run for runs in (*of_papers, *of_audit) for run in runs)

    def _runs_of_paper(self, artefact: Artefact) -> list[RunId]:
        """The runs that a table or figure of a paper shows."""
        workspace = self._workspace
        unavailable = workspace.unavailable_to_papers(artefact.datasets)
        groups = runs_of(artefact, workspace.methods, workspace.seeds, unavailable).values()
        return sorted({run for group in groups for run in group})

    def _artefact_target(self, artefact: Artefact) -> Target:
        workspace, layout = self._workspace, self._workspace.layout_of(artefact)
        unavailable = workspace.unavailable_to_papers(artefact.datasets)
        runs = self._runs_of_paper(artefact) if "runs" in layout.needs else []
        content = {
            "artefact": asdict(artefact),
            "paper": artefact.paper,
            "seeds": workspace.seeds,
            "printed": printed_for(artefact),
            "titles": [title(workspace.methods, line.run) for line in artefact.lines if line.run],
            "unavailable": unavailable,
        }
        over = artefact.options.get("client_space_over")
        models = [
            *(line.run for line in artefact.lines if line.run),
            *([over] if over else []),
            *layout.models,
        ]
        needs = layout.needed(artefact.options)
        datasets = [name for name in artefact.datasets if name not in unavailable]
        return self._target(
            artefact.target, layout, runs, content, needs, datasets, models, beside=with_majority_seeds
        )

    def _dataset_target(self, name: str, workspace: Workspace, layout: Layout, dataset: str) -> Target:
        names = workspace.configuration["methods"]
        content: dict[str, Any] = {
            "dataset": dataset,
            "seeds": workspace.seeds,
            "titles": [title(workspace.methods, method) for method in names],
        }
        if unavailable := workspace.unavailable([dataset]):
            content["unavailable"] = unavailable
        runs = compared(workspace, dataset)
        return self._target(
            name, layout, runs, content, layout.needs, [dataset], names, beside=with_majority_seeds
        )

    def _statistics_target(self, name: str, selection: str) -> Target:
        workspace, datasets = self._workspace, self.selections[selection]
        unavailable = workspace.unavailable(datasets)
        content = {
            "datasets": datasets,
            "descriptions": [workspace.catalogue[dataset].description() for dataset in datasets],
            "unavailable": unavailable,
        }
        available = [dataset for dataset in datasets if dataset not in unavailable]
        return self._target(name, workspace.layouts["statistics"], [], content, ("statistics",), available)

    def _audit(self, name: str, audit: AuditTarget) -> Target:
        layout, workspace, paper = audit.layout, audit.workspace, audit.paper
        runs = _runs_of_audit(audit)
        selection = selection_named(str(layout.selection), layout.module)
        datasets = workspace.available(workspace.configuration["datasets"])
        content: dict[str, Any] = {
            "papers": None if paper is None else [paper],
            "datasets": datasets,
            "seeds": workspace.seeds,
            "titles": {run.method: title(workspace.methods, run.method) for run in runs},
            **selection.content(workspace, paper),
        }
        methods = sorted({run.method for run in runs})
        # The tests compare users. Different seeds would add a difference of their own.
        beside = with_seeds_of_all if layout.selection == "comparison" else None
        return self._target(name, layout, runs, content, layout.needs, datasets, methods, beside=beside)

    def _search(self, search: Search) -> Target:
        workspace = self._workspace
        with error_at(f"{workspace.configuration['tuning_file']}, {search.key}"):
            changed = (setting for setting, _ in parse(search.method).changes)
            check_code(search.method, [*changed, *(searched.setting for searched in search.ranges)])
        known = stages(
            search, workspace.tuning, workspace.methods, trial_validation(workspace, exact=search.exact)
        )
        missing = self._missing_for(search)
        halving = workspace.tuning.halving
        early = early_rounds(search, workspace.tuning, workspace.methods)
        content = {
            "search": asdict(search),
            "halving": {"rounds": early, "keep": halving.keep} if halving and early else None,
            "trials": design(search, workspace.tuning),
            "final": workspace.tuning.final and asdict(workspace.tuning.final),
            "stages": [
                {
                    "rounds": stage.rounds,
                    "runs": {n: [run.folder for run in runs] for n, runs in stage.runs.items()},
                }
                for stage in known
            ],
            "unavailable": missing,
        }
        every = dict.fromkeys(run for stage in known for runs in stage.runs.values() for run in runs)
        runs = [] if missing else list(every)
        return self._target(search.target, workspace.layouts["tuning"], runs, content, ("runs",), [])

    def _missing_for(self, search: Search) -> dict[str, str]:
        """The reasons why the dataset of a search, or its paper's split, is unavailable."""
        catalogue = self._workspace.catalogue
        missing = self._workspace.unavailable([search.dataset])
        if search.protocol == SHARED_PROTOCOL:
            return missing
        if search.dataset in catalogue and search.paper not in catalogue[search.dataset].papers:
            return {search.dataset: f"it is not a dataset of {search.paper}"}
        keys = (search.dataset, f"{search.dataset}/published-{search.paper}")
        return {name: why for name, why in missing.items() if name in keys}

    def _coverage(self) -> Target:
        workspace = self._workspace
        sources = [
            artefact
            for artefact in artefacts_of(
                workspace.papers,
                workspace.papers if workspace.stored is None else workspace.configuration["artefacts"],
            )
            if (artefact.form == "table" or artefact.printed) and self.can_be_built(artefact)
        ]
        runs = {run for artefact in sources for run in self.get(artefact.target).runs}
        trial_runs = trials_behind(
            workspace, (run for run in runs if short_name(run.protocol) == "published")
        )
        content = {
            "sources": [artefact.target for artefact in sources],
            "causes": workspace.configuration.get("reference", {}).get("causes", []),
            "printed": [[*key, number.value, number.unit] for key, number in printed_numbers().items()],
            "tried": {line: [trial.folder for trial in trials] for line, trials in trial_runs.items()},
        }
        layout = workspace.layouts[COVERAGE]
        needed = sorted({*runs, *cause_runs(workspace)})
        target = self._target(COVERAGE, layout, needed, content, (), [])
        # Trials are not reported: they are inputs, but not among the target's runs.
        trials = sorted({trial for group in trial_runs.values() for trial in group})
        reads = [
            *(files_of(source.form, source.target)[0] for source in sources),
            # Tables with numbers of inactive users name the users.
            *(
                file
                for source in sources
                for file in self.get(source.target).reads
                if "users" in source.options and file.endswith("/interactions.parquet")
            ),
            *(f"{trial.folder}/{SUMMARY}" for trial in trials),
        ]
        return replace(target, reads=tuple(dict.fromkeys(reads)))

    def _leaderboard(self) -> Target:
        workspace, layout = self._workspace, self._workspace.layouts[LEADERBOARD]
        lines = leaderboard_lines(workspace)
        datasets = dict.fromkeys(search.dataset for search in workspace.tuning.under_shared_protocol)
        content = {
            "lines": [line.content() for line in lines],
            "titles": {line.method: title(workspace.methods, line.method) for line in lines},
            "seeds": workspace.seeds,
            "unavailable": workspace.unavailable(datasets),
            NOT_COUNTED: {
                dataset: why for claim in workspace.claims for dataset, why in claim.not_counted.items()
            },
        }
        methods = dict.fromkeys(line.method for line in lines)
        return self._target(
            LEADERBOARD,
            layout,
            runs_of_lines(lines),
            content,
            layout.needs,
            [],
            methods,
            beside=with_majority_seeds,
        )

    def _page(self, name: str) -> Target:
        demo = name == "demo"
        of_pages = {"demo": self._workspace.demonstration, QUICK: self._workspace.first_look}
        workspace = of_pages.get(name, self._workspace)
        datasets = list(workspace.configuration["datasets"])
        artefacts = artefacts_of(workspace.papers, workspace.configuration["artefacts"])
        named = [dataset for artefact in artefacts for dataset in artefact.datasets]
        unavailable = workspace.unavailable_to_papers(named) | workspace.unavailable(datasets)
        available = [dataset for dataset in datasets if dataset not in unavailable]
        built = [artefact.target for artefact in artefacts if self.can_be_built(artefact)]
        audit = self.audit_targets(workspace)
        statistics = "demo_statistics" if demo else "selected_statistics"
        shown = [
            *(target for dataset in available for target in self.compared(dataset, name)),
            statistics,
            *built,
            *audit,
        ]
        targets = [self.get(target) for target in shown]
        content = {
            "datasets": datasets,
            "prefix": _prefix_on(name),
            "artefacts": [artefact.target for artefact in artefacts],
            "built": built,
            "kept": {target.name: target.files for target in targets if workspace.is_frozen(target.name)},
            "audit": audit,
            "statistics": [statistics],
            "targets": shown,
            "titles": {paper.name: paper.title for paper in workspace.papers.values()},
            "assets": _assets(),
            "unavailable": unavailable,
        }
        runs = sorted({run for target in targets for run in target.runs})
        layout = workspace.layouts["page"]
        reads = tuple(file for target in targets for file in (*target.files, target.plan))
        return replace(self._target(name, layout, runs, content, (), []), reads=reads)

    def _line_name(self, run: RunId) -> str:
        """The name of a run's line: a method on a dataset under a protocol."""
        name = title(self._workspace.methods, run.method)
        return f"{name} on {run.dataset}, {short_name(run.protocol)}"

    def _with_seeds(self, line: Sequence[RunId]) -> str:
        return f"{self._line_name(line[0])} ({', '.join(str(run.seed) for run in line)})"

    def _missing_lines(self, requested: Iterable[RunId], shown: Iterable[RunId]) -> list[str]:
        """The requested lines without any stored run.

        Lines under a further protocol count only if the dataset has stored runs under it: without any, the
        table has no column for that protocol.
        """
        stored = {replace(run, seed=0) for run in shown}
        splits = {(run.dataset, run.protocol) for run in stored}
        further = {*self._workspace.compared_protocols}.difference(BOTH)
        lacking = [
            run
            for run in requested
            if replace(run, seed=0) not in stored
            and (run.protocol not in further or (run.dataset, run.protocol) in splits)
        ]
        return list(dict.fromkeys(map(self._line_name, lacking)))

    def _target(
        self,
        name: str,
        layout: Layout,
        runs: Sequence[RunId],
        content: Mapping[str, Any],
        needs: Sequence[str],
        datasets: Sequence[str],
        models: Iterable[str] = (),
        *,
        beside: Callable[[Sequence[RunId]], tuple[list[RunId], list[list[RunId]]]] | None = None,
    ) -> Target:
        requested, runs = runs, self._workspace.shown(runs, layout)
        # The reference freezes a paper's figure of models as a whole: single lines cannot be missing there.
        looks_inside = "states" in layout.needs
        if (layout.of_audit or not looks_inside) and (lacking := self._missing_lines(requested, runs)):
            content = {**content, "lacking": lacking}
        if beside is not None:
            runs, others = beside(runs)
            if others:
                content = {**content, "other_seeds": [self._with_seeds(line) for line in others]}
        if older := self._workspace.older(runs):
            content = {**content, "older": older}
        reads: list[str] = []
        if "states" in needs:
            reads += [f"{run.folder}/{STATE}" for run in runs]
        if "splits" in needs:
            splits = dict.fromkeys((run.dataset, run.protocol) for run in runs)
            reads += [file for dataset, protocol in splits for file in splits_of(dataset, [protocol])]
        if "statistics" in needs:
            reads += [f"data/{dataset}/statistics.json" for dataset in datasets]
        if "interactions" in needs:
            reads += [f"data/{dataset}/interactions.parquet" for dataset in datasets]
        if "evaluated" in needs and (theirs := self._evaluated(layout, runs)) is not None:
            content = {**content, "evaluated": asdict(theirs)}
            reads += [f"{folder}/{SUMMARY}" for folder in theirs.there]
        modules = {layout.module}
        if "models" in needs:
            modules |= {module for model in models for module in modules_of(model)}
        return Target(
            name,
            layout.form,
            layout.name,
            frozen_files_of(layout, name) if self._workspace.is_frozen(name) else files_of(layout.form, name),
            tuple(runs),
            tuple(reads),
            json.loads(canonical_json(content)),
            self._fingerprint(frozenset(modules)),
        )

    def _evaluated(self, layout: Layout, runs: Sequence[RunId]) -> EvaluatedPlan | None:
        """The records of other systems on the splits of runs; None if no system is named or stored.

        With stored runs, only the leaderboard shows them: other tables have runs with papers' settings.
        """
        workspace = self._workspace
        # The leaderboard ranks by the shared protocol alone.
        alone = [SHARED_PROTOCOL] if layout.name == LEADERBOARD else [run.protocol for run in runs]
        splits = dict.fromkeys((run.dataset, run.protocol) for run in runs if run.protocol in alone)
        if workspace.stored is None:
            names = workspace.evaluated
            return evaluated_plan(workspace.results, names, splits) if names else None
        stored = workspace.stored.evaluated if layout.name == LEADERBOARD else ()
        return stored_plan(stored, splits) if stored else None

    def _fingerprint(self, modules: frozenset[str]) -> str:
        if modules not in self._fingerprints:
            self._fingerprints[modules] = code_fingerprint(*modules)
        return self._fingerprints[modules]


def _prefix_on(page: str) -> str:
    """The prefix of a page's comparison targets."""
    return f"{QUICK}_" if page == QUICK else ""


def _runs_of_audit(audit: AuditTarget) -> list[RunId]:
    """The runs that a target of the audit reads, for all papers or for its own."""
    selection = selection_named(str(audit.layout.selection), audit.layout.module)
    if audit.paper is None:
        return selection.runs(audit.workspace)
    return [] if selection.runs_of_paper is None else selection.runs_of_paper(audit.workspace, audit.paper)


def _has_inputs(audit: AuditTarget) -> bool:
    workspace = audit.workspace
    selection = selection_named(str(audit.layout.selection), audit.layout.module)
    if audit.paper is not None:
        # A selection that is built without runs covers all papers: single papers are left out.
        runs_of_paper = None if selection.without_runs else selection.runs_of_paper
        runs = [] if runs_of_paper is None else runs_of_paper(workspace, audit.paper)
        return bool(workspace.shown(runs, audit.layout))
    if not selection.concerns(workspace):
        return False
    return selection.without_runs or bool(workspace.shown(selection.runs(workspace), audit.layout))


def _assets() -> dict[str, str]:
    """Hashes of the page's files that are not Python sources: template, style, script."""
    files = sorted(path for path in (FOLDER / "page").glob("*") if path.is_file() and path.suffix != ".py")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
