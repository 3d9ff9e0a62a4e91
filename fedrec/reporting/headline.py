"""The headline in three sentences, from the method scores of the runs that exist.

What is not in the runs is not claimed: without the counter of draws, without one of the protocols or without
popularity the sentences say less, and say so where it matters.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from fedrec.audit.differences import REFERENCE
from fedrec.reporting.method_scores import CLEAN, PUBLISHED, MethodScore, under
from fedrec.runs.method_kinds import MethodKind

COUNTER = "draw-counter"
"""The reference that has no model: it counts which items its client drew as negatives."""
_COUNTING = "counting one's own negatives, without any model,"
_NAMED: Mapping[MethodKind, tuple[str, str]] = {
    "personalised": (
        "method whose clients keep an item table of their own",
        "methods whose clients keep an item table of their own",
    ),
    "federated": (
        "federated method with the server's table alone",
        "federated methods with the server's table alone",
    ),
    "centralised": ("centralised method", "centralised methods"),
    "reference": ("reference", "references"),
}
"""One and many methods of each kind."""
_FEDERATED: tuple[MethodKind, ...] = ("personalised", "federated")
_ALIKE = 0.005
"""What differs by less is equal in two digits."""


def headline(found: Sequence[MethodScore]) -> list[str]:
    """The finding on the dataset with the most runs (the first of them): up to three sentences, plain text.

    The first states what the change of protocol does, the second to which kinds of methods it does it, the
    third who is above popularity without the leak, and what the numbers rest on. No sentence without runs.
    """
    about = largest_group(found)
    if not about:
        return []
    both = _under_both(about)
    sentences = [_headline(about, both), _kinds_sentence(both), _popularity_sentence(about)]
    return [sentence for sentence in sentences if sentence]


def largest_group(found: Sequence[MethodScore]) -> list[MethodScore]:
    """The method scores on the dataset that has the most of them, as one paper sets them.

    Of equally many those of more runs; the first among equals.
    """
    groups: dict[tuple[str, str], list[MethodScore]] = {}
    for one in found:
        groups.setdefault((one.dataset, one.paper), []).append(one)
    return max(groups.values(), key=lambda group: (len(group), sum(one.seeds for one in group)), default=[])


def chance_sentence(found: Sequence[MethodScore]) -> str:
    """What chance is, with a blank behind it; empty where the runs do not tell, or not one thing."""
    chance = _chance(found)
    return "" if chance is None else f"Chance is {chance:.2f}. "


def seeds_sentence(found: Sequence[MethodScore]) -> str:
    """How many runs and seeds numbers rest on."""
    runs = sum(one.seeds for one in found)
    seeds = {
        protocol: frozenset(one.seeds for one in found if one.protocol == protocol)
        for protocol in dict.fromkeys(one.protocol for one in found)
    }
    if len({*seeds.values()}) == 1:
        words = _seeds_each(next(iter(seeds.values())))
    else:
        words = "; ".join(f"{protocol}: {_seeds_each(some)}" for protocol, some in seeds.items())
    return f"{runs} {'run' if runs == 1 else 'runs'}, {words}."


def _seeds_each(seeds: Collection[int]) -> str:
    few, many = min(seeds), max(seeds)
    if many == 1:
        return "one seed each"
    return f"{few if few == many else f'{few} to {many}'} seeds each, of which the mean"


def rounds_sentence(found: Sequence[MethodScore]) -> str:
    """Where runs had other rounds than the settings of their paper ask for; empty where none had."""
    words = _rounds_text(found)
    if not words:
        return ""
    other = sum(one.rounds != one.own_rounds for one in found)
    whom = "All numbers" if other == len(found) else f"{other} of {len(found)} numbers"
    return f"{whom} are {words}: no reproduction of a paper, and the order of methods may change with more."


def _headline(about: Sequence[MethodScore], both: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    where = f"On {about[0].dataset}"
    counter = _counter(both)
    chance = _chance(about)
    by_chance = "" if chance is None else f", where chance is {chance:.2f}"
    if counter:
        published, clean = counter
        return (
            f"{where}, {_COUNTING} finds {published.value:.2f} of the held-out items under the published "
            f"protocol and {clean.value:.2f} under the clean one{by_chance}."
        )
    if both:
        kinds = Counter(published.kind for published, _ in both)
        kind: MethodKind = "personalised" if "personalised" in kinds else kinds.most_common(1)[0][0]
        of_kind = [pair for pair in both if pair[0].kind == kind]
        return f"{where}, {_who(kind, of_kind)} {_moves(of_kind)} (HR@10){by_chance}."
    return _one_protocol(about, where, by_chance)


def _one_protocol(about: Sequence[MethodScore], where: str, by_chance: str) -> str:
    """What can be said without a method under both protocols."""
    clean = list(under(about, CLEAN).values())
    if clean:
        best = max(clean, key=lambda one: one.value)
        return (
            f"{where}, under the clean protocol alone, {best.title} finds the most of the held-out items, "
            f"{best.value:.2f} of them (HR@10){by_chance}; what the published protocol would say was not run."
        )
    protocols = ", ".join(dict.fromkeys(one.protocol for one in about))
    return (
        f"{where} there are runs under {protocols} alone: without the clean protocol beside it nothing "
        "follows from them."
    )


def _kinds_sentence(both: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    """What each kind of trained methods finds under the published protocol and under the clean one."""
    parts = []
    for kind in (kind for kind in _NAMED if kind != "reference"):
        of_kind = [pair for pair in both if pair[0].kind == kind]
        if of_kind:
            published, clean = _means(of_kind)
            parts.append(f"{published:.2f} to {clean:.2f} for {_who(kind, of_kind)}")
    if not parts:
        return ""
    return f"HR@10 from the published protocol to the clean one, in the mean: {', '.join(parts)}."


def _who(kind: MethodKind, of_kind: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    one, many = _NAMED[kind]
    return f"the one {one} ({of_kind[0][0].title})" if len(of_kind) == 1 else f"the {len(of_kind)} {many}"


def _means(pairs: Sequence[tuple[MethodScore, MethodScore]]) -> tuple[float, float]:
    published, clean = (float(np.mean([pair[side].value for pair in pairs])) for side in (0, 1))
    return published, clean


def _moves(pairs: Sequence[tuple[MethodScore, MethodScore]]) -> str:
    """`fall from 0.97 to 0.31 in the mean`, or what they do."""
    published, clean = _means(pairs)
    several = len(pairs) > 1
    mean = " in the mean" if several else ""
    protocols = "from the published protocol to the clean one"
    if abs(published - clean) < _ALIKE:
        return f"{'stay' if several else 'stays'} at {clean:.2f}{mean} {protocols}"
    verb = "fall" if clean < published else "rise"
    return f"{verb if several else verb + 's'} from {published:.2f} to {clean:.2f}{mean} {protocols}"


def _popularity_sentence(about: Sequence[MethodScore]) -> str:
    """How many federated methods end above popularity under the clean protocol, and how surely."""
    clean = list(under(about, CLEAN).values())
    popular = [one for one in clean if one.backbone == REFERENCE]
    trained = [one for one in clean if one.kind in _FEDERATED]
    runs = seeds_sentence(about).rstrip(".")
    basis = "; ".join(words for words in (_rounds_text(about), runs) if words)
    if not popular or not trained:
        return f"These numbers are {_rounds_text(about)} ({runs})." if _rounds_text(about) else f"{runs}."
    above = [one for one in trained if one.value > popular[0].value]
    sure = [one for one in above if one.above_low is not None and one.above_low > 0]
    error = f"beyond the error of {popular[0].users:,} users"
    of_them = f", {_share(len(sure), len(above))} of them {error}" if len(above) > 1 else ""
    if len(above) == 1:
        of_them = f", {'' if sure else 'not '}{error}"
    ends = "end" if len(above) > 1 else "ends"
    return (
        f"Under the clean protocol {len(above) or 'none'} of {len(trained)} federated methods {ends} above "
        f"popularity ({popular[0].value:.2f}){of_them} ({basis})."
    )


def _share(part: int, whole: int) -> str:
    return "all" if part == whole else str(part or "none")


def _rounds_text(found: Sequence[MethodScore]) -> str:
    other = [one for one in found if one.rounds != one.own_rounds]
    if not other:
        return ""
    trained, asked = (_span([getattr(one, name) for one in other]) for name in ("rounds", "own_rounds"))
    return f"after {trained} {'round' if trained == '1' else 'rounds'} where the papers' settings say {asked}"


def _under_both(about: Sequence[MethodScore]) -> list[tuple[MethodScore, MethodScore]]:
    published, clean = under(about, PUBLISHED), under(about, CLEAN)
    return [(one, clean[method]) for method, one in published.items() if method in clean]


def _counter(both: Sequence[tuple[MethodScore, MethodScore]]) -> tuple[MethodScore, MethodScore] | None:
    return next((pair for pair in both if pair[0].backbone == COUNTER), None)


def _chance(found: Sequence[MethodScore]) -> float | None:
    """The level of chance, where all runs have the same."""
    levels = {one.chance for one in found}
    return levels.pop() if len(levels) == 1 else None


def _span(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low}" if low == high else f"{low} to {high}"
