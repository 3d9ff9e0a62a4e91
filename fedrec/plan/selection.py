"""Selections: the runs that tables, figures and claims read."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fedrec.config.claims import COSTS_LITTLE, Claim, named_lines
from fedrec.config.conditions import PUBLISHED, Condition, conditions_among
from fedrec.config.methods import Methods
from fedrec.config.names import parse
from fedrec.config.papers import BOTH, Artefact, Paper
from fedrec.config.printed import printed_numbers
from fedrec.config.protocol import SWITCHES, full_name, short_name
from fedrec.config.records import TRAFFIC, merged_records, spelled_records
from fedrec.config.tuning import has_tuned, tuned_name
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.leaderboard import leaderboard_lines
from fedrec.plan.protocol_steps import ProtocolSteps, protocol_steps, runs_of_step, steps
from fedrec.plan.runs import RunId, run_of, shortened
from fedrec.plan.workspace import Workspace

POPULARITY = "popularity"
"""The baseline that a claim of little cost must at least reach; also its name among the claim's lines."""


def runs_of(
    artefact: Artefact, methods: Methods, seeds: Sequence[int], unavailable: Container[str] = ()
) -> dict[tuple[int, str, str], list[RunId]]:
    """The runs of an artefact on its available datasets and splits, one per seed.

    Keys are the index of the line, the dataset and the protocol's full name. `unavailable` has datasets, and
    splits as `dataset/protocol`.
    """
    return {
        (index, dataset, protocol): [
            run_of(methods, artefact.paper, dataset, protocol, line.run, seed) for seed in seeds
        ]
        for index, line in enumerate(artefact.lines)
        if line.run is not None
        for dataset in artefact.datasets
        if dataset not in unavailable
        for protocol in artefact.protocols
        if f"{dataset}/{protocol}" not in unavailable
    }


def with_majority_seeds(runs: Sequence[RunId]) -> tuple[list[RunId], list[list[RunId]]]:
    """Select runs with common seeds, to show lines side by side; also return lines with other seeds.

    On each split, the common seeds are those that most lines have; of ties, the smallest set. Means over
    different seeds would differ for that reason alone. A line without some of these seeds keeps the others.
    """
    shown: set[RunId] = set()
    others: list[list[RunId]] = []
    for of_split in _lines_of_splits(runs):
        counts = Counter(frozenset(run.seed for run in line) for line in of_split)
        majority = min(counts, key=lambda seeds: (-counts[seeds], len(seeds), sorted(seeds)))
        for line in of_split:
            chosen = [run for run in line if run.seed in majority] or line
            shown.update(chosen)
            others += [chosen] if {run.seed for run in chosen} != majority else []
    return [run for run in runs if run in shown], others


def with_seeds_of_all(runs: Sequence[RunId]) -> tuple[list[RunId], list[list[RunId]]]:
    """Select runs with the seeds that all lines of a split have, for comparisons user by user.

    On a split without such seeds, select as `with_majority_seeds` does.
    """
    shown: set[RunId] = set()
    others: list[list[RunId]] = []
    for of_split in _lines_of_splits(runs):
        common = frozenset.intersection(*(frozenset(run.seed for run in line) for line in of_split))
        every = [run for line in of_split for run in line]
        if common:
            shown.update(run for run in every if run.seed in common)
        else:
            chosen, different = with_majority_seeds(every)
            shown.update(chosen)
            others += different
    return [run for run in runs if run in shown], others


def _lines_of_splits(runs: Iterable[RunId]) -> list[list[list[RunId]]]:
    """Group runs by split, and on each split by line: runs that differ only in the seed."""
    lines: dict[tuple[str, str], dict[tuple[str, str], list[RunId]]] = {}
    for run in sorted(runs):
        of_split = lines.setdefault((run.dataset, run.protocol), {})
        of_split.setdefault((run.paper, run.method), []).append(run)
    return [list(of_split.values()) for of_split in lines.values()]


def records_of(papers: Mapping[str, Paper], methods: Methods, seeds: Sequence[int]) -> dict[RunId, list[str]]:
    """The records of runs for any table or figure, as `--record` spells them, without runs that have none.

    They do not depend on the requested targets, so that a run's files are the same for every target.
    """
    texts: dict[RunId, list[str]] = {}
    for paper in papers.values():
        for artefact in paper.artefacts.values():
            for runs in runs_of(artefact, methods, seeds).values() if artefact.record else ():
                for run in runs:
                    texts.setdefault(run, []).extend(artefact.record)
    return {run: spelled_records(merged_records(texts[run])) for run in sorted(texts)}


