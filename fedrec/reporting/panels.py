"""Panels, axes and legends that the layouts of figures share."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrec.config.papers import Artefact
from fedrec.reporting.plotted import kinds_of
from fedrec.reporting.style import HEIGHT, MUTED, WIDTH, canvas
from fedrec.reporting.tables import Row

Key: TypeAlias = tuple[str, str, str]
"""Dataset, kind of protocol and metric: what a panel shows."""
Thing = TypeVar("Thing", bound=Hashable)

_PER_INCH = 13.5
"""Letters of a legend."""
_ENTRY = 9
"""Letters that the sample of an entry takes."""
_LINE = 0.15
"""Inches of a line of a legend."""
_USUAL_LINES = 2
"""Lines of a legend that figures have room for."""
_MOST_TICKS = 7
_DECADES = 100


def panels(artefact: Artefact, rows: Sequence[Row], *, share: bool) -> tuple[Figure, dict[Key, Axes]]:
    """A row of panels per dataset: for each metric, the protocols side by side.

    There is no panel for what there is no row for. With `share`, protocols have one y axis per metric.
    """
    there = {(row["dataset"], row["protocol"], row["metric"]) for row in rows}
    datasets = [name for name in artefact.datasets if any(name == key[0] for key in there)]
    columns = [
        (kind, metric)
        for metric in artefact.metrics
        for kind in kinds_of(artefact)
        if any(key[1:] == (kind, metric) for key in there)
    ]
    width = WIDTH if len(columns) > 2 else 0.3 + 2.7 * len(columns)
    figure = canvas(width, HEIGHT * len(datasets) + 0.6)
    grid = figure.add_gridspec(len(datasets), len(columns))
    axes: dict[Key, Axes] = {}
    beside: dict[tuple[str, str], Axes] = {}
    for line, dataset in enumerate(datasets):
        for column, (kind, metric) in enumerate(columns):
            if (dataset, kind, metric) not in there:
                continue
            shared = beside.get((dataset, metric)) if share else None
            ax = figure.add_subplot(grid[line, column], sharey=shared)
            if shared is not None:
                ax.tick_params(labelleft=False)
            axes[dataset, kind, metric] = ax
            beside.setdefault((dataset, metric), ax)
    return figure, axes


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """One legend for the whole figure, below the panels, in as many columns as fit."""
    letters = [len(str(handle.get_label())) + _ENTRY for handle in handles]
    for lines in range(1, len(handles) + 1):
        # Entries go down a column first.
        columns = math.ceil(len(handles) / lines)
        widths = [max(letters[start : start + lines]) for start in range(0, len(letters), lines)]
        if sum(widths) <= figure.get_figwidth() * _PER_INCH:
            break
    # What many entries take must not be taken from the panels.
    figure.set_figheight(figure.get_figheight() + _LINE * max(0, lines - _USUAL_LINES))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.4)


def setting_axis(ax: Axes, values: Sequence[Any]) -> Mapping[Any, float]:
    """Give `ax` the scale that suits the values of a setting; where on it each value is.

    Numbers over two decades or more are on a log axis, with zero at its own place; texts are in their order.
    """
    if any(isinstance(value, str) for value in values):
        ax.set_xticks(range(len(values)), values, rotation=25, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.3, len(values) - 0.7)
        return {value: float(place) for place, value in enumerate(values)}
    numbers = sorted(float(value) for value in values)
    positive = [number for number in numbers if number > 0]
    ticks = numbers
    if positive and positive[-1] >= _DECADES * positive[0]:
        if positive == numbers:
            ax.set_xscale("log")
        else:
            ax.set_xscale("symlog", linthresh=positive[0], linscale=0.6)
        tens = [number for number in numbers if number == 0 or math.log10(number).is_integer()]
        ticks = tens if len(tens) > 1 else numbers
    elif len(numbers) > _MOST_TICKS:
        ticks = numbers[:: math.ceil(len(numbers) / _MOST_TICKS)]
    ax.set_xticks(ticks, list(map(_spelled, ticks)))
    ax.minorticks_off()
    return {value: float(value) for value in values}


def _spelled(number: float) -> str:
    if 0 < number < 0.01 and math.log10(number).is_integer():
        return f"$10^{{{math.log10(number):.0f}}}$"
    return f"{number:g}"


def no_flatter_than(ax: Axes, span: float) -> None:
    """Widen the y axis to `span` at least."""
    low, high = ax.get_ylim()
    if high - low < span:
        middle = (low + high) / 2
        ax.set_ylim(middle - span / 2, middle + span / 2)


def protocol_title(kind: str) -> str:
    """What a panel calls a protocol."""
    return f"{kind} protocol"


def empty() -> Figure:
    """What stands in for a figure that there is no data of."""
    figure = canvas(0.5 * WIDTH, 0.6 * HEIGHT)
    figure.text(0.5, 0.5, "none of its datasets is available", ha="center", va="center", color=MUTED)
    return figure


def distinct(values: Iterable[Thing]) -> list[Thing]:
    """Each value once, in the order they come."""
    return list(dict.fromkeys(values))
