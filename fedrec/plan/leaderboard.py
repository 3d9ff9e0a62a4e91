"""The lines of the leaderboard: methods whose searches share one rule and one protocol, and controls.

A line has the runs with the settings that its search found. It has no runs while the search is not finished,
or if it had fewer trials than its budget is now. A method with several ways to train it has one search for
each way, and one line: the way that is best on validation, once all searches are finished. A line also has
the runs with the settings of each paper that compares the method on the dataset, as competitors.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from fedrec.config.method_entries import Finding
from fedrec.config.methods import entries_of, resolve
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Artefact
from fedrec.config.protocol import rules_name
from fedrec.config.tuning import Search, best_way, finding_of, name_with_finding
from fedrec.plan.runs import RunId, run_of
from fedrec.plan.trials import trials_given
from fedrec.plan.workspace import Workspace

LEADERBOARD = "leaderboard"
"""The table, and the name of its layout."""
_CLEAN = BOTH[1]
RunsByProtocol = Mapping[str, Sequence[RunId]]
"""The runs of a line, one per seed, by the short name of their protocol."""


@dataclass(frozen=True)
class LeaderboardLine:
    """A method on a dataset."""

    dataset: str
    method: str
    """Its name without settings."""
    search: str | None = None
    """The name of its search, finished or not; None for a control."""
    backbone: str | None = None
    trials: int | None = None
    """The number of trials of its searches; None if one is not finished."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The settings that its search found, and those of the chosen way to train it."""
    runs: RunsByProtocol = field(default_factory=dict)
    """The runs with these settings; empty while its search is not finished."""
    before: RunsByProtocol = field(default_factory=dict)
    """The runs with the settings of the dataset's paper; empty for methods of no paper, or without `runs`."""
    stated: Mapping[str, RunsByProtocol] = field(default_factory=dict)
    """The runs with the settings of each paper that compares the method on this dataset, by paper titles;
    papers with equal settings share an entry. Empty without `runs`."""

    def content(self) -> dict[str, Any]:
        """The line as JSON for a plan: runs as folders."""
        return asdict(self) | {
            "runs": _folders(self.runs),
            "before": _folders(self.before),
            "stated": {title: _folders(runs) for title, runs in self.stated.items()},
        }


def leaderboard_lines(workspace: Workspace) -> list[LeaderboardLine]:
    """A line for every method that has a search, and every control, on each dataset that is available."""
    searches = workspace.tuning.under_shared_protocol
    datasets = workspace.available(dict.fromkeys(search.dataset for search in searches))
    compared = {parse(name).name for name in workspace.configuration["methods"]}
    lines: list[LeaderboardLine] = []
    for dataset in datasets:
        lines += [_control(workspace, name, dataset, compared) for name in workspace.tuning.controls]
        methods: dict[str, list[Search]] = {}
        for search in searches:
            if search.dataset == dataset:
                methods.setdefault(search.name, []).append(search)
        lines += [_tuned(workspace, ways, compared) for ways in methods.values()]
    return lines


def runs_of_lines(lines: Sequence[LeaderboardLine]) -> list[RunId]:
    """The runs that lines show, each once."""
    groups = (
        group
        for line in lines
        for runs in (line.runs, line.before, *line.stated.values())
        for group in runs.values()
    )
    return list(dict.fromkeys(run for group in groups for run in group))


def _control(workspace: Workspace, name: str, dataset: str, compared: Collection[str]) -> LeaderboardLine:
    _, _, paper = resolve(workspace.methods, name, None, dataset)
    protocols = _protocols(workspace, dataset, name in compared)
    return LeaderboardLine(dataset, name, runs=_runs(workspace, paper, dataset, name, protocols))


def _tuned(workspace: Workspace, ways: Sequence[Search], compared: Collection[str]) -> LeaderboardLine:
    """The line of a method, by the searches for its ways."""
    first = ways[0]
    method, dataset = first.name, first.dataset
    findings = {way.method: finding for way in ways if (finding := _finished(workspace, way)) is not None}
    missing = next((way for way in ways if way.method not in findings), None)
    if missing is not None:
        return LeaderboardLine(dataset, method, missing.target, first.backbone)
    best = best_way(findings)
    search = next(way for way in ways if way.method == best)
    name = name_with_finding(workspace.methods, search)
    protocols = _protocols(workspace, dataset, method in compared)
    before: RunsByProtocol = {}
    if entries_of(workspace.methods, parse(method))[-1].paper is not None:
        before = _runs(workspace, workspace.paper_of(dataset), dataset, method, BOTH)
    return LeaderboardLine(
        dataset,
        method,
        search.target,
        search.backbone,
        sum(finding.trials for finding in findings.values()),
        {**dict(parse(best).changes), **findings[best].settings},
        _runs(workspace, search.paper, dataset, name, protocols),
        before,
        _stated(workspace, method, dataset, protocols),
    )


def _stated(
    workspace: Workspace, method: str, dataset: str, protocols: Sequence[str]
) -> dict[str, RunsByProtocol]:
    """The runs of each paper whose main comparison has the method, with that paper's settings.

    Papers with equal settings share one key: their titles.
    """
    main: dict[str, Artefact] = {}
    for claim in workspace.claims:
        main.setdefault(claim.paper, claim.artefacts[0])
    groups: list[tuple[list[str], RunsByProtocol]] = []
    for paper, artefact in main.items():
        if dataset not in artefact.datasets or method not in [line.run for line in artefact.lines]:
            continue
        runs = _runs(workspace, paper, dataset, method, protocols)
        alike = next((titles for titles, others in groups if others == runs), None)
        if alike is None:
            groups.append(([workspace.papers[paper].title], runs))
        else:
            alike.append(workspace.papers[paper].title)
    return {", ".join(titles): runs for titles, runs in groups}


def _finished(workspace: Workspace, search: Search) -> Finding | None:
    """The finding of a search that has used its whole budget of trials; None if there is none."""
    finding = finding_of(workspace.methods, search)
    return None if finding is None or finding.trials < trials_given(search, workspace.tuning) else finding


def _protocols(workspace: Workspace, dataset: str, is_compared: bool) -> list[str]:
    """The shared protocol; for methods that the configuration compares, also its further protocols."""
    others = [
        name for name in workspace.compared_on(dataset) if name not in BOTH and rules_name(name) == name
    ]
    return [_CLEAN, *(others if is_compared else [])]


def _runs(
    workspace: Workspace, paper: str, dataset: str, method: str, protocols: Sequence[str]
) -> dict[str, list[RunId]]:
    return {
        protocol: [
            run_of(workspace.methods, paper, dataset, protocol, method, seed) for seed in workspace.seeds
        ]
        for protocol in protocols
    }


def _folders(runs: RunsByProtocol) -> dict[str, list[str]]:
    return {protocol: [run.folder for run in group] for protocol, group in runs.items()}
