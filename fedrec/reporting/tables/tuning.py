"""The table of a search: every trial, the chosen setting, and how flat the optimum is.

Validation NDCG@10 at the round of the best validation compares the trials; no test number is read. Finalists
with several seeds are compared by their means.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from fedrec.config.method_entries import SHARED_PROTOCOL
from fedrec.config.methods import title
from fedrec.config.tuning import Range
from fedrec.errors import ResultError
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.runs import DIVERGED
from fedrec.plan.targets import Target
from fedrec.plan.trial_results import SELECTION_METRIC, SELECTION_ROUND, validation_result
from fedrec.plan.trials import best, section_of
from fedrec.reporting.artefact_runs import stem_of
from fedrec.reporting.provenance import origin_sentence, provenance
from fedrec.reporting.tables.table import RUNS, ReportColumn, ReportTable, Row, write_forms
from fedrec.runs.provenance_columns import origin_columns
from fedrec.runs.record import RunRecord

LAYOUT = Layout("search", needs=("runs",))
_NEAR = (0.01, 0.05)
"""Shares by which a trial may be below the best and still count as near it."""
_PARTS = 3
"""The number of parts of a range in the table of flatness."""
_SECONDARY_METRIC = "hr@10"
"""The metric shown beside the one that compares trials among candidates."""
_SEEDS = "number_of_seeds"
"""The column of the seeds that a number is the mean of; `seeds` lists them."""


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial in the last stage that it took part in."""

    number: int
    values: Mapping[str, str]
    stage: int
    """The index of its last stage, from 0."""
    records: Sequence[RunRecord]
    """One run per seed; the first has the seed that all trials share."""
    scores: Sequence[float]
    """The validation metric of each run."""

    @property
    def score(self) -> float:
        """The mean over seeds, which compares trials."""
        return fmean(self.scores)

    @property
    def diverged(self) -> int | None:
        """The first round in which a run of it diverged, if any did."""
        return min((record.diverged for record in self.records if record.diverged is not None), default=None)


def build(target: Target, project: Project) -> None:
    """Write the table of a search from the runs of all finished stages."""
    content = target.content
    ranges = [_range(range_) for range_ in content["search"]["ranges"]]
    results = trial_results(content, project)
    rows = [_row(result, index, content) for index, result in enumerate(results)]
    search = project.tuning.searches[target.name]
    whose = "the shared protocol" if search.protocol == SHARED_PROTOCOL else f"the protocol of {search.paper}"
    heading = f"{title(project.methods, search.method)} under {whose} on {search.dataset}"
    tables = [_trials_table(target.name, heading, rows, ranges, content, results)]
    if is_over(content):
        tables.append(_parts_table(heading, ranges, _trained_to_the_end(content, results)))
    write_forms(stem_of(target, project), rows, tables)


def trial_results(content: Mapping[str, Any], project: Project) -> list[TrialResult]:
    """The latest result of every trial, best first: later stages come before earlier ones."""
    last: dict[int, TrialResult] = {}
    settings = [one["setting"] for one in content["search"]["ranges"]]
    for stage, planned in enumerate(content["stages"]):
        runs = {int(number): folders for number, folders in planned["runs"].items()}
        _check_went_on(runs, last, content)
        for number, folders in runs.items():
            records = [RunRecord(project.results / folder) for folder in folders]
            values = {setting: content["trials"][number][setting] for setting in settings}
            scores = [
                validation_result(record.folder, record.summary, exact=content["search"]["exact"])
                for record in records
            ]
            last[number] = TrialResult(number, values, stage, records, scores)
    return sorted(last.values(), key=lambda one: (-one.stage, -one.score, one.number))


def is_over(content: Mapping[str, Any]) -> bool:
    """Whether the last stage is finished; only then a setting is chosen."""
    to_the_end = sum(stage["rounds"] is None for stage in content["stages"])
    return to_the_end == (1 if content["final"] is None else 2)


