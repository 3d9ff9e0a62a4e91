"""Panels, axes and legends that the layouts of figures share."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedrec.config.papers import Artefact
from fedrec.config.protocol import short_name
from fedrec.reporting.artefact_runs import RunGroups
from fedrec.reporting.figures.style import HEIGHT, MUTED, WIDTH, blank_figure
from fedrec.reporting.tables.table import Row

PanelKey: TypeAlias = tuple[str, str, str]
"""Dataset, protocol (full name) and metric of a panel."""
Thing = TypeVar("Thing", bound=Hashable)

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
"""Colours of series that are no methods, also for colour-blind readers."""
TABLE_TITLES = {
    "own": "own table",
    "shared": "server's table",
    "scored": "combined table",
    "upload": "uploaded table",
    "correction": "correction",
}
"""Titles of the item tables of `fedrec.runs.model_inspection`."""
_LETTERS_PER_INCH = 13.5  # of a legend
_ENTRY_LETTERS = 9  # taken by the sample of an entry
_LEGEND_LINE = 0.15  # inches
_LEGEND_LINES = 2  # that figures have room for
LEAST_SPAN = 0.05
"""The smallest span of a y axis, so that noise does not look large."""
_MOST_TICKS = 7
_DECADES = 100


def metric_panels(
    artefact: Artefact, rows: Sequence[Row], *, share: bool
) -> tuple[Figure, dict[PanelKey, Axes]]:
    """A row of panels per dataset: for each metric, the protocols side by side.

    Combinations without rows have no panel. With `share`, protocols have one y axis per metric.
    """
    there = {(row["dataset"], row["protocol"], row["metric"]) for row in rows}
    datasets = [name for name in artefact.datasets if any(name == key[0] for key in there)]
    columns = [
        (protocol, metric)
        for metric in artefact.metrics
        for protocol in artefact.protocols
        if any(key[1:] == (protocol, metric) for key in there)
    ]
    width = WIDTH if len(columns) > 2 else 0.3 + 2.7 * len(columns)
    figure = blank_figure(width, HEIGHT * len(datasets) + 0.6)
    grid = figure.add_gridspec(len(datasets), len(columns))
    axes: dict[PanelKey, Axes] = {}
    beside: dict[tuple[str, str], Axes] = {}
    for line, dataset in enumerate(datasets):
        for column, (protocol, metric) in enumerate(columns):
            if (dataset, protocol, metric) not in there:
                continue
            shared = beside.get((dataset, metric)) if share else None
            ax = figure.add_subplot(grid[line, column], sharey=shared)
            if shared is not None:
                ax.tick_params(labelleft=False)
            axes[dataset, protocol, metric] = ax
            beside.setdefault((dataset, metric), ax)
    return figure, axes


def legend(figure: Figure, handles: Sequence[Artist]) -> None:
    """One legend for the whole figure, below the panels, in as many columns as fit."""
    letters = [len(str(handle.get_label())) + _ENTRY_LETTERS for handle in handles]
    for lines in range(1, len(handles) + 1):
        # Entries go down a column first.
        columns = math.ceil(len(handles) / lines)
        widths = [max(letters[start : start + lines]) for start in range(0, len(letters), lines)]
        if sum(widths) <= figure.get_figwidth() * _LETTERS_PER_INCH:
            break
    # The figure grows with the legend, so that panels keep their size.
    figure.set_figheight(figure.get_figheight() + _LEGEND_LINE * max(0, lines - _LEGEND_LINES))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, columnspacing=1.4)


def setting_axis(ax: Axes, values: Sequence[Any]) -> Mapping[Any, float]:
    """Give `ax` the scale for the values of a setting, and return the position of each value.

    Numbers over two decades or more have a log axis, with zero at a separate position; texts keep their
    order.
    """
    if any(isinstance(value, str) for value in values):
        ax.set_xticks(range(len(values)), values, rotation=25, ha="right", rotation_mode="anchor")
        ax.set_xlim(-0.3, len(values) - 0.7)
        return {value: float(index) for index, value in enumerate(values)}
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


def protocol_title(protocol: str) -> str:
    """The title of a protocol in panels."""
    return f"{short_name(protocol)} protocol"


def panel_grid(
    rows: int, columns: int, width: float = 1.9, height: float = 1.9
) -> tuple[Figure, NDArray[np.object_]]:
    """A figure of rows × columns panels, each of `width` × `height` inches."""
    figure = Figure(figsize=(max(3.2, columns * width + 0.6), rows * height + 0.7), layout="constrained")
    return figure, cast("NDArray[np.object_]", figure.subplots(rows, columns, squeeze=False))


def bare(axes: Axes) -> None:
    """Remove the ticks of a panel: a projection has no units."""
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set_visible(True)
        side.set_color("#AAAAAA")


def user_title(artefact: Artefact, dataset: str, protocol: str, user: int) -> str:
    """The title of a user's row of panels."""
    name = short_name(protocol)
    return f"user {user}\n" + (name if len(artefact.datasets) == 1 else f"{dataset}, {name}")


def datasets_and_protocols(artefact: Artefact, groups: RunGroups) -> list[tuple[str, str]]:
    """The datasets and protocols that have runs, in the artefact's order."""
    there = {(dataset, protocol) for _, dataset, protocol in groups}
    return [
        (dataset, protocol)
        for dataset in artefact.datasets
        for protocol in artefact.protocols
        if (dataset, protocol) in there
    ]


def empty() -> Figure:
    """The placeholder of a figure without data."""
    figure = blank_figure(0.5 * WIDTH, 0.6 * HEIGHT)
    figure.text(0.5, 0.5, "none of its datasets is available", ha="center", va="center", color=MUTED)
    return figure


def distinct(values: Iterable[Thing]) -> list[Thing]:
    """Each value once, in the order they come."""
    return list(dict.fromkeys(values))
