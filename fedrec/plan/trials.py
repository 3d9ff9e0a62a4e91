"""The trials of a search: a design fixed in advance, and the runs that each trial is made of.

The first trial has the values without the search; the next ones are the starts of the search. All others are
the points of a scrambled Sobol sequence, each mapped into the ranges and rounded, so that names of runs hold
it; a point that was there before is passed over. So more trials only add to those that are there. Of a search
that has fewer points than trials, all are tried.
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
"""Points drawn for every trial: some are rounded to what was there before."""
_MOST_VALUES = 100_000
"""Of an integer that is tried one by one."""

TrialValues = Mapping[str, str]
"""The value of each searched setting, as names of runs hold it."""


@dataclass(frozen=True)
class TrialStage:
    """Trials that are trained for equally long and then compared."""

    rounds: int | None
    """None for the paper's own number."""
    runs: Mapping[int, tuple[RunId, ...]]
    """By the number of the trial: a run for each seed, that of all trials first."""


def design(search: Search, tuning: Tuning) -> list[TrialValues]:
    """The values of every trial, in order; each once."""
    names = [one.setting for one in search.ranges]
    first = tuple(one.was for one in search.ranges)
    trials = tuning.trials_of(search)
    drawn = _drawn(search.ranges, trials, tuning.design)
    points = dict.fromkeys((first, *search.starts, *drawn, *_every(search.ranges)))
    return [dict(zip(names, point, strict=True)) for point in islice(points, trials)]


def trials_given(search: Search, tuning: Tuning) -> int:
    """The number of trials in a design, which is made only where the search might have fewer points."""
    may_have_fewer = next(_every(search.ranges), None) is not None
    return len(design(search, tuning)) if may_have_fewer else tuning.trials_of(search)


def early_rounds(search: Search, tuning: Tuning, methods: Methods) -> list[int]:
    """The rounds after which trials of a search are compared before their last one."""
    whole = resolve(methods, search.method, search.paper, search.dataset)[0][LENGTH]
    return [rounds for rounds in tuning.halving.rounds if rounds < whole] if tuning.halving else []


def stages(
    search: Search,
    tuning: Tuning,
    methods: Methods,
    reached: Callable[[RunId], float | None],
) -> list[TrialStage]:
    """The stages of a search that can be named: none behind one that is not done.

    Trials may end early, and the best may have several seeds after the last stage. `reached` tells what a
    finished run reached on validation, None of one that is not finished.
    """
    trials = design(search, tuning)
    alive: Sequence[int] = range(len(trials))
    known: list[TrialStage] = []
    for rounds, seeds in _steps(search, tuning, methods):
        if known:
            scores = _means(known[-1], reached)
            if scores is None:
                break
            alive = sorted(best(scores, _kept(known[-1], search, tuning)))
        runs = {n: tuple(_run(search, trials[n], methods, seed, rounds) for seed in seeds) for n in alive}
        known.append(TrialStage(rounds, runs))
    return known


def best(scores: Mapping[int, float], number: int) -> list[int]:
    """The numbers of the best trials, best first; of equal ones the first."""
    return sorted(scores, key=lambda n: (-scores[n], n))[:number]


def section_of(one: Range, value: str, parts: int) -> int | None:
    """In which of so many equal parts of an interval a value lies, from 0; None where it lies outside."""
    assert one.bounds is not None, "a choice has no parts"
    low, high = (_scaled(one, bound) for bound in one.bounds)
    if value == "null" or (one.kind == "log" and float(value) <= 0):
        return None
    share = (_scaled(one, float(value)) - low) / (high - low)
    # TrialValues are rounded, and may so leave the interval by a trifle.
    inside = -1e-9 <= share <= 1 + 1e-9
    return min(parts - 1, max(0, int(parts * share))) if inside else None


def _steps(search: Search, tuning: Tuning, methods: Methods) -> Iterator[tuple[int | None, Sequence[int]]]:
    """The rounds and the seeds of every stage."""
    for rounds in (*early_rounds(search, tuning, methods), None):
        yield rounds, tuning.seeds[:1]
    if tuning.final is not None:
        yield None, tuning.seeds


def _kept(stage: TrialStage, search: Search, tuning: Tuning) -> int:
    """How many trials of a stage go on."""
    if stage.rounds is None:
        return tuning.finalists_of(search)
    assert tuning.halving is not None, "no stage is early"
    return math.ceil(tuning.halving.keep * len(stage.runs))


def _means(stage: TrialStage, reached: Callable[[RunId], float | None]) -> dict[int, float] | None:
    """What each trial of a stage reached, the mean over its seeds; None where a run is not finished."""
    means = {}
    for number, runs in stage.runs.items():
        scores = [score for score in map(reached, runs) if score is not None]
        if len(scores) < len(runs):
            return None
        means[number] = fmean(scores)
    return means


def _run(search: Search, values: TrialValues, methods: Methods, seed: int, rounds: int | None) -> RunId:
    """A trial, whose name has every value that is searched: none is another one once values are found."""
    length = {} if rounds is None else {LENGTH: str(rounds)}
    changed = parse(search.method).with_changes({**values, **length})
    protocol = full_name(search.protocol, search.paper)
    return RunId(search.paper, search.dataset, protocol, canonical(methods, str(changed)), seed)


def _drawn(ranges: Sequence[Range], trials: int, design: int) -> Iterator[tuple[str, ...]]:
    # Imported here: it takes a second, and most plans have no trials.
    from scipy.stats import qmc

    sequence = qmc.Sobol(len(ranges), scramble=True, rng=design)
    points = sequence.random_base2(math.ceil(math.log2(_DRAWN * trials)))
    return (tuple(map(_value, ranges, point)) for point in points.tolist())


def _every(ranges: Sequence[Range]) -> Iterator[tuple[str, ...]]:
    """Every point of a search that has so few that drawing might miss one; none of any other."""
    values = [_values(one) for one in ranges]
    return product(*(one for one in values if one is not None)) if None not in values else iter(())


def _values(one: Range) -> Sequence[str] | None:
    """Every value that a setting may have; None where there are more than can be tried."""
    if one.bounds is None:
        return one.choices
    low, high = one.bounds
    if not one.whole or high - low > _MOST_VALUES:
        return None
    return [str(value) for value in range(math.ceil(low), math.floor(high) + 1)]


def _value(one: Range, share: float) -> str:
    """The value at a share of the way through a range."""
    if one.bounds is None:
        return one.choices[min(len(one.choices) - 1, int(share * len(one.choices)))]
    low, high = (_scaled(one, bound) for bound in one.bounds)
    at = low + share * (high - low)
    exact = math.exp(at) if one.kind == "log" else at
    if one.whole:
        return str(round(exact))
    rounded = float(f"{exact:.{_DIGITS}g}")
    return setting_text(min(one.bounds[1], max(one.bounds[0], rounded)))


def _scaled(one: Range, value: float) -> float:
    return math.log(value) if one.kind == "log" else value