def near(results: Sequence[TrialResult], share: float) -> int:
    """The number of fully trained trials within a share of the best of them, by the first seed."""
    return sum(result.scores[0] >= (1 - share) * results[0].scores[0] for result in results)


def _trained_to_the_end(content: Mapping[str, Any], results: Sequence[TrialResult]) -> list[TrialResult]:
    """The fully trained trials, sorted by the first seed, which all have."""
    first = next(index for index, stage in enumerate(content["stages"]) if stage["rounds"] is None)
    there = (one for one in results if one.stage >= first)
    return sorted(there, key=lambda one: (-one.scores[0], one.number))


def _check_went_on(
    runs: Mapping[int, Sequence[str]], before: Mapping[int, TrialResult], content: Mapping[str, Any]
) -> None:
    """Refuse a stage whose trials are not the best ones of the stage before."""
    if not before:
        return
    latest = max(one.stage for one in before.values())
    scores = {number: one.score for number, one in before.items() if one.stage == latest}
    if sorted(best(scores, len(runs))) != sorted(runs):
        raise ResultError(
            f"the search {content['search']['key']}: trials were trained again after the plan was made, so "
            "other trials reach the next stage. Type the same command again."
        )


def _row(result: TrialResult, index: int, content: Mapping[str, Any]) -> dict[str, Any]:
    summaries = [record.summary for record in result.records]
    # The column of the table has the round without the seed.
    origin = {key: value for key, value in origin_columns(result.records).items() if key != DIVERGED}
    return {
        "trial": result.number,
        **result.values,
        SELECTION_METRIC: result.score,
        **({} if content["search"]["exact"] else {_SECONDARY_METRIC: _secondary_metric(result)}),
        _SEEDS: len(result.records),
        "round": " ".join(str(summary["rounds"][SELECTION_ROUND]) for summary in summaries),
        "rounds": summaries[0]["settings"]["rounds"],
        DIVERGED: result.diverged,
        "ended_early": is_over(content) and content["stages"][result.stage]["rounds"] is not None,
        "chosen": index == 0 and is_over(content),
        **origin,
    }


def _secondary_metric(result: TrialResult) -> float:
    return fmean(record.metric(_SECONDARY_METRIC, "validation", SELECTION_ROUND) for record in result.records)


def _trials_table(
    target: str,
    heading: str,
    rows: Sequence[Row],
    ranges: Sequence[Range],
    content: Mapping[str, Any],
    results: Sequence[TrialResult],
) -> ReportTable:
    origin = origin_sentence(provenance(record for result in results for record in result.records))
    exact: bool = content["search"]["exact"]
    return ReportTable(
        caption=f"Trials of {heading}, best first: {_compared(exact)}, at the round of the best validation "
        "HR@10 among candidates. Trial 0 has the method's values "
        f"before the search. {_halving_sentence(content)}{_final_sentence(content)}Test items chose nothing. "
        f"{origin}",
        columns=[
            ReportColumn("trial", "trial"),
            *(ReportColumn(range_.setting, range_.setting, align="left") for range_ in ranges),
            ReportColumn(SELECTION_METRIC, "NDCG@10, validation", "{:.4f}"),
            *([] if exact else [ReportColumn(_SECONDARY_METRIC, "HR@10, validation", "{:.4f}")]),
            ReportColumn(_SEEDS, "seeds"),
            ReportColumn("round", "at round"),
            ReportColumn("rounds", "rounds"),
            ReportColumn("diverged", "diverged in round"),
        ],
        rows=rows,
        notes=[f"Why: {content['search']['because']}", *_outcome(target, results, content)],
    )


def _compared(exact: bool) -> str:
    """The clause that names the metrics of the trials."""
    if exact:
        return "compared by exact NDCG@10 on validation"
    return "compared by sampled NDCG@10 on validation, with sampled HR@10"


def _halving_sentence(content: Mapping[str, Any]) -> str:
    halving = content["halving"]
    if halving is None:
        return ""
    rounds = " and ".join(str(number) for number in halving["rounds"])
    return (
        f"After round {rounds} the best {halving['keep']:.0%} of the trials were trained again from the "
        "start, for more rounds. "
    )


