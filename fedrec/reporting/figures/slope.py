"""Slope chart: HR@10 of every method under the published and the clean protocol."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrec.audit.differences import EXACT_METRIC, REFERENCE
from fedrec.config.methods import Methods
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import finished_runs, of_one_protocol_seed, stem_of
from fedrec.reporting.diverged import diverged_notes
from fedrec.reporting.figures.chart import write_figure
from fedrec.reporting.figures.figure_data import runs_columns
from fedrec.reporting.figures.labels import fitted, spread, text_width, wrapped
from fedrec.reporting.figures.style import KIND_LOOKS, MUTED, WIDTH, blank_figure, theme
from fedrec.reporting.headline import COUNTER, COUNTER_WORDS, headline, rounds_sentence, seeds_sentence
from fedrec.reporting.method_scores import (
    CLEAN,
    KIND_TITLES,
    METRIC,
    PUBLISHED,
    MethodScore,
    groups_over_seeds,
    method_scores,
    rows_of,
    titles_of,
)
from fedrec.reporting.provenance import origin_sentence, provenance
from fedrec.reporting.tables.table import DIVERGED_MARK
from fedrec.runs.exact import metric_title
from fedrec.runs.method_kinds import METHOD_KINDS, MethodKind
from fedrec.runs.record import RunRecord

LAYOUT = Layout("figure", needs=("runs", "models"), selection="comparison")
NARROW = 3.9
"""Inches across a narrow screen."""
_INK = "#1b1f24"
_LEAST_ROOM = 3.2  # inches of height for the slopes
_LEAST_RUN = 0.7  # inches from one side to the other
_LINE = 1.35  # of a label's height, in its font size
_POINTS = 72  # in an inch
_BEND = 0.26  # inches between the end of a slope and its label
_MARGIN = 0.08
_CUTOFF = 10  # of HR@10
_HEADROOM = 0.2  # inches below the headings
_OWN_MARKERS = "os^DvPX<>p"
"""Markers of lines that begin at the same printed value; their labels show them."""
_LEAST_TOP = {2: 0.1, 3: 0.01}
"""The smallest upper end of a panel, by digits."""


@dataclass(frozen=True)
class Slope:
    """A line of the chart: its value on either side, None without a run."""

    label: str
    kind: MethodKind
    published: float | None
    clean: float | None
    dashed: bool = False
    """Whether it is a level for comparison."""
    bold: bool = False
    marker: str | None = None
    """The marker of its line and labels, if nothing else distinguishes the line."""


@dataclass(frozen=True)
class SlopePanel:
    """Slopes of one metric."""

    slopes: Sequence[Slope]
    heading: str
    chance: float | None = None
    """The level of chance; None without such a line."""
    digits: int = 2
    """The number of decimals."""


@dataclass(frozen=True)
class _Canvas:
    """The geometry of a figure in inches: the ends of slopes, and the heights of values."""

    axes: Axes
    left: float
    right: float
    low: float
    """Height of the value zero, in inches."""
    scale: float
    """Height of a value of one above zero, in inches."""
    top: float
    """Upper end of labels, in inches."""
    font: float
    number: float
    """Width of a number, in inches."""
    marked: float
    """Width of a marker before a name, in inches; zero without markers."""
    digits: int

    def height(self, value: float) -> float:
        return self.low + value * self.scale

    @property
    def line(self) -> float:
        """Height of a label, in inches."""
        return self.font * _LINE / _POINTS


def build(target: Target, project: Project) -> None:
    """Draw the slope chart of a comparison on a dataset."""
    records = of_one_protocol_seed(finished_runs(target, project))
    scores = method_scores(records, project.methods)
    origin = origin_sentence(provenance(records))
    caption = "\n".join([slope_caption(scores, origin), *_diverged(records, project.methods)])
    with theme():
        write_figure(stem_of(target, project), method_scores_figure(scores), rows_of(scores), caption)


def _diverged(records: Sequence[RunRecord], methods: Methods) -> list[str]:
    """A note on the methods that diverged."""
    titles = titles_of(records, methods)
    rows = [
        {"title": titles[method], "protocol": protocol, **runs_columns(group)}
        for (_, protocol, _, method), group in groups_over_seeds(records).items()
    ]
    return diverged_notes(rows, "title", "protocol")


def slope_caption(scores: Sequence[MethodScore], origin: str) -> str:
    """The caption of the slope chart, with the runs behind it."""
    chance = " Dotted: chance." if any(score.chance is not None for score in scores) else ""
    exact = (
        " The lower panel shows exact HR@10, of the runs that store ranks among all items."
        if _exact_values(scores)
        else ""
    )
    lines = [
        f"{sampled_words(scores)} on {scores[0].dataset}, {scores[0].users:,} users. Each line is a method "
        f"with the {_settings_text(scores)}, from the published protocol, which leaks the held-out item, to "
        f"the clean protocol, which does not. Colours: who keeps the item table.{chance}{exact}",
        " ".join(part for part in (seeds_sentence(scores), rounds_sentence(scores)) if part),
        origin,
    ]
    return "\n".join(lines)


def slope_description(scores: Sequence[MethodScore]) -> str:
    """The alternative text of the chart: the finding, and the lines."""
    return " ".join([*headline(scores), "A slope chart from the published protocol to the clean one."])


def sampled_words(scores: Sequence[MethodScore]) -> str:
    """The metric with the number of candidates, if all runs have the same number."""
    levels = {score.chance for score in scores if score.chance is not None}
    if len(levels) != 1:
        return metric_title(METRIC)
    return f"{metric_title(METRIC)} among {round(_CUTOFF / levels.pop()) - 1} candidates"


def has_counter(scores: Sequence[MethodScore]) -> bool:
    """Whether draw-counter is among the methods."""
    return any(score.backbone == COUNTER for score in scores)


def method_scores_figure(scores: Sequence[MethodScore], *, narrow: bool = False) -> Figure:
    """The slopes of method scores on one dataset, above those of the exact metric if runs have it."""
    where = f"on {scores[0].dataset}, {scores[0].users:,} users"
    exact = _exact_values(scores)
    panels = [
        sampled_panel(scores, f"{metric_title(METRIC)} {where}, {_settings_text(scores)}", narrow=narrow)
    ]
    if exact:
        slopes = _slopes(scores, exact, narrow=narrow)
        panels.append(SlopePanel(slopes, f"{metric_title(EXACT_METRIC)} {where}", digits=3))
    return slope_figure(panels, narrow=narrow, note=COUNTER_WORDS if has_counter(scores) else "")


def sampled_panel(scores: Sequence[MethodScore], heading: str, *, narrow: bool) -> SlopePanel:
    """The slopes of sampled HR@10."""
    values = {(score.protocol, score.method): score.value for score in scores}
    levels = {score.chance for score in scores} - {None}
    return SlopePanel(
        _slopes(scores, values, narrow=narrow), heading, levels.pop() if len(levels) == 1 else None
    )


def _exact_values(scores: Sequence[MethodScore]) -> dict[tuple[str, str], float]:
    """Exact HR@10 by protocol and method; empty if no method has it under both protocols."""
    values = {(score.protocol, score.method): score.exact for score in scores if score.exact is not None}
    both = any((PUBLISHED, method) in values for protocol, method in values if protocol == CLEAN)
    return values if both else {}


def _settings_text(scores: Sequence[MethodScore]) -> str:
    """The origin of the methods' settings."""
    return f"settings of {', '.join(sorted({score.paper for score in scores}))}"


