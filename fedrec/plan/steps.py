"""The way from a paper's protocol to the clean one: each switch by itself, and one after the other.

    published    the paper's protocol
    only-pool    that, with one switch turned (see `fedrec.config.protocol.SWITCHES`)
    upto-lists   that, with this switch turned and all before it
    clean        all of them

A step that trains nothing new reads the runs of another: the rule for the round only chooses among rounds,
and a switch both protocols agree on, or one the dataset gives nothing to, changes nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fedrec.config.papers import Run, run_of, shortened
from fedrec.config.protocol import SWITCHES, Protocol
from fedrec.config.protocol_file import protocol_named, switched, switches_of
from fedrec.errors import ConfigurationError, did_you_mean


@dataclass(frozen=True)
class Step:
    """A step: the kind of run that is read, and by which rule its round is chosen."""

    name: str
    kind: str
    rule: str


@dataclass(frozen=True)
class Ladder:
    """What is audited on one dataset: methods as a paper would train them, and the switches to show."""

    dataset: str
    paper: str
    methods: tuple[str, ...]
    """In the order of a table; spelt as they are trained."""
    switches: tuple[str, ...]
    distinct_pairs: bool
    """Whether no (user, item) pair of the dataset is repeated."""


def ladder_of(
    methods: Mapping[str, Any],
    names: Iterable[str],
    *,
    dataset: str,
    paper: str,
    rounds: int | None,
    switches: Iterable[str],
    distinct_pairs: bool,
) -> Ladder:
    """The audit of the methods called `names`, trained for `rounds` at most."""
    trained = tuple(shortened(methods, names, paper, dataset, rounds))
    chosen = set(switches)
    unknown = sorted(chosen - set(SWITCHES))
    if unknown:
        raise ConfigurationError(
            f"unknown switch '{unknown[0]}'.{did_you_mean(unknown[0], SWITCHES)} "
            f"Known: {', '.join(SWITCHES)}."
        )
    return Ladder(dataset, paper, trained, tuple(one for one in SWITCHES if one in chosen), distinct_pairs)


def steps(ladder: Ladder, protocols: Mapping[str, Protocol]) -> list[Step]:
    """The steps in the order of a table, from `published` to `clean`."""
    singles = [f"only-{switch}" for switch in ladder.switches]
    sums = [f"upto-{switch}" for switch in ladder.switches if switch != _last()]
    return [
        _step("published", (), ladder, protocols),
        *(_step(name, switches_of(name), ladder, protocols) for name in (*singles, *sums)),
        _step("clean", tuple(SWITCHES), ladder, protocols),
    ]


def runs_of_step(
    ladder: Ladder, methods: Mapping[str, Any], step: Step, seeds: Iterable[int]
) -> dict[str, list[Run]]:
    """The runs a step reads, by method: one per seed."""
    return {
        method: [run_of(methods, ladder.paper, ladder.dataset, step.kind, method, seed) for seed in seeds]
        for method in ladder.methods
    }


def _step(name: str, switches: tuple[str, ...], ladder: Ladder, protocols: Mapping[str, Protocol]) -> Step:
    rule = switched(protocols, ladder.paper, switches).round_rule
    return Step(name, _kind(switches, ladder, protocols), rule)


def _kind(switches: tuple[str, ...], ladder: Ladder, protocols: Mapping[str, Protocol]) -> str:
    """The kind of run that is trained and ranked as with these switches."""
    matter = [one for one in SWITCHES if _matters(one, ladder, protocols)]
    turned = [one for one in matter if one in switches]
    if turned == matter and _ends_clean(ladder, protocols):
        return "clean"
    if not turned:
        return "published"
    return f"only-{turned[0]}" if len(turned) == 1 else f"upto-{turned[-1]}"


def _matters(switch: str, ladder: Ladder, protocols: Mapping[str, Protocol]) -> bool:
    """Whether a switch can change what is trained on, or what is ranked, on the ladder's dataset."""
    if switch == "round" or (switch == "repeats" and ladder.distinct_pairs):
        return False
    start = protocol_named(protocols, f"published-{ladder.paper}")
    return replace(switched(protocols, ladder.paper, (switch,)), name=start.name) != start


def _ends_clean(ladder: Ladder, protocols: Mapping[str, Protocol]) -> bool:
    """Whether all switches turned give the clean protocol itself: a protocol may differ in more."""
    end = switched(protocols, ladder.paper, SWITCHES)
    return replace(end, name="clean") == protocol_named(protocols, "clean")


def _last() -> str:
    return tuple(SWITCHES)[-1]