def _final_sentence(content: Mapping[str, Any]) -> str:
    final = content["final"]
    if final is None:
        return ""
    return (
        f"The best {final['keep']} after all rounds were trained with {final['seeds']} seeds; their means "
        "decide. "
    )


def _outcome(target: str, results: Sequence[TrialResult], content: Mapping[str, Any]) -> list[str]:
    """The chosen trial, how flat the optimum is, and how it becomes part of the configuration."""
    if not is_over(content):
        rounds = content["stages"][-1]["rounds"]
        after = "all rounds, with one seed" if rounds is None else f"round {rounds}"
        return [f"Nothing is chosen yet: these are the trials after {after}. Type the same command again."]
    chosen, trials = results[0], len(content["trials"])
    finalists = _trained_to_the_end(content, results)
    counts = " and ".join(f"{near(finalists, share)} within {share:.0%}" for share in _NEAR)
    if len(chosen.records) == 1:
        chosen_by, nearest = "", "it"
    else:
        chosen_by = f", by the mean of {len(chosen.records)} seeds"
        nearest = "the best of them by the first seed"
    values = ", ".join(f"{setting} = {value}" for setting, value in chosen.values.items())
    diverged = sum(one.diverged is not None for one in results)
    return [
        f"Chosen: trial {chosen.number}{chosen_by}. Of the {len(finalists)} trials trained to the end, "
        f"{counts} of {nearest}." + (f" {diverged} of all {trials} trials diverged." if diverged else ""),
        f"`fedrec adopt {target}` puts it into config/found.yaml: {values}.",
    ]


def _parts_table(heading: str, ranges: Sequence[Range], finalists: Sequence[TrialResult]) -> ReportTable:
    """The best fully trained trial in each third of every range, or with each choice."""
    rows = []
    for range_ in ranges:
        parts: dict[str, TrialResult | None] = dict.fromkeys(_part_names(range_))
        for result in finalists:
            part = _part_name(range_, result.values[range_.setting])
            if parts.get(part) is None:
                parts[part] = result
        rows += [_part_row(range_, part, trial, finalists[0]) for part, trial in parts.items()]
    return ReportTable(
        caption=f"How flat the optimum of {heading} is: in each third of a range, or with each choice, the "
        "best of the trials trained to the end, and by what share it is below the best of all. All numbers "
        "are of the first seed.",
        columns=[
            ReportColumn("setting", "setting", align="left"),
            ReportColumn("part", "part", align="left"),
            ReportColumn("value", "value", align="left"),
            ReportColumn("trial", "trial"),
            ReportColumn(SELECTION_METRIC, "NDCG@10, validation", "{:.4f}"),
            ReportColumn("below", "below the best", "{:.1%}"),
        ],
        rows=rows,
    )


def _part_row(one: Range, part: str, trial: TrialResult | None, best_of_all: TrialResult) -> dict[str, Any]:
    """The best trial in a part of a range; without a trial, a row that says so."""
    row: dict[str, Any] = {"setting": one.setting, "part": part, RUNS: []}
    if trial is None:
        return row
    return row | {
        "value": trial.values[one.setting],
        "trial": trial.number,
        SELECTION_METRIC: trial.scores[0],
        # If the best is 0, no trial is below another.
        "below": 1 - trial.scores[0] / best_of_all.scores[0] if best_of_all.scores[0] else 0.0,
        RUNS: [trial.records[0].id.folder],
    }


def _part_names(one: Range) -> list[str]:
    return list(one.choices) if one.bounds is None else ["low", "middle", "high"]


def _part_name(one: Range, value: str) -> str:
    if one.bounds is None:
        return value
    part = section_of(one, value, _PARTS)
    return "outside" if part is None else _part_names(one)[part]


def _range(content: Mapping[str, Any]) -> Range:
    bounds = content["bounds"]
    return Range(
        **{
            **content,
            "choices": tuple(content["choices"]),
            "bounds": None if bounds is None else (bounds[0], bounds[1]),
        }
    )