def _slopes(
    scores: Sequence[MethodScore], values: Mapping[tuple[str, str], float], *, narrow: bool
) -> list[Slope]:
    """The slopes of the methods that have a value under any protocol."""
    diverged = {score.method for score in scores if score.diverged}
    slopes = [
        Slope(
            _label(score, scores, narrow=narrow) + (DIVERGED_MARK if method in diverged else ""),
            score.kind,
            values.get((PUBLISHED, method)),
            values.get((CLEAN, method)),
            dashed=score.backbone == REFERENCE,
            bold=score.backbone == COUNTER,
        )
        for method, score in {score.method: score for score in scores}.items()
        if (PUBLISHED, method) in values or (CLEAN, method) in values
    ]
    return _with_markers(slopes)


def _with_markers(slopes: Sequence[Slope]) -> list[Slope]:
    """The slopes, with a distinct marker for each of several that begin at the same printed value."""
    begins = Counter(_printed(slope) for slope in slopes)
    alike = sorted(
        (index for index, slope in enumerate(slopes) if begins[_printed(slope)] > 1 and slope.published),
        key=lambda index: (slopes[index].published, slopes[index].clean or 0.0),
        reverse=True,
    )
    markers = {index: _OWN_MARKERS[rank % len(_OWN_MARKERS)] for rank, index in enumerate(alike)}
    return [replace(slope, marker=markers.get(index)) for index, slope in enumerate(slopes)]