def runs_by_line(
    claim: Claim,
    artefact: Artefact,
    methods: Methods,
    seeds: Sequence[int],
    rounds: int | None,
    unavailable: Container[str],
    conditions: Iterable[Condition],
) -> dict[tuple[str, str, str], list[RunId]]:
    """The runs that decide a claim, one per seed, by line, dataset and the condition's key.

    They train for `rounds` at most; None for the paper's number. Runs on `unavailable` datasets, or splits as
    `dataset/protocol`, are left out. A line has no runs under a tuned condition if no search found settings.
    `POPULARITY` has one run: its numbers are the same with every seed.
    """
    lines = named_lines(artefact)
    splits = [
        (dataset, condition, protocol)
        for dataset in claim.datasets
        if dataset not in unavailable
        for condition in (PUBLISHED, *conditions)
        for protocol in (full_name(condition.protocol, claim.paper),)
        if f"{dataset}/{protocol}" not in unavailable
    ]
    beside = [
        (dataset, condition.key, run_of(methods, claim.paper, dataset, protocol, POPULARITY, seed))
        for dataset, condition, protocol in splits
        if claim.kind == COSTS_LITTLE and condition != PUBLISHED
        for seed in seeds[:1]
    ]
    return {
        (name, dataset, condition.key): [
            run_of(methods, paper, dataset, protocol, method, seed)
            for paper, trained in _tuned_line(methods, claim.paper, str(lines[name].run), dataset, condition)
            for method in shortened(methods, [trained], paper, dataset, rounds)
            for seed in seeds
        ]
        for name in claim.lines
        for dataset, condition, protocol in splits
    } | {(POPULARITY, dataset, key): [run] for dataset, key, run in beside}


def _tuned_line(
    methods: Methods, paper: str, method: str, dataset: str, condition: Condition
) -> list[tuple[str, str]]:
    """The paper and method of a line under a condition; empty if the line has no tuned settings."""
    if not condition.tuned:
        return [(paper, method)]
    found = tuned_name(methods, method, dataset)
    return [] if found is None else [found]


def runs_of_claim(
    claim: Claim,
    methods: Methods,
    seeds: Sequence[int],
    rounds: int | None,
    unavailable: Container[str],
    conditions: Sequence[Condition],
) -> list[RunId]:
    """Every run that decides a claim, under the published protocol and all conditions, each once."""
    groups = [
        runs
        for artefact in claim.artefacts
        for runs in runs_by_line(claim, artefact, methods, seeds, rounds, unavailable, conditions).values()
    ]
    return sorted({run for runs in groups for run in runs})


def claim_conditions(workspace: Workspace) -> tuple[Condition, ...]:
    """The conditions of verdicts: those whose protocols the configuration names.

    For stored runs, those with any run; a missing run is a dash in the table. Runs with tuned settings are
    those of the leaderboard; claims train no others.
    """
    if workspace.stored is None:
        return conditions_among(workspace.configuration["protocols"])
    protocols = {run.protocol for run in workspace.stored.runs}
    return conditions_among(protocols, tuned=has_tuned(workspace.methods))


def compared(workspace: Workspace, dataset: str) -> list[RunId]:
    """The runs of a dataset's comparison: every configured method under each protocol."""
    paper = workspace.paper_of(dataset)
    names = shortened(
        workspace.methods, workspace.configuration["methods"], paper, dataset, workspace.rounds_of(dataset)
    )
    return [
        run_of(workspace.methods, paper, dataset, protocol, name, seed)
        for name in names
        for protocol in workspace.compared_on(dataset)
        for seed in workspace.seeds
    ]


def configured_steps(workspace: Workspace) -> list[ProtocolSteps]:
    """The configured steps between protocols, on the available configured datasets."""
    audit = workspace.configuration["audit"]
    return [
        protocol_steps(
            workspace.methods,
            audit["methods"],
            dataset=dataset,
            paper=workspace.paper_of(dataset),
            rounds=workspace.rounds_of(dataset),
            switches=audit["switches"],
            distinct_pairs=workspace.catalogue[dataset].distinct_pairs,
        )
        for dataset in workspace.available(workspace.configuration["datasets"])
    ]


