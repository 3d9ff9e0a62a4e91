"""Curricula: the strength of FedRAP's penalties in each round, computed by the method's own code."""

from collections.abc import Iterator, Sequence

from matplotlib.figure import Figure

from fedrec.config.methods import Methods, resolve
from fedrec.config.papers import Artefact
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures.chart import Drawn, build_figure, chart
from fedrec.reporting.figures.drawing import draw_curve
from fedrec.reporting.figures.panels import distinct, legend
from fedrec.reporting.figures.style import HEIGHT, WIDTH, blank_figure, looks
from fedrec.reporting.tables.table import Row
from fedrec.runs.registry import make_method

LAYOUT = Layout("figure", needs=("models",), models=("fedrap",))
SHOWN_CURRICULA = ("tanh", "fixed", "sin", "square", "frac")
SCHEDULES = ("paper", "code")
_STRENGTH, _ROUNDS = 0.1, 100
SHOWN = (
    "The strength of FedRAP's penalties in each round for v = 0.1, by the formulas of its paper and by those "
    "of its official code. Computed without training."
)


def build(target: Target, project: Project) -> None:
    """Draw the curricula."""
    build_figure(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """The figure, its rows and its caption."""
    return chart(subject, list(curriculum_rows(subject.methods)), _figure_of, SHOWN)


def curriculum_rows(methods: Methods) -> Iterator[Row]:
    """One row per schedule, curriculum and round."""
    settings, _, _ = resolve(methods, "fedrap", "fedrap", "")
    for schedule in SCHEDULES:
        for curriculum in SHOWN_CURRICULA:
            changed = {"schedule": schedule, "curriculum": curriculum, "apart": _STRENGTH}
            method = make_method("fedrap", settings | changed, items=1)
            name = "fedrap" if curriculum == SHOWN_CURRICULA[0] else f"fedrap[curriculum={curriculum}]"
            for round_ in range(1, _ROUNDS + 1):
                yield {
                    "schedule": schedule, "method": name, "label": curriculum, "axis": "round", "x": round_,
                    "metric": "strength", "mean": method.strengths(round_)[0],  # type: ignore[union-attr]
                }  # fmt: skip


def _figure_of(_artefact: Artefact, rows: Sequence[Row]) -> Figure:
    """One panel for the paper's formulas and one for the code's."""
    schedules = distinct(row["schedule"] for row in rows)
    look = looks(row["method"] for row in rows)
    figure = blank_figure(0.8 * WIDTH, 1.3 * HEIGHT + 0.4)
    grid = figure.subplots(1, len(schedules), sharex=True, sharey=True, squeeze=False)[0]
    names = distinct((row["method"], row["label"]) for row in rows)
    for schedule, ax in zip(schedules, grid, strict=True):
        for number, (method, label) in enumerate(names):
            points = [row for row in rows if row["schedule"] == schedule and row["method"] == method]
            draw_curve(ax, [{**row, "sd": None} for row in points], look[method], label, number / len(names))
        ax.set_title(f"as the {schedule} writes them")
        ax.set_xlabel("round")
    grid[0].set_ylabel("strength, v = 0.1")
    legend(figure, [look[method].handle(label) for method, label in names])
    return figure
