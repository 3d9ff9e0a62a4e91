"""Curves, rings and labels that several layouts share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from fedrec.config.protocol import short_name
from fedrec.reporting.figures.panels import PanelKey
from fedrec.reporting.figures.style import MUTED, Look
from fedrec.reporting.tables.table import Row
from fedrec.runs.exact import metric_title

_CURVE_MARKERS = 7
"""Markers on a curve, so that it can be distinguished without colour."""
_RING = {
    "linestyle": "none",
    "marker": "o",
    "markersize": 7.5,
    "markerfacecolor": "none",
    "markeredgecolor": MUTED,
    "zorder": 5,
}


def series_of(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], dict[PanelKey, list[Row]]]:
    """Rows grouped by curve and then by panel."""
    series: dict[tuple[Any, ...], dict[PanelKey, list[Row]]] = {}
    for row in rows:
        lines = series.setdefault(tuple(row[name] for name in names), {})
        lines.setdefault(panel_of(row), []).append(row)
    return series


def panel_of(row: Row) -> PanelKey:
    """The panel that shows a row."""
    return row["dataset"], row["protocol"], row["metric"]


def draw_curve(ax: Axes, points: Sequence[Row], look: Look, label: str, shift: float) -> None:
    """Draw a curve over x with a band of one deviation; `shift` (0 to 1) offsets its markers."""
    x, mean = [row["x"] for row in points], [row["mean"] for row in points]
    every = max(len(x) // _CURVE_MARKERS, 1)
    ax.plot(x, mean, **look.line(label=label, markevery=(int(shift * every), every)))  # type: ignore[arg-type]
    if points[0]["sd"] is not None:
        # Once all seeds but one have diverged, there is no deviation.
        low, high = ([row["mean"] + sign * (row["sd"] or 0.0) for row in points] for sign in (-1, 1))
        ax.fill_between(x, low, high, color=look.colour, alpha=0.18, linewidth=0)
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))


def draw_swept(ax: Axes, points: Iterable[tuple[float, Row]], look: Look, label: str) -> None:
    """Draw a line through the values of a setting, with bars of one deviation."""
    ordered = sorted(points, key=lambda point: point[0])
    x, mean = [position for position, _ in ordered], [row["mean"] for _, row in ordered]
    sd = [row["sd"] for _, row in ordered]
    errors = None if None in sd else sd
    ax.errorbar(x, mean, yerr=errors, capsize=1.5, elinewidth=0.7, **look.line(label=label))  # type: ignore[arg-type]


def draw_rings(ax: Axes, points: Sequence[tuple[float, float]]) -> None:
    """Draw a ring around each point."""
    if points:
        ax.plot(*zip(*points, strict=True), **_RING)  # type: ignore[arg-type]


def ring_handle(label: str) -> Line2D:
    """The legend entry of rings."""
    return Line2D([], [], label=label, **_RING)  # type: ignore[arg-type]


def label_panels(axes: Mapping[PanelKey, Axes], x_label: str, metrics: Sequence[str]) -> None:
    """Write titles on all panels, x labels below each column and y labels before each metric."""
    lowest = {(protocol, metric): dataset for dataset, protocol, metric in axes}
    named: set[tuple[str, str]] = set()
    for (dataset, protocol, metric), ax in axes.items():
        ax.set_title(f"{dataset}, {short_name(protocol)}")
        if lowest[protocol, metric] == dataset:
            ax.set_xlabel(x_label)
        if (dataset, metric) not in named and metric in metrics:
            ax.set_ylabel(metric_title(metric))
            named.add((dataset, metric))
