"""Search settings in this process: train trials run by run, and select the best on validation.

Trials are ordinary runs in their default folders. So a stopped search resumes, and the workflow reuses the
same trials.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from fedrec.config.custom_search import CustomSearch, RangeOrChoices, SearchRequest, custom_search
from fedrec.config.default_files import file_or_default
from fedrec.config.default_paths import default_method_file, default_methods
from fedrec.config.methods import Methods, canonical, resolve
from fedrec.config.names import parse
from fedrec.config.protocol import Protocol
from fedrec.config.tuning import LENGTH, Tuning
from fedrec.data.split import Split
from fedrec.errors import ConfigurationError
from fedrec.plan.fingerprint import check_code
from fedrec.plan.runs import KEPT, NEVER, RunId
from fedrec.plan.trial_results import SELECTION_METRIC, validation_result
from fedrec.plan.trials import TrialStage, best, design, stages
from fedrec.progress import rounds_shown
from fedrec.runs.default_folders import cost_text, default_record, is_finished, train_run
from fedrec.runs.exact import UNEVEN_POOL, exact_name
from fedrec.runs.record import RunRecord
from fedrec.runs.results import setting_column
from fedrec.runs.splits import split_of

if TYPE_CHECKING:
    import polars as pl

VALIDATION_METRIC = f"validation_{exact_name(SELECTION_METRIC)}"
"""The column of the metric that compares trials."""
_LEAKS: Mapping[str, str] = {
    "exclude_all": "its clients never sample held-out items as negatives, so a search finds settings that "
    "exploit this leak",
    UNEVEN_POOL: "its clients sample neither held-out items nor candidates, so these are easy to tell apart",
}
"""Reasons against a search by exact ranks, by the pool of negatives."""


@dataclass(frozen=True)
class TuningResult:
    """The result of a search. It contains no number on test items."""

    best: str
    """The method with the best settings, as `fedrec.train` accepts it."""
    validation: float
    """Its exact validation NDCG@10, the mean over its seeds."""
    trials: "pl.DataFrame"
    """A row per trial, best first: settings, validation metric, rounds and seeds."""


@dataclass(frozen=True)
class _TrialDone:
    """A trial with its last stage, the runs and the mean score there."""

    number: int
    stage: int
    runs: Sequence[RunId]
    score: float


def tune_named(
    data: str | os.PathLike[str],
    method: str,
    *,
    protocol: str,
    ranges: Mapping[str, RangeOrChoices] | None,
    trials: int,
    seeds: int,
    leaking: bool,
    progress: bool,
    **options: Any,  # noqa: ANN401
) -> TuningResult:
    """Search settings of a method, as `fedrec.tune` documents. `options` are fields of a `TrainRequest`."""
    methods, folder = default_methods(), Path(data)
    name = canonical(methods, method)
    _, _, paper = resolve(methods, name, None, folder.name)
    split = split_of(folder, protocol, paper)
    if not leaking:
        check_fair(split.protocol)
    request = SearchRequest(name, paper, folder.name, split.protocol.name, ranges, trials, seeds)
    search, tuning = custom_search(
        request, methods, file_or_default(default_method_file().with_name("tuning.yaml"))
    )
    check_code(name, [*dict(parse(name).changes), *(searched.setting for searched in search.ranges)])
    if progress:
        print(_search_result(search, tuning, methods, folder, split), file=sys.stderr)
    known, records, scores = _trained(search, tuning, methods, folder, options, progress=progress)
    return _result(search, tuning, methods, known, records, scores)


def check_fair(protocol: Protocol) -> None:
    """Raise `ConfigurationError` for a protocol under which a search would exploit a leak."""
    reasons = [_LEAKS[protocol.negative_pool]] if protocol.negative_pool in _LEAKS else []
    if protocol.round_rule == "best_test":
        reasons.append("it selects the round on test items")
    if reasons:
        raise ConfigurationError(
            f"{protocol.name}: do not search under this protocol: {', and '.join(reasons)}. Search under "
            "clean; or add --allow-leak, in Python leaking=True."
        )


def _search_result(search: CustomSearch, tuning: Tuning, methods: Methods, data: Path, split: Split) -> str:
    """The search and its estimated cost, as text."""

    def validation_of(run: RunId) -> float:
        # For unfinished runs any score will do: the number of runs in later stages is the same.
        return _validation(default_record(data, run)) if is_finished(data, run) else 0.0

    planned = stages(search, tuning, methods, validation_of)
    parts = [_stage_text(stage, methods) for stage in planned]
    every = dict.fromkeys(run for stage in planned for runs in stage.runs.values() for run in runs)
    searched = ", ".join(range_.setting for range_ in search.ranges)
    return (
        f"Search of {search.method} on {search.dataset}, {search.protocol}, for {searched}: "
        f"{len(planned[0].runs)} trials, {', then '.join(parts)}.\n"
        f"{cost_text(list(every), methods, data, split)}"
    )


def _validation(record: RunRecord) -> float:
    return validation_result(record.folder, record.summary, exact=True)


def _stage_text(stage: TrialStage, methods: Methods) -> str:
    runs = next(iter(stage.runs.values()))
    settings, _, _ = resolve(methods, runs[0].method, runs[0].paper, runs[0].dataset)
    seeds = f" with {len(runs)} seeds" if len(runs) > 1 else ""
    return f"{len(stage.runs)} for {settings[LENGTH]} rounds{seeds}"


def _trained(
    search: CustomSearch,
    tuning: Tuning,
    methods: Methods,
    data: Path,
    options: Mapping[str, Any],
    *,
    progress: bool,
) -> tuple[list[TrialStage], dict[RunId, RunRecord], dict[RunId, float]]:
    """Train all stages; return them with the record and the validation result of each run."""
    records: dict[RunId, RunRecord] = {}
    scores: dict[RunId, float] = {}
    while True:
        known = stages(search, tuning, methods, scores.get)
        missing = [run for runs in known[-1].runs.values() for run in runs if run not in scores]
        if not missing:
            return known, records, scores
        for number, run in enumerate(missing, start=1):
            with rounds_shown(progress and not is_finished(data, run)):
                record = train_run(run, data, model=NEVER, diverged=KEPT, **options)
            records[run] = record
            scores[run] = _validation(record)
            if progress:
                print(
                    f"stage {len(known)}, {number} of {len(missing)}: {run.method}, seed {run.seed}: exact "
                    f"NDCG@10 {scores[run]:.4f} on validation",
                    file=sys.stderr,
                )


def _result(
    search: CustomSearch,
    tuning: Tuning,
    methods: Methods,
    known: Sequence[TrialStage],
    records: Mapping[RunId, RunRecord],
    scores: Mapping[RunId, float],
) -> TuningResult:
    import polars as pl

    done: dict[int, _TrialDone] = {}
    for stage, planned in enumerate(known):
        for number, runs in planned.runs.items():
            done[number] = _TrialDone(number, stage, runs, fmean(scores[run] for run in runs))
    last = {one.number: one.score for one in done.values() if one.stage == len(known) - 1}
    (chosen,) = best(last, 1)
    order = sorted(done.values(), key=lambda one: (-one.stage, -one.score, one.number))
    firsts = [records[one.runs[0]] for one in order]
    trials = pl.DataFrame(
        {
            "trial": [one.number for one in order],
            **{one.setting: setting_column(firsts, one.setting) for one in search.ranges},
            VALIDATION_METRIC: [one.score for one in order],
            "seeds": [len(one.runs) for one in order],
            "rounds": [record.settings[LENGTH] for record in firsts],
            "ended_early": [known[one.stage].rounds is not None for one in order],
            "diverged": pl.Series([_diverged(one, records) for one in order], dtype=pl.Int64),
            "chosen": [one.number == chosen for one in order],
            "folders": [[str(records[run].folder) for run in one.runs] for one in order],
        }
    )
    values = design(search, tuning)[chosen]
    name = canonical(methods, str(parse(search.method).with_changes(values)))
    return TuningResult(name, done[chosen].score, trials)


def _diverged(trial: _TrialDone, records: Mapping[RunId, RunRecord]) -> int | None:
    """The first round in which a run of a trial diverged, if one did."""
    rounds = (records[run].diverged for run in trial.runs)
    return min((round_ for round_ in rounds if round_ is not None), default=None)
