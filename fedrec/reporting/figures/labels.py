"""Positions of labels beside their marks, so that no label covers another."""

from collections.abc import Sequence

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

_POINTS = 72  # in an inch


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions from `low` to `high`, at least `gap` apart, nearest to the wanted ones by squared distance.

    They have the order of `wanted`; of equal wishes the first is the lowest. If there are too many, they
    share the range evenly.
    """
    if not wanted:
        return []
    gap = min(gap, (high - low) / max(len(wanted) - 1, 1))
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    # Without the gaps below, positions need only be non-decreasing: pool neighbours that violate this.
    pools: list[tuple[float, int]] = []
    for rank, index in enumerate(order):
        total, count = wanted[index] - rank * gap, 1
        while pools and pools[-1][0] / pools[-1][1] >= total / count:
            below, others = pools.pop()
            total, count = total + below, count + others
        pools.append((total, count))
    level = [total / count for total, count in pools for _ in range(count)]
    top = high - (len(wanted) - 1) * gap
    positions = [0.0] * len(wanted)
    for rank, index in enumerate(order):
        positions[index] = min(max(level[rank], low), top) + rank * gap
    return positions


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """The width of a text in inches, in the font of figures at a size in points."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text or " ", size=size, prop=font).get_extents().x1) / _POINTS


def fitted(text: str, width: float, size: float, *, bold: bool = False) -> str:
    """The text, or the beginning that fits into `width` inches with an ellipsis."""
    if text_width(text, size, bold=bold) <= width:
        return text
    length = len(text)
    while length > 1 and text_width(f"{text[:length]}…", size, bold=bold) > width:
        length -= 1
    return f"{text[:length]}…"


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
