"""Causes of differences between printed numbers and ours: `reference: causes:` of the configuration.

A cause names printed numbers by their fields in `printed.csv`. Its bound makes it possible to refute it: the
largest difference that it explains, or a run whose number must agree with print.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fedrec.config.document import Document, KeyPath, Mistake, error_at, refuse
from fedrec.config.methods import Methods, canonical
from fedrec.config.printed import PrintedKey, printed_numbers
from fedrec.errors import did_you_mean

NOT_AVAILABLE = "dataset not to be had"
"""The cause for a dataset without any number of ours."""
AT_MOST, FITS, ALWAYS = BOUNDS = ("at_most", "fits", "always")
"""The bounds of a cause; each has exactly one of these."""
FIELDS = ("paper", "table", "dataset", "method", "variant", "metric")
"""The fields that name a printed number."""
_WITHOUT_BOUND = (NOT_AVAILABLE, "another machine", "counted otherwise")
"""Causes of numbers without a comparable number of ours."""

Cause = Mapping[str, Any]


def check_causes(document: Document, methods: Methods) -> None:
    """Raise `ConfigurationError` for a cause without a bound, or without a printed number."""
    at: KeyPath = ("reference", "causes")
    causes: Sequence[Cause] = document.content.get("reference", {}).get("causes", ())
    mistakes = []
    for index, cause in enumerate(causes):
        bounds = [bound for bound in BOUNDS if bound in cause]
        if len(bounds) != 1:
            mistakes.append(
                Mistake(
                    (*at, index),
                    f"'{cause['cause']}' could explain any difference. Add exactly one of "
                    f"{', '.join(BOUNDS)}.",
                )
            )
        elif bounds == [ALWAYS] and cause["cause"] not in _WITHOUT_BOUND:
            mistakes.append(
                Mistake(
                    (*at, index, ALWAYS),
                    f"only {', '.join(_WITHOUT_BOUND)} may have it. Bound '{cause['cause']}' by {AT_MOST} "
                    f"or {FITS}.",
                )
            )
        else:
            mistakes += _unprinted((*at, index), cause)
        if FITS in cause:
            with error_at(document.location((*at, index, FITS))):
                canonical(methods, cause[FITS])
    refuse(document, mistakes)


def _unprinted(at: KeyPath, cause: Cause) -> list[Mistake]:
    """The mistakes in a cause's names: no printed number has the name, or the combination of names."""
    unknown = [*_names_without(at, cause, printed_numbers())]
    if unknown:
        return unknown
    if not any(is_about(cause, key) for key in printed_numbers()):
        return [Mistake(at, "matches no printed number: its keys never occur together.")]
    return [*_names_without(at, cause, [key for key in printed_numbers() if is_about(cause, key)])]


def _names_without(at: KeyPath, cause: Cause, keys: Collection[PrintedKey]) -> Iterator[Mistake]:
    """Yield the names of a cause that none of the printed numbers `keys` has."""
    for number, name in enumerate(FIELDS):
        known = sorted({key[number] for key in keys})
        for index, given in enumerate(cause.get(name, ())):
            if given not in known:
                text = f"'{given}' matches no printed number of this cause.{did_you_mean(given, known)}"
                yield Mistake((*at, name, index), text)


def is_about(cause: Cause, key: PrintedKey) -> bool:
    """Whether a cause names a printed number: every given field matches."""
    cell = dict(zip(FIELDS, key, strict=True))
    return all(cell[name] in cause[name] for name in FIELDS if name in cause)
