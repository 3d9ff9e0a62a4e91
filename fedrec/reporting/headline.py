"""The finding in a few sentences, from the method scores of existing runs.

The sentences claim nothing that the runs do not show. They are shorter without the draw-counter, without
popularity or without one of the protocols.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fedrec.audit.differences import REFERENCE
from fedrec.reporting.method_scores import CLEAN, PUBLISHED, MethodScore, under
from fedrec.runs.method_kinds import MethodKind

COUNTER = "draw-counter"
"""The baseline without a model: it only counts how often each client drew each item as a negative."""
COUNTER_WORDS = (
    f"{COUNTER} has no model. It only counts how often each client drew each item as a negative, and ranks "
    "the items with the fewest draws first."
)
"""A description of the draw-counter for captions."""
_NAMED: Mapping[MethodKind, tuple[str, str]] = {
    "personalised": ("method whose clients keep item tables", "methods whose clients keep item tables"),
    "federated": (
        "federated method with the server's item table alone",
        "federated methods with the server's item table alone",
    ),
    "centralised": ("centralised method", "centralised methods"),
    "reference": ("reference", "references"),
}
"""The name of each kind of methods, singular and plural."""
_FEDERATED: tuple[MethodKind, ...] = ("personalised", "federated")
_EQUAL_IN_PRINT = 0.005
"""Values that differ by less count as equal, since two digits are shown."""


def headline(about: Sequence[MethodScore]) -> list[str]:
    """The finding of method scores on one dataset, in plain text; empty without runs.

    The sentences describe the effect of the protocol on each kind of methods, and which methods beat
    popularity without the leak. The last one counts the runs.
    """
    if not about:
        return []
    both = _under_both(about)
    sentences = [
        _headline(about, both),
        _counter_sentence(both),
        _kinds_sentence(both),
        _popularity_sentence(about),
    ]
    return [sentence for sentence in sentences if sentence]


def largest_group(scores: Sequence[MethodScore]) -> list[MethodScore]:
    """The largest group of method scores with one dataset and one paper's settings.

    In a tie, the group with more runs; then the first.
    """
    groups: dict[tuple[str, str], list[MethodScore]] = {}
    for one in scores:
        groups.setdefault((one.dataset, one.paper), []).append(one)
    return max(groups.values(), key=lambda group: (len(group), sum(one.seeds for one in group)), default=[])


def chance_sentence(scores: Sequence[MethodScore]) -> str:
    """The level of chance, with a blank behind it; empty if it is unknown or differs between runs."""
    chance = _chance(scores)
    return "" if chance is None else f"Chance is {chance:.2f}. "


def seeds_sentence(scores: Sequence[MethodScore]) -> str:
    """The numbers of runs and seeds behind method scores."""
    runs = sum(score.seeds for score in scores)
    seeds = {
        protocol: frozenset(score.seeds for score in scores if score.protocol == protocol)
        for protocol in dict.fromkeys(score.protocol for score in scores)
    }
    words = f"{runs} {'run' if runs == 1 else 'runs'}"
    if len({*seeds.values()}) == 1:
        return f"{words}, {_seeds_text(next(iter(seeds.values())), scores)}."
    each = "; ".join(f"{protocol}: {_seeds_text(some, ())}" for protocol, some in seeds.items())
    return f"{words}. Seeds of each number: {each}. Numbers of several seeds are means."


def _seeds_text(seeds: Collection[int], scores: Sequence[MethodScore]) -> str:
    """The number of seeds behind each score; the seed itself if all scores have the same single score."""
    few, many = min(seeds), max(seeds)
    if not scores:
        return f"{few}" if few == many else f"{few} to {many}"
    if many == 1:
        names = {
            run.rpartition("/seed")[2] for score in scores for run in score.runs.split() if "/seed" in run
        }
        return f"seed {names.pop()}" if len(names) == 1 else "one seed each"
    return f"{few if few == many else f'{few} to {many}'} seeds each; numbers are means"


def rounds_sentence(scores: Sequence[MethodScore]) -> str:
    """A sentence on runs with other rounds than their paper's settings; empty if there are none."""
    words = _rounds_text(scores)
    if not words:
        return ""
    other = sum(score.rounds != score.own_rounds for score in scores)
    which = "All numbers" if other == len(scores) else f"{other} of {len(scores)} numbers"
    return (
        f"{which} are {words}. So they do not reproduce a paper, and more rounds may change the order of "
        "methods."
    )


