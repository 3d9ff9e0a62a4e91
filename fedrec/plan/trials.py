"""The trials of a search: a design fixed in advance, and the runs of each trial.

The first trial has the values without the search; the next trials are the starts of the search. All others
are points of a scrambled Sobol sequence. fedrec maps each point into the ranges, rounds it to a short text
for the run's name, and skips repeated points. So a larger budget only adds trials. A search with fewer points
than trials tries all points.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from statistics import fmean

from fedrec.config.methods import Methods, canonical, resolve, setting_text
from fedrec.config.names import parse
from fedrec.config.protocol import full_name
from fedrec.config.tuning import LENGTH, Range, Search, Tuning
from fedrec.plan.runs import RunId

_DIGITS = 3
"""Significant digits of a value."""
_DRAWN = 16
"""Points to draw per trial: rounding makes some of them equal."""
_MOST_VALUES = 100_000
"""Most values of an integer setting that a search enumerates."""

TrialValues = Mapping[str, str]
"""The value of each searched setting, as text of a run's name."""


@dataclass(frozen=True)
class TrialStage:
    """Trials that are trained for the same number of rounds and then compared."""

    rounds: int | None
    """None for the paper's own number."""
    runs: Mapping[int, tuple[RunId, ...]]
    """The runs of each trial by its number: one per seed, first the seed that all trials have."""


def design(search: Search, tuning: Tuning) -> list[TrialValues]:
    """The values of every trial, in order; each once."""
    names = [range_.setting for range_ in search.ranges]
    first = tuple(range_.was for range_ in search.ranges)
    trials = tuning.trials_of(search)
    drawn = _drawn(search.ranges, trials, tuning.design)
    points = dict.fromkeys((first, *search.starts, *drawn, *_every(search.ranges)))
    return [dict(zip(names, point, strict=True)) for point in islice(points, trials)]


def trials_given(search: Search, tuning: Tuning) -> int:
    """The number of trials of a search. Computes the design only if the search may have fewer points."""
    may_have_fewer = next(_every(search.ranges), None) is not None
    return len(design(search, tuning)) if may_have_fewer else tuning.trials_of(search)


def early_rounds(search: Search, tuning: Tuning, methods: Methods) -> list[int]:
    """The rounds after which a search compares its trials before their last round."""
    whole = resolve(methods, search.method, search.paper, search.dataset)[0][LENGTH]
    return [rounds for rounds in tuning.halving.rounds if rounds < whole] if tuning.halving else []


def stages(
    search: Search,
    tuning: Tuning,
    methods: Methods,
    validation: Callable[[RunId], float | None],
) -> list[TrialStage]:
    """The stages of a search that can be planned now: up to the first unfinished one.

    Poor trials end early, and the best trials may get several seeds in a last stage. `validation` returns the
    validation result of a run, None if the run is not finished.
    """
    trials = design(search, tuning)
    alive: Sequence[int] = range(len(trials))
    known: list[TrialStage] = []
    for rounds, seeds in _steps(search, tuning, methods):
        if known:
            scores = _means(known[-1], validation)
            if scores is None:
                break
            alive = sorted(best(scores, _survivors(known[-1], search, tuning)))
        runs = {n: tuple(_run(search, trials[n], methods, seed, rounds) for seed in seeds) for n in alive}
        known.append(TrialStage(rounds, runs))
    return known


def best(scores: Mapping[int, float], number: int) -> list[int]:
    """The numbers of the best trials, best first; ties go to the first trial."""
    return sorted(scores, key=lambda n: (-scores[n], n))[:number]


def section_of(range_: Range, value: str, parts: int) -> int | None:
    """The index of the part that has a value, if an interval is cut into equal `parts`; None if outside."""
    assert range_.bounds is not None, "a choice has no parts"
    low, high = (_scaled(range_, bound) for bound in range_.bounds)
    if value == "null" or (range_.kind == "log" and float(value) <= 0):
        return None
    share = (_scaled(range_, float(value)) - low) / (high - low)
    # Values of trials are rounded, so they may lie slightly outside.
    inside = -1e-9 <= share <= 1 + 1e-9
    return min(parts - 1, max(0, int(parts * share))) if inside else None


def _steps(search: Search, tuning: Tuning, methods: Methods) -> Iterator[tuple[int | None, Sequence[int]]]:
    """Yield the rounds and the seeds of every stage."""
    for rounds in (*early_rounds(search, tuning, methods), None):
        yield rounds, tuning.seeds[:1]
    if tuning.final is not None:
        yield None, tuning.seeds


def _survivors(stage: TrialStage, search: Search, tuning: Tuning) -> int:
    """The number of trials of a stage that are trained further."""
    if stage.rounds is None:
        return tuning.finalists_of(search)
    assert tuning.halving is not None, "no stage is early"
    return math.ceil(tuning.halving.keep * len(stage.runs))


def _means(stage: TrialStage, validation: Callable[[RunId], float | None]) -> dict[int, float] | None:
    """The validation result of each trial of a stage, the mean over its seeds; None if a run is missing."""
    means = {}
    for number, runs in stage.runs.items():
        scores = [score for score in map(validation, runs) if score is not None]
        if len(scores) < len(runs):
            return None
        means[number] = fmean(scores)
    return means


def _run(search: Search, values: TrialValues, methods: Methods, seed: int, rounds: int | None) -> RunId:
    """A run of a trial. Its name has every searched value, so later findings do not change its meaning."""
    length = {} if rounds is None else {LENGTH: str(rounds)}
    changed = parse(search.method).with_changes({**values, **length})
    protocol = full_name(search.protocol, search.paper)
    return RunId(search.paper, search.dataset, protocol, canonical(methods, str(changed)), seed)


def _drawn(ranges: Sequence[Range], trials: int, design: int) -> Iterator[tuple[str, ...]]:
    # Imported here: it takes a second, and most plans have no trials to draw.
    from scipy.stats import qmc

    sequence = qmc.Sobol(len(ranges), scramble=True, rng=design)
    points = sequence.random_base2(math.ceil(math.log2(_DRAWN * trials)))
    return (tuple(map(_value, ranges, point)) for point in points.tolist())


def _every(ranges: Sequence[Range]) -> Iterator[tuple[str, ...]]:
    """Every point of a search with few points, since a random draw might miss one; empty for any other."""
    values = [_values(range_) for range_ in ranges]
    return product(*(listed for listed in values if listed is not None)) if None not in values else iter(())


def _values(range_: Range) -> Sequence[str] | None:
    """Every value of a setting in a search; None if there are too many to enumerate."""
    if range_.bounds is None:
        return range_.choices
    low, high = range_.bounds
    if not range_.whole or high - low > _MOST_VALUES:
        return None
    return [str(value) for value in range(math.ceil(low), math.floor(high) + 1)]


def _value(range_: Range, share: float) -> str:
    """The value at a `share` in [0, 1] of a range, as text."""
    if range_.bounds is None:
        return range_.choices[min(len(range_.choices) - 1, int(share * len(range_.choices)))]
    low, high = (_scaled(range_, bound) for bound in range_.bounds)
    position = low + share * (high - low)
    exact = math.exp(position) if range_.kind == "log" else position
    if range_.whole:
        return str(round(exact))
    rounded = float(f"{exact:.{_DIGITS}g}")
    return setting_text(min(range_.bounds[1], max(range_.bounds[0], rounded)))


def _scaled(range_: Range, value: float) -> float:
    return math.log(value) if range_.kind == "log" else value