def _printed(slope: Slope) -> str | None:
    return None if slope.published is None else f"{slope.published:.2f}"


def _label(score: MethodScore, scores: Sequence[MethodScore], *, narrow: bool) -> str:
    """The label of a line; on a narrow screen without changed settings, if it stays unique."""
    if not narrow:
        return f"{score.title} (no model)" if score.backbone == COUNTER else score.title
    plain = score.title.partition("[")[0]
    alike = {other.title for other in scores if other.title.partition("[")[0] == plain}
    return plain if len(alike) == 1 else score.title


def slope_figure(panels: Sequence[SlopePanel], *, narrow: bool = False, note: str = "") -> Figure:
    """Draw panels below each other: a line per method between two columns of labels, coloured by kind.

    Labels never overlap. A note below has small print.
    """
    font = 7.6 if narrow else 8.0
    every = [slope for panel in panels for slope in panel.slopes]
    kinds = [kind for kind in METHOD_KINDS if any(slope.kind == kind for slope in every)]
    key_lines = len(kinds) if narrow else (len(kinds) + 1) // 2
    line = font * _LINE / _POINTS
    width = NARROW if narrow else WIDTH
    titles = [wrapped(panel.heading, width - 2 * _MARGIN, font + 1, bold=True) for panel in panels]
    heads = [
        line * ((key_lines if index == 0 else 0) + 3.2 + 1.15 * (len(title) - 1)) + _HEADROOM
        for index, title in enumerate(titles)
    ]
    small = wrapped(note, width - 2 * _MARGIN, font - 0.6) if note else []
    foot = line * (len(small) + 0.5 * bool(small))
    rooms = [max(_LEAST_ROOM, 1.25 * line * (len(panel.slopes) + 1)) for panel in panels]
    height = sum(heads) + sum(rooms) + line * len(panels) + foot
    number = max(text_width(f"{0:.{panel.digits}f}", font, bold=True) for panel in panels) + 0.07
    marked = 0.85 * line if any(slope.marker for slope in every) else 0.0
    most = (width - _LEAST_RUN) / 2 - number - _BEND - marked - _MARGIN
    fitting = {one.label: fitted(one.label, most, font, bold=one.bold) for one in every}
    widest = max((text_width(fitting[one.label], font, bold=one.bold) for one in every), default=0.0)
    side = widest + number + _BEND + marked + _MARGIN
    figure = blank_figure(width, height)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(0, width), ylim=(0, height))
    axes.set_axis_off()
    top = height
    for index, (panel, title, head, room) in enumerate(zip(panels, titles, heads, rooms, strict=True)):
        low = top - head - room
        values = [value for one in panel.slopes for value in (one.published, one.clean) if value is not None]
        scale = room / max(*values, panel.chance or 0.0, _LEAST_TOP[panel.digits])
        canvas = _Canvas(axes, side, width - side, low, scale, low + room, font, number, marked, panel.digits)
        _draw_heading(canvas, title, kinds if index == 0 else (), top, columns=1 if narrow else 2)
        _draw_panel(canvas, [replace(one, label=fitting[one.label]) for one in panel.slopes], panel.chance)
        top = low - line
    for index, text in enumerate(small):
        axes.text(_MARGIN, top - line * (index + 0.3), text, fontsize=font - 0.6, color=MUTED, va="center")
    return figure


def _draw_panel(canvas: _Canvas, slopes: Sequence[Slope], chance: float | None) -> None:
    if chance is not None:
        level = canvas.height(chance)
        canvas.axes.plot(
            [canvas.left, canvas.right], [level, level], color=MUTED, linewidth=0.9, linestyle=(0, (1, 2))
        )
    for slope in sorted(slopes, key=lambda one: _ORDER[one.kind]):
        _draw_slope(canvas, slope)
    _draw_labels(canvas, [(one.published, one) for one in slopes], canvas.left, -1)
    ends: list[tuple[float | None, Slope]] = [(one.clean, one) for one in slopes]
    level_of_chance = Slope("chance", "reference", None, chance, dashed=True)
    _draw_labels(canvas, [*ends, (chance, level_of_chance)], canvas.right, 1)


