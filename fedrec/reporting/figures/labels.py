"""Places for labels beside what they name, so that none covers another."""

from collections.abc import Sequence

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

_POINTS = 72  # in an inch


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places from `low` to `high`, `gap` apart at the least, as near to the wanted ones as can be.

    In the order of `wanted`; of equal wishes the first is the lowest. As near as can be: the sum of squared
    distances is the smallest. Too many for the room share it evenly.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    # Less the gaps below it, a place need only be no lower than the one below: pool neighbours that are.
    pools: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        total, count = wanted[index] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            below, others = pools.pop()
            total, count = total + below, count + others
        pools.append((total, count))
    level = [total / count for total, count in pools for _ in range(count)]
    top = high - (len(wanted) - 1) * gap
    places = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        places[index] = min(max(level[rank], low), top) + rank * gap
    return places


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Inches that a text takes in the font of figures, at a size in points."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text or " ", size=size, prop=font).get_extents().x1) / _POINTS


def fitted(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """The text, or as much of its beginning as fits into `width` inches, and an ellipsis."""
    if text_width(text, size, bold=bold) <= width:
        return text
    kept = len(text)
    while kept > 1 and text_width(f"{text[:kept]}…", size, bold=bold) > width:
        kept -= 1
    return f"{text[:kept]}…"


def wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """The text in lines of at most `width` inches each; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and text_width(longer, size, bold=bold) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines
