"""Contradictions inside a paper: printed numbers that differ from what its other numbers give.

There are three kinds, each beyond rounding to the printed digits: a gain that its two numbers do not give;
one quantity with different values in two tables; a sparsity that the sizes of the dataset do not give.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fedrec.config.methods import Methods, title
from fedrec.config.papers import BEST_FEDERATED, Artefact, Line, Paper
from fedrec.config.printed import Printed, PrintedKey
from fedrec.plan.runs import run_of

CHANGES = (("relative gain", 1.0), ("relative loss", -1.0))
"""Endings of metrics that are changes in percent, with the sign that turns each into a gain."""
_SIZES = ("users", "items", "interactions", "sparsity")
_SLACK = 1e-9
"""The tolerance for floating-point error."""

Numbers = Mapping[PrintedKey, Printed]
Interval = tuple[float, float]


@dataclass(frozen=True)
class Contradiction:
    """The values that the rest of a paper gives for a printed number."""

    others: tuple[float, ...]
    why: str
    is_gain: bool = False
    """Whether the number is a gain, which no run can give together with the numbers that it compares."""


@dataclass(frozen=True)
class PrintedGain:
    """The printed numbers behind a printed gain."""

    below: tuple[PrintedKey, ...] = ()
    """Its rivals, of which the best counts."""
    above: PrintedKey | None = None
    mean: tuple[PrintedKey, ...] = ()
    """The gains that it is the mean of; empty for a gain of one line."""

    @property
    def parts(self) -> tuple[PrintedKey, ...]:
        """All these numbers."""
        return (*self.below, *([] if self.above is None else [self.above]), *self.mean)


def printed_gains(
    papers: Mapping[str, Paper], methods: Methods, numbers: Numbers
) -> dict[PrintedKey, PrintedGain]:
    """Every printed gain or loss whose parts are all printed, with these parts, by its key."""
    gains: dict[PrintedKey, PrintedGain] = {}
    for artefact in _with_print(papers):
        lines = {line.label or title(methods, str(line.run)): line for line in artefact.lines}
        for line in artefact.lines:
            for dataset in artefact.datasets:
                for metric in artefact.metrics:
                    key = _change_key(artefact, line, dataset, metric, numbers)
                    gain = _gain_of(artefact, line, lines, dataset, metric, numbers)
                    if key is not None and gain is not None:
                        gains[key] = gain
    return gains


def contradictions(
    papers: Mapping[str, Paper], methods: Methods, numbers: Numbers
) -> dict[PrintedKey, Contradiction]:
    """Every printed number that the rest of its paper contradicts."""
    return {
        **dict(_other_sizes(numbers)),
        **dict(_printed_twice(papers, methods, numbers)),
        **dict(_other_gains(printed_gains(papers, methods, numbers), numbers)),
    }


def _with_print(papers: Mapping[str, Paper]) -> Iterator[Artefact]:
    for paper in papers.values():
        yield from (artefact for artefact in paper.artefacts.values() if artefact.printed)


def _key(artefact: Artefact, line: Line, dataset: str, metric: str) -> PrintedKey | None:
    if line.printed is None:
        return None
    return (artefact.paper, str(artefact.printed), dataset, *line.printed, metric)


def _change_key(
    artefact: Artefact, line: Line, dataset: str, metric: str, numbers: Numbers
) -> PrintedKey | None:
    """The key of the printed gain or loss of a line; None if none is printed."""
    keys = (_key(artefact, line, dataset, f"{metric} {ending}") for ending, _ in CHANGES)
    return next((key for key in keys if key in numbers), None)


def _gain_of(
    artefact: Artefact,
    line: Line,
    lines: Mapping[str, Line],
    dataset: str,
    metric: str,
    numbers: Numbers,
) -> PrintedGain | None:
    """The parts of a line's gain; None if the line is no gain, or a part is not printed."""
    if line.mean:
        mean = [_change_key(artefact, lines[label], dataset, metric, numbers) for label in line.mean]
        known = tuple(key for key in mean if key is not None)
        return PrintedGain(mean=known) if len(known) == len(mean) else None
    if line.gain is None:
        return None
    base, own = line.gain
    compared = (
        [label for label, one in lines.items() if one.is_called_federated and label != own]
        if base == BEST_FEDERATED
        else [base]
    )
    above = _key(artefact, lines[own], dataset, metric)
    below = [_key(artefact, lines[label], dataset, metric) for label in compared]
    known = tuple(key for key in below if key in numbers and key is not None)
    complete = len(known) == len(below) and above in numbers
    return PrintedGain(below=known, above=above) if complete else None


def _step(number: Printed) -> float:
    """The value of a unit in the last printed digit; trailing zeros may be missing."""
    return float(10.0**-number.decimals)


def _range(number: Printed) -> Interval:
    """The interval of values that round to a printed number."""
    return number.value - _step(number) / 2, number.value + _step(number) / 2