_ORDER = {kind: place for place, kind in enumerate(("reference", "centralised", "federated", "personalised"))}
"""The drawing order of kinds."""


def _draw_heading(
    canvas: _Canvas, heading: Sequence[str], kinds: Sequence[MethodKind], height: float, columns: int
) -> None:
    """Write the heading, the legend of the kinds, and the names of the two sides."""
    axes, line, font = canvas.axes, canvas.line, canvas.font
    y = height - 0.75 * line + 1.15 * line
    for text in heading:
        y -= 1.15 * line
        axes.text(_MARGIN, y, text, fontsize=font + 1, color=_INK, va="center", weight="bold")
    width = (axes.get_xlim()[1] - 2 * _MARGIN) / columns
    for index, kind in enumerate(kinds):
        x, at = _MARGIN + (index % columns) * width, y - line * (1.35 + index // columns)
        look = KIND_LOOKS[kind]
        axes.plot([x, x + 0.15, x + 0.3], [at] * 3, linewidth=1.8, markersize=3.6, **look.line(markevery=[1]))  # type: ignore[arg-type]
        axes.text(x + 0.38, at, KIND_TITLES[kind], fontsize=font, color=look.colour, va="center")
    top = canvas.top + _HEADROOM
    for x, name, align in ((canvas.left, PUBLISHED, "right"), (canvas.right, CLEAN, "left")):
        axes.plot([x, x], [canvas.low - 0.5 * line, canvas.top], color="#c9ced6", linewidth=0.7, zorder=0)
        axes.text(
            x, top, f"{name} protocol", fontsize=font + 0.5, color=_INK, va="center", ha=align, weight="bold"
        )


def _draw_slope(canvas: _Canvas, slope: Slope) -> None:
    ends = [
        (x, canvas.height(value))
        for x, value in ((canvas.left, slope.published), (canvas.right, slope.clean))
        if value is not None
    ]
    look = KIND_LOOKS[slope.kind]
    look = look if slope.marker is None else replace(look, marker=slope.marker)
    size = 3.6 if slope.marker is None else 4.6
    strong = slope.bold or slope.kind == "personalised"
    dash = {"linestyle": (0, (5, 2.2))} if slope.dashed else {}
    canvas.axes.plot(
        *zip(*ends, strict=True),
        **look.line(linewidth=1.7 if strong else 1.2, markersize=size, markeredgewidth=0.5, **dash),  # type: ignore[arg-type]
    )


def _draw_labels(canvas: _Canvas, ends: Sequence[tuple[float | None, Slope]], x: float, side: int) -> None:
    """Write value and name at each end of a slope, with a leader line if the label had to move."""
    # Of lines with the same begin, the one that ends higher has the higher label.
    there = sorted(
        ((value, slope) for value, slope in ends if value is not None),
        key=lambda end: (round(end[0], canvas.digits), end[1].clean or 0.0),
    )
    wanted = [canvas.height(round(value, canvas.digits)) for value, _ in there]
    positions = spread(wanted, canvas.line, canvas.low - 0.5 * canvas.line, canvas.top)
    align = "right" if side < 0 else "left"
    for (value, slope), position in zip(there, positions, strict=True):
        at = canvas.height(value)
        colour = KIND_LOOKS[slope.kind].colour
        bent = [x + side * 0.05, x + side * 0.1, x + side * (_BEND - 0.06), x + side * (_BEND - 0.02)]
        canvas.axes.plot(bent, [at, at, position, position], color=colour, linewidth=0.5, alpha=0.55)
        weight = "bold" if slope.bold else "normal"
        beside = {"va": "center", "ha": align, "fontsize": canvas.font, "color": colour, "weight": weight}
        canvas.axes.text(x + side * _BEND, position, f"{value:.{canvas.digits}f}", **beside)  # type: ignore[arg-type]
        name = x + side * (_BEND + canvas.number)
        if slope.marker is not None:
            canvas.axes.plot(
                [name + side * 0.4 * canvas.marked],
                [position],
                marker=slope.marker,
                markersize=4.2,
                color=colour,
                linestyle="none",
                markeredgewidth=0.5,
            )
        name += side * canvas.marked
        canvas.axes.text(name, position, slope.label, **beside)  # type: ignore[arg-type]