def steps_of_paper(workspace: Workspace, paper: str) -> list[ProtocolSteps]:
    """All steps for the methods of a paper's main comparison, on its datasets, with its own settings."""
    main = main_comparison(workspace, paper)
    missing = workspace.unavailable_to_papers(main.datasets)
    return [
        protocol_steps(
            workspace.methods,
            [line.run for line in main.lines if line.run is not None],
            dataset=dataset,
            paper=paper,
            rounds=None,
            switches=SWITCHES,
            distinct_pairs=workspace.catalogue[dataset].distinct_pairs,
        )
        for dataset in main.datasets
        if dataset not in missing and f"{dataset}/published-{paper}" not in missing
    ]


def main_comparison(workspace: Workspace, paper: str) -> Artefact:
    """The first table that a paper's first claim names."""
    claims = [claim for claim in workspace.claims if claim.paper == paper]
    if not claims:
        raise ConfigurationError(
            f"{workspace.configuration['claim_file']}: {paper} has no claims, so there is nothing to audit. "
            "Add a claim."
        )
    return claims[0].artefacts[0]


def claimed_datasets(workspace: Workspace) -> list[str]:
    """The datasets that claims are about, in the catalogue or not."""
    return sorted({dataset for claim in workspace.claims for dataset in claim.datasets})


def _comparison_runs(workspace: Workspace) -> list[RunId]:
    datasets = workspace.available(workspace.configuration["datasets"])
    return [run for dataset in datasets for run in compared(workspace, dataset)]


def _runs_of_steps(workspace: Workspace, audited: Iterable[ProtocolSteps]) -> list[RunId]:
    return sorted(
        {
            run
            for one_dataset in audited
            for step in steps(one_dataset, workspace.protocols)
            for runs in runs_of_step(one_dataset, workspace.methods, step, workspace.seeds).values()
            for run in runs
        }
    )


def _step_runs(workspace: Workspace) -> list[RunId]:
    return _runs_of_steps(workspace, configured_steps(workspace))


def _step_runs_of_paper(workspace: Workspace, paper: str) -> list[RunId]:
    return _runs_of_steps(workspace, steps_of_paper(workspace, paper))


def _attack_runs(workspace: Workspace) -> list[RunId]:
    """The runs whose uploads are attacked."""
    runs: list[RunId] = []
    for dataset in workspace.available(workspace.configuration["datasets"]):
        paper, uploads = workspace.paper_of(dataset), workspace.configuration["audit"]["uploads"]
        names = shortened(workspace.methods, uploads, paper, dataset, workspace.rounds_of(dataset))
        runs += sorted(
            {
                run_of(workspace.methods, paper, dataset, "clean", name, seed)
                for name in names
                for seed in workspace.seeds
            }
        )
    return runs


def _tuned_attack_runs(workspace: Workspace) -> list[RunId]:
    """The runs of the leaderboard whose uploads are attacked: the same methods, with the first seed."""
    if not has_tuned(workspace.methods):
        return []
    names = {parse(name).name for name in workspace.configuration["audit"]["uploads"]}
    lines = (line for line in leaderboard_lines(workspace) if line.trials is not None)
    return [line.runs["clean"][0] for line in lines if line.method in names]


def _exposure_runs(workspace: Workspace) -> list[RunId]:
    """The runs whose draws are counted: those of the comparison, and those under `only-pool` for contrast."""
    exposed = {run for run in _step_runs(workspace) if short_name(run.protocol) == "only-pool"}
    return sorted(
        {*(run for run in _comparison_runs(workspace) if short_name(run.protocol) in BOTH), *exposed}
    )


def _claim_runs(workspace: Workspace) -> list[RunId]:
    """The runs of claims that the configuration trains for other targets, or that are stored."""
    trained = set(_exposure_runs(workspace)) if workspace.stored is None else workspace.stored.runs
    missing = workspace.unavailable(
        workspace.configuration["datasets"] if workspace.stored is None else claimed_datasets(workspace)
    )
    rounds = workspace.configuration["rounds"]
    return sorted(
        {
            run
            for claim in workspace.claims
            for run in runs_of_claim(
                claim, workspace.methods, workspace.seeds, rounds, missing, claim_conditions(workspace)
            )
            if run in trained
        }
    )


def _claim_runs_of_paper(workspace: Workspace, paper: str) -> list[RunId]:
    """The runs of all claims of a paper, with its own settings, on the datasets that are available."""
    missing = workspace.unavailable_to_papers(claimed_datasets(workspace))
    return sorted(
        {
            run
            for claim in workspace.claims
            if claim.paper == paper
            for run in runs_of_claim(
                claim, workspace.methods, workspace.seeds, None, missing, claim_conditions(workspace)
            )
        }
    )


