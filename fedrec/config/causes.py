"""Causes why printed numbers have no equal among ours: `reference: causes:` of the configuration.

A cause names cells by their fields in `printed.csv`, and what bounds it, so that it can fail: the largest
difference that it explains, or a run that must come as near to print as a number that agrees.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.config.document import Document, KeyPath, Mistake, refuse, told_at
from fedrec.config.methods import Methods, canonical
from fedrec.config.printed import PrintedKey, published

NOT_TO_BE_HAD = "dataset not to be had"
"""The cause for which there will never be a number of ours."""
AT_MOST, FITS, ALWAYS = BOUNDS = ("at_most", "fits", "always")
"""The bounds of a cause; each has exactly one of these."""
FIELDS = ("paper", "table", "dataset", "method", "variant", "metric")
"""The fields that name a printed number."""
_WITHOUT_BOUND = (NOT_TO_BE_HAD, "another machine", "counted otherwise")
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
                    f"'{cause['cause']}' could explain any difference. Give exactly one of "
                    f"{', '.join(BOUNDS)}.",
                )
            )
        elif given == [ALWAYS] and cause["cause"] not in _WITHOUT_BOUND:
            mistakes.append(
                Mistake(
                    (*at, place, ALWAYS),
                    f"goes with {', '.join(_WITHOUT_BOUND)} alone. Bound '{cause['cause']}' by {AT_MOST} or "
                    f"{FITS}.",
                )
            )
        elif not any(is_about(cause, key) for key in published()):
            mistakes.append(Mistake((*at, place), "is about no printed number. Its fields are misspelt."))
        if FITS in cause:
            with told_at(document.place((*at, place, FITS))):
                canonical(methods, cause[FITS])
    refuse(document, mistakes)


def is_about(cause: Cause, key: PrintedKey) -> bool:
    """Whether a printed number is one that a cause names: it is of every field that is given."""
    cell = dict(zip(FIELDS, key, strict=True))
    return all(cell[name] in cause[name] for name in FIELDS if name in cause)
