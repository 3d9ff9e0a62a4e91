"""Steps from a paper's protocol to the clean one: each switch alone, and all switches cumulatively.

    published    the paper's protocol
    only-pool    the paper's protocol with one switch as in `clean` (see `fedrec.config.protocol.SWITCHES`)
    upto-lists   the paper's protocol with this switch and all before it as in `clean`
    clean        all switches as in `clean`

A step without a training of its own reads the runs of another step. The switch `round` only selects a round.
A switch changes nothing if both protocols have the same value, or if the dataset has no case for it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from fedrec.config.methods import Methods
from fedrec.config.protocol import SWITCHES, Protocol, full_name
from fedrec.config.protocol_file import protocol_named, switched, switches_of
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.plan.runs import RunId, run_of, shortened


@dataclass(frozen=True)
class ProtocolStep:
    """A step: the protocol of the runs that it reads, and the rule that selects their round."""

    name: str
    """Without its paper: `only-pool`."""
    protocol: str
    rule: str


@dataclass(frozen=True)
class ProtocolSteps:
    """The steps to show for one dataset: methods with a paper's settings, and switches."""

    dataset: str
    paper: str
    methods: tuple[str, ...]
    """In the order of a table, as canonical spellings."""
    switches: tuple[str, ...]
    distinct_pairs: bool
    """Whether no (user, item) pair of the dataset is repeated."""


def protocol_steps(
    methods: Methods,
    names: Iterable[str],
    *,
    dataset: str,
    paper: str,
    rounds: int | None,
    switches: Iterable[str],
    distinct_pairs: bool,
) -> ProtocolSteps:
    """The steps of the methods called `names`, trained for `rounds` at most."""
    trained = tuple(shortened(methods, names, paper, dataset, rounds))
    chosen = set(switches)
    unknown = sorted(chosen - set(SWITCHES))
    if unknown:
        raise ConfigurationError(
            f"unknown switch '{unknown[0]}'.{did_you_mean(unknown[0], SWITCHES)} Known switches: "
            f"{', '.join(SWITCHES)}."
        )
    return ProtocolSteps(
        dataset, paper, trained, tuple(name for name in SWITCHES if name in chosen), distinct_pairs
    )


def steps(audited: ProtocolSteps, protocols: Mapping[str, Protocol]) -> list[ProtocolStep]:
    """The steps in the order of a table, from `published` to `clean`."""
    singles = [f"only-{switch}" for switch in audited.switches]
    sums = [f"upto-{switch}" for switch in audited.switches if switch != _last()]
    return [
        _step("published", (), audited, protocols),
        *(_step(name, switches_of(name), audited, protocols) for name in (*singles, *sums)),
        _step("clean", tuple(SWITCHES), audited, protocols),
    ]


def runs_of_step(
    audited: ProtocolSteps, methods: Methods, step: ProtocolStep, seeds: Iterable[int]
) -> dict[str, list[RunId]]:
    """The runs that a step reads, by method: one per seed."""
    return {
        method: [
            run_of(methods, audited.paper, audited.dataset, step.protocol, method, seed) for seed in seeds
        ]
        for method in audited.methods
    }


def _step(
    name: str, switches: tuple[str, ...], audited: ProtocolSteps, protocols: Mapping[str, Protocol]
) -> ProtocolStep:
    rule = switched(protocols, audited.paper, switches).round_rule
    return ProtocolStep(name, full_name(_trained_as(switches, audited, protocols), audited.paper), rule)


def _trained_as(switches: tuple[str, ...], audited: ProtocolSteps, protocols: Mapping[str, Protocol]) -> str:
    """The short name of the protocol with the same training and ranking as these switches."""
    matter = [switch for switch in SWITCHES if _matters(switch, audited, protocols)]
    turned = [switch for switch in matter if switch in switches]
    if turned == matter and _ends_clean(audited, protocols):
        return "clean"
    if not turned:
        return "published"
    return f"only-{turned[0]}" if len(turned) == 1 else f"upto-{turned[-1]}"


def _matters(switch: str, audited: ProtocolSteps, protocols: Mapping[str, Protocol]) -> bool:
    """Whether a switch can change the training data or the ranking on the dataset."""
    if switch == "round" or (switch == "repeats" and audited.distinct_pairs):
        return False
    start = protocol_named(protocols, f"published-{audited.paper}")
    return replace(switched(protocols, audited.paper, (switch,)), name=start.name) != start


def _ends_clean(audited: ProtocolSteps, protocols: Mapping[str, Protocol]) -> bool:
    """Whether all switches together give the clean protocol: a paper's protocol may differ in more."""
    end = switched(protocols, audited.paper, SWITCHES)
    return replace(end, name="clean") == protocol_named(protocols, "clean")


def _last() -> str:
    return tuple(SWITCHES)[-1]