def _steps_content(workspace: Workspace, paper: str | None) -> dict[str, Any]:
    audited = configured_steps(workspace) if paper is None else steps_of_paper(workspace, paper)
    return {"steps": [asdict(steps_of_dataset) for steps_of_dataset in audited]}


def _claims_content(workspace: Workspace, paper: str | None) -> dict[str, Any]:
    unavailable = workspace.unavailable if paper is None else workspace.unavailable_to_papers
    return {
        "claims": [asdict(claim) for claim in workspace.claims if paper in (None, claim.paper)],
        "rounds": workspace.configuration["rounds"] if paper is None else None,
        "conditions": [asdict(condition) for condition in claim_conditions(workspace)],
        "unavailable": unavailable(claimed_datasets(workspace)),
        **_printed_content(workspace, paper),
    }


def _printed_content(_workspace: Workspace, _paper: str | None) -> dict[str, Any]:
    return {"printed": [[*key, number.value, number.sd] for key, number in printed_numbers().items()]}


def _no_content(_workspace: Workspace, _paper: str | None) -> dict[str, Any]:
    return {}


def _has_claims(workspace: Workspace) -> bool:
    """Whether any claim is about a configured dataset, and one is compared under both protocols."""
    datasets = workspace.configuration["datasets"]
    if not any({*BOTH} <= {*workspace.compared_on(dataset)} for dataset in datasets):
        return False
    return not set(workspace.configuration["datasets"]).isdisjoint(claimed_datasets(workspace))


def _always(_workspace: Workspace) -> bool:
    return True


def _no_runs(_workspace: Workspace) -> list[RunId]:
    """No runs: the target shows datasets or printed numbers."""
    return []


def _audit_runs(workspace: Workspace) -> list[RunId]:
    """Every run that the audit reads."""
    return sorted({*_step_runs(workspace), *_exposure_runs(workspace), *_attack_runs(workspace)})


@dataclass(frozen=True)
class Selection:
    """The runs of a target that is no paper's artefact: of the whole configuration, or of one paper."""

    runs: Callable[[Workspace], list[RunId]]
    runs_of_paper: Callable[[Workspace, str], list[RunId]] | None = None
    """None if there is no such target for a single paper."""
    prefix: str = "audit_"
    """The prefix of its targets' names."""
    without_runs: bool = False
    """Whether its target is built even without any run."""
    concerns: Callable[[Workspace], bool] = _always
    """Whether it applies to the configured datasets."""
    content: Callable[[Workspace, str | None], dict[str, Any]] = _no_content
    """Further content that decides its targets, for the whole configuration or one paper."""
    of_audit: bool = True
    """Whether its targets belong to the audit, whatever the folder of their layout."""


SELECTIONS: Mapping[str, Selection] = {
    "comparison": Selection(_comparison_runs, of_audit=False),
    "protocol_steps": Selection(_step_runs, _step_runs_of_paper, content=_steps_content),
    "exposure": Selection(_exposure_runs),
    "upload_attack": Selection(_attack_runs),
    "claims": Selection(
        _claim_runs,
        _claim_runs_of_paper,
        prefix="",
        without_runs=True,
        concerns=_has_claims,
        content=_claims_content,
    ),
    "audit": Selection(_audit_runs),
    "printed_numbers": Selection(_no_runs, without_runs=True, content=_printed_content),
    "statistics": Selection(_no_runs, without_runs=True, of_audit=False),
}
"""All selections, by the name in a layout's `selection`."""


def selection_named(name: str, where: str) -> Selection:
    """The selection called `name`; `where` names the layout in an error."""
    if name not in SELECTIONS:
        raise ConfigurationError(
            f"{where}: unknown selection '{name}'.{did_you_mean(name, SELECTIONS)} Known selections: "
            f"{', '.join(SELECTIONS)}."
        )
    return SELECTIONS[name]


def records_of_run(workspace: Workspace) -> dict[RunId, list[str]]:
    """The records of runs, for figures and for the attack on uploads; runs without records are left out."""
    records = records_of(workspace.papers, workspace.methods, workspace.seeds)
    workspaces = workspace, workspace.first_look, workspace.demonstration
    attacked = [run for view in workspaces for run in _attack_runs(view)]
    for run in (*attacked, *_tuned_attack_runs(workspace)):
        records[run] = spelled_records(merged_records([*records.get(run, []), TRAFFIC]))
    return records