def _headline(about: Sequence[MethodScore], both: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    where = f"On {about[0].dataset}"
    counter = _counter(both)
    chance = _chance(about)
    by_chance = "" if chance is None else f"; chance is {chance:.2f}"
    if counter:
        published, clean = counter
        return (
            f"{where}, a counter without any model reaches HR@10 {published.value:.2f} under the published "
            f"protocol and {clean.value:.2f} under the clean one{by_chance}."
        )
    if both:
        kinds = Counter(published.kind for published, _ in both)
        kind: MethodKind = "personalised" if "personalised" in kinds else kinds.most_common(1)[0][0]
        of_kind = [pair for pair in both if pair[0].kind == kind]
        return f"{where}, the {_moves(kind, of_kind)}{by_chance}."
    return _one_protocol(about, where, by_chance)


def _one_protocol(about: Sequence[MethodScore], where: str, by_chance: str) -> str:
    """The sentence for method scores of which none is under both protocols."""
    clean = list(under(about, CLEAN).values())
    if clean:
        best = max(clean, key=lambda one: one.value)
        return (
            f"{where}, under the clean protocol alone, {best.title} has the highest HR@10, {best.value:.2f}"
            f"{by_chance}. There are no runs under the published protocol."
        )
    protocols = ", ".join(dict.fromkeys(one.protocol for one in about))
    return (
        f"{where} there are runs under {protocols} alone. Without runs under the clean protocol, nothing "
        "follows from them."
    )


def _counter_sentence(both: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    """The explanation of the draw-counter's result, if it has one."""
    if not _counter(both):
        return ""
    return (
        "The counter ranks items by how rarely the client sampled them as negatives. Under the published "
        "protocol no client ever samples its held-out item."
    )


def _kinds_sentence(both: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    """HR@10 of each kind of trained methods under the published protocol and under the clean one."""
    parts = []
    for kind in (kind for kind in _NAMED if kind != "reference"):
        of_kind = [pair for pair in both if pair[0].kind == kind]
        if of_kind:
            published, clean = _means(of_kind)
            parts.append(f"{published:.2f} to {clean:.2f} for {_counted_kind(kind, of_kind)}")
    if not parts:
        return ""
    return f"Mean HR@10, from the published protocol to the clean one: {'; '.join(parts)}."


def _counted_kind(kind: MethodKind, of_kind: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    one, many = _NAMED[kind]
    return f"1 {one} ({of_kind[0][0].title})" if len(of_kind) == 1 else f"{len(of_kind)} {many}"


def _means(pairs: Sequence[tuple[MethodScore, MethodScore]]) -> tuple[float, float]:
    published, clean = (float(np.mean([pair[side].value for pair in pairs])) for side in (0, 1))
    return published, clean


def _moves(kind: MethodKind, pairs: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    """The change of a kind's mean: `mean HR@10 of 9 methods ... falls from 0.97 to 0.31`."""
    published, clean = _means(pairs)
    mean = "mean HR@10" if len(pairs) > 1 else "HR@10"
    what = f"{mean} of {_counted_kind(kind, pairs)}"
    protocols = "from the published protocol to the clean one"
    if abs(published - clean) < _EQUAL_IN_PRINT:
        return f"{what} stays at {clean:.2f} {protocols}"
    verb = "falls" if clean < published else "rises"
    return f"{what} {verb} from {published:.2f} to {clean:.2f} {protocols}"


def _popularity_sentence(about: Sequence[MethodScore]) -> str:
    """The number of federated methods above popularity under the clean protocol, and how many surely so."""
    clean = list(under(about, CLEAN).values())
    popular = [one for one in clean if one.backbone == REFERENCE]
    trained = [one for one in clean if one.kind in _FEDERATED]
    runs = seeds_sentence(about).rstrip(".")
    rounds = _rounds_text(about)
    basis = f"{runs}; {rounds}" if rounds else runs
    if not popular or not trained:
        return f"Basis: {basis}."
    above = [one for one in trained if one.value > popular[0].value]
    sure = [one for one in above if one.above_low is not None and one.above_low > 0]
    users = f"{popular[0].users:,} users"
    of_them = ""
    if above:
        of_them = (
            f"; for {_share(len(sure), len(above))} of them the 95 % interval over {users} excludes zero"
        )
    if len(above) == 1:
        of_them = f"; its 95 % interval over {users} {'excludes' if sure else 'includes'} zero"
    beat = "beats" if len(above) == 1 else "beat"
    return (
        f"Under the clean protocol {len(above) or 'none'} of {len(trained)} federated methods {beat} "
        f"popularity (HR@10 {popular[0].value:.2f}){of_them}. Basis: {basis}."
    )


def _share(part: int, whole: int) -> str:
    return "all" if part == whole else str(part or "none")


def _rounds_text(scores: Sequence[MethodScore]) -> str:
    other = [one for one in scores if one.rounds != one.own_rounds]
    if not other:
        return ""
    trained, intended = (_span([getattr(one, name) for one in other]) for name in ("rounds", "own_rounds"))
    return f"after {trained} {'round' if trained == '1' else 'rounds'}, where the papers train {intended}"


def _under_both(about: Sequence[MethodScore]) -> list[tuple[MethodScore, MethodScore]]:
    published, clean = under(about, PUBLISHED), under(about, CLEAN)
    return [(one, clean[method]) for method, one in published.items() if method in clean]


def _counter(both: Sequence[tuple[MethodScore, MethodScore]]) -> tuple[MethodScore, MethodScore] | None:
    return next((pair for pair in both if pair[0].backbone == COUNTER), None)


def _chance(scores: Sequence[MethodScore]) -> float | None:
    """The level of chance, if all runs have the same."""
    levels = {score.chance for score in scores}
    return levels.pop() if len(levels) == 1 else None


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"