def _other_gains(
    gains: Mapping[PrintedKey, PrintedGain], numbers: Numbers
) -> Iterator[tuple[PrintedKey, Contradiction]]:
    for key, gain in gains.items():
        ways = [_printed_gain(gain, numbers)]
        if gain.mean:
            # A mean may use computed gains, which can differ from the printed ones.
            ways.append(_mean([_as_printed(part, gains, numbers) for part in gain.mean]))
        bounds = [sorted(_sign(key) * bound for bound in way) for way in ways]
        (low, high), *_ = bounds
        if not any(_is_within(numbers[key], (least, most)) for least, most in bounds):
            given = (low + high) / 2
            parts = "the printed gains" if gain.mean else "the printed numbers that it compares"
            yield key, Contradiction((given,), f"{parts} give {given:.2f}", is_gain=True)


def _as_printed(key: PrintedKey, gains: Mapping[PrintedKey, PrintedGain], numbers: Numbers) -> Interval:
    """The interval of a printed gain, or of the gain that its numbers give if they contradict it."""
    low, high = sorted(_sign(key) * bound for bound in _range(numbers[key]))
    if key not in gains:
        return low, high
    least, most = _printed_gain(gains[key], numbers)
    first, last = sorted(_sign(key) * bound for bound in (least, most))
    return (low, high) if _is_within(numbers[key], (first, last)) else (least, most)


def _printed_gain(gain: PrintedGain, numbers: Numbers) -> Interval:
    """The smallest and the largest gain in percent that the printed parts allow."""
    if gain.above is None:
        ranges = []
        for key in gain.mean:
            bounds = sorted(_sign(key) * bound for bound in _range(numbers[key]))
            ranges.append((bounds[0], bounds[1]))
        return _mean(ranges)
    best = max(gain.below, key=lambda key: numbers[key].value)
    base, own = _range(numbers[best]), _range(numbers[gain.above])
    return 100 * (own[0] / base[1] - 1), 100 * (own[1] / base[0] - 1)


def _mean(ranges: Sequence[Interval]) -> Interval:
    return sum(low for low, _ in ranges) / len(ranges), sum(high for _, high in ranges) / len(ranges)


def _is_within(number: Printed, given: Interval) -> bool:
    """Whether a printed number may come from an interval; its last digit may be rounded or truncated."""
    least, most = given[0] - _step(number), given[1] + _step(number)
    return least - _SLACK <= number.value <= most + _SLACK


def _sign(key: PrintedKey) -> float:
    return next(sign for ending, sign in CHANGES if key[5].endswith(ending))


def _printed_twice(
    papers: Mapping[str, Paper], methods: Methods, numbers: Numbers
) -> Iterator[tuple[PrintedKey, Contradiction]]:
    for keys in _same_quantities(papers, methods, numbers):
        for key in keys:
            others = {
                other: numbers[other].value
                for other in keys
                if not _is_within(numbers[key], _range(numbers[other]))
            }
            if others:
                others_text = ", ".join(f"{value:g} in {other[1]}" for other, value in others.items())
                yield key, Contradiction(tuple(others.values()), f"the paper also prints {others_text}")


def _same_quantities(
    papers: Mapping[str, Paper], methods: Methods, numbers: Numbers
) -> list[list[PrintedKey]]:
    """Keys of numbers of one run and metric, over the same users and items."""
    groups: dict[tuple[object, ...], dict[PrintedKey, None]] = {}
    for artefact in _with_print(papers):
        over = (artefact.options.get("ranks"), str(artefact.options.get("users")))
        for line in artefact.lines:
            for dataset in artefact.datasets if line.run is not None else ():
                run = run_of(methods, artefact.paper, dataset, "published", str(line.run), 0)
                for metric in artefact.metrics:
                    key = _key(artefact, line, dataset, metric)
                    if key is not None and key in numbers:
                        part = line.printed if over != (None, "None") else None
                        groups.setdefault((run, metric, over, part), {})[key] = None
    return [[*keys] for keys in groups.values()]


def _other_sizes(numbers: Numbers) -> Iterator[tuple[PrintedKey, Contradiction]]:
    tables: dict[PrintedKey, dict[str, PrintedKey]] = {}
    for key in numbers:
        if key[5] in _SIZES:
            tables.setdefault((*key[:5], ""), {})[key[5]] = key
    for sizes in tables.values():
        if len(sizes) < len(_SIZES):
            continue
        given = _sparsity(*(_range(numbers[sizes[name]]) for name in _SIZES[:3]))
        if not _is_within(numbers[sizes["sparsity"]], given):
            values = [numbers[sizes[name]].value for name in _SIZES]
            for name, other in zip(_SIZES, _from_others(values), strict=True):
                yield sizes[name], Contradiction((other,), f"the other printed sizes give {other:,.6g}")


def _sparsity(users: Interval, items: Interval, interactions: Interval) -> Interval:
    """The smallest and the largest sparsity in percent of rounded sizes."""
    return (
        100 * (1 - interactions[1] / (users[0] * items[0])),
        100 * (1 - interactions[0] / (users[1] * items[1])),
    )


def _from_others(sizes: Sequence[float]) -> tuple[float, float, float, float]:
    """Each of users, items, interactions and sparsity, computed from the other three."""
    users, items, interactions, sparsity = sizes
    filled = 1 - sparsity / 100
    return (
        interactions / (items * filled),
        interactions / (users * filled),
        users * items * filled,
        100 * (1 - interactions / (users * items)),
    )
