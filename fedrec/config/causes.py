"""Causes why printed numbers have no equal among ours: `reference: causes:` of the configuration.

A cause names cells by their fields in `printed.csv`, and what bounds it, so that it can fail: the largest
difference that it explains, or a run that must come as near to print as a number that agrees.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fedrec.config.document import Document, KeyPath, Mistake, error_at, refuse
from fedrec.config.methods import Methods, canonical
from fedrec.config.printed import PrintedKey, printed_numbers
from fedrec.errors import did_you_mean

NOT_AVAILABLE = "dataset not to be had"
"""The cause for which there will never be a number of ours."""
AT_MOST, FITS, ALWAYS = BOUNDS = ("at_most", "fits", "always")
"""The bounds of a cause; each has exactly one of these."""
FIELDS = ("paper", "table", "dataset", "method", "variant", "metric")
"""The fields that name a printed number."""
_WITHOUT_BOUND = (NOT_AVAILABLE, "another machine", "counted otherwise")
"""Causes of numbers that nothing of ours can stand beside."""

Cause = Mapping[str, Any]


def check_causes(document: Document, methods: Methods) -> None:
    """Raise `ConfigurationError` for a cause that cannot fail, or that is about no printed number."""
    at: KeyPath = ("reference", "causes")
    causes: Sequence[Cause] = document.content.get("reference", {}).get("causes", ())
    mistakes = []
    for place, cause in enumerate(causes):
        given = [bound for bound in BOUNDS if bound in cause]
        if len(given) != 1:
            mistakes.append(
                Mistake(
                    (*at, place),
                    f"'{cause['cause']}' could explain any difference. Add exactly one of "
                    f"{', '.join(BOUNDS)}.",
                )
            )
        elif given == [ALWAYS] and cause["cause"] not in _WITHOUT_BOUND:
            mistakes.append(
                Mistake(
                    (*at, place, ALWAYS),
                    f"only {', '.join(_WITHOUT_BOUND)} may have it. Bound '{cause['cause']}' by {AT_MOST} "
                    f"or {FITS}.",
                )
            )
        else:
            mistakes += _unprinted((*at, place), cause)
        if FITS in cause:
            with error_at(document.location((*at, place, FITS))):
                canonical(methods, cause[FITS])
    refuse(document, mistakes)


def _unprinted(at: KeyPath, cause: Cause) -> list[Mistake]:
    """The names of a cause that are of no printed number, or of none of those that its other fields name."""
    unknown = [*_names_without(at, cause, printed_numbers())]
    if unknown:
        return unknown
    if not any(is_about(cause, key) for key in printed_numbers()):
        return [Mistake(at, "matches no printed number: its keys never occur together.")]
    return [*_names_without(at, cause, [key for key in printed_numbers() if is_about(cause, key)])]


def _names_without(at: KeyPath, cause: Cause, keys: Collection[PrintedKey]) -> Iterator[Mistake]:
    """The names of a cause that none of some printed numbers has."""
    for number, name in enumerate(FIELDS):
        known = sorted({key[number] for key in keys})
        for place, given in enumerate(cause.get(name, ())):
            if given not in known:
                text = f"'{given}' matches no printed number of this cause.{did_you_mean(given, known)}"
                yield Mistake((*at, name, place), text)


def is_about(cause: Cause, key: PrintedKey) -> bool:
    """Whether a printed number is one that a cause names: it is of every field that is given."""
    cell = dict(zip(FIELDS, key, strict=True))
    return all(cell[name] in cause[name] for name in FIELDS if name in cause)
