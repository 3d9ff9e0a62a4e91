"""Ranks of methods at each step from the published protocol to the clean one, one switch after the other."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from fedrec.audit.protocols import ranked, step_heading, step_rows
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import stem_of, steps_of
from fedrec.reporting.diverged import diverged_notes, mark_of
from fedrec.reporting.figures.chart import write_figure
from fedrec.reporting.figures.panels import distinct
from fedrec.reporting.figures.style import WIDTH, Look, blank_figure, looks, theme
from fedrec.reporting.provenance import origin_sentence, provenance_of_rows
from fedrec.reporting.tables.table import Row

LAYOUT = Layout("figure", needs=("runs",), selection="protocol_steps")
_PER_METHOD = 0.2  # inches of height
_IN_A_ROW = 3
"""The most panels in a row: with more, the names beside panels would overlap."""
_NAME_SHARE = 0.3
"""The share of a panel's width for names on either side."""


def build(target: Target, project: Project) -> None:
    """Draw how ranks move over the steps of a target."""
    audited, seeds = steps_of(target)
    rows = step_rows(project.results, audited, project.methods, project.protocols, seeds, set(target.runs))
    drawn = rows_drawn(rows)
    caption = (
        "Ranks of methods by test HR@10, from the published protocol to the clean one, one switch after the "
        "other (docs/protocols.md explains each), among those that have all steps; 1 is the best, equal "
        "numbers share a rank.\n"
        f"{origin_sentence(provenance_of_rows(rows))}\n"
    )
    titled = [{**row, "step": step_heading(row["step"])} for row in _at_steps(rows)]
    caption += "".join(f"{note}\n" for note in diverged_notes(titled, "title", "dataset", "step"))
    with theme():
        write_figure(stem_of(target, project), rank_figure(drawn), drawn, caption)


def rows_drawn(rows: Sequence[Row]) -> list[Row]:
    """The rows of the figure: the steps that add one switch after the other, for methods with all steps.

    Ranks are computed among these: a method that lacks a step would shift the others there.
    """
    drawn = [row for row in _at_steps(rows) if row["rank"] is not None]
    steps = Counter((row["dataset"], row["method"]) for row in drawn)
    most = {dataset: max(steps[key] for key in steps if key[0] == dataset) for dataset, _ in steps}
    at_steps: dict[tuple[str, str], list[Row]] = {}
    for row in drawn:
        if steps[row["dataset"], row["method"]] == most[row["dataset"]]:
            at_steps.setdefault((row["dataset"], row["step"]), []).append(row)
    return [row for at_step in at_steps.values() for row in ranked(at_step)]


def _at_steps(rows: Sequence[Row]) -> list[Row]:
    """The rows of the steps from the published protocol to the clean one, one after the other."""
    return [row for row in rows if not str(row["step"]).startswith("only-")]


def rank_figure(rows: Sequence[Row]) -> Figure:
    """A panel per dataset: a line per method, from its rank under `published` to the one under `clean`."""
    datasets = distinct(row["dataset"] for row in rows)
    count = max(len(distinct(row["method"] for row in rows)), *(row["rank"] for row in rows))
    columns = min(len(datasets), _IN_A_ROW)
    lines = -(-len(datasets) // columns)
    figure = blank_figure(WIDTH, lines * (0.7 + _PER_METHOD * max(count, 5)))
    look = looks(row["method"] for row in rows)
    for number, dataset in enumerate(datasets, start=1):
        ax = figure.add_subplot(lines, columns, number)
        _draw_panel(ax, [row for row in rows if row["dataset"] == dataset], look)
        ax.set_title(dataset)
    return figure


def _draw_panel(ax: Axes, rows: Sequence[Row], look: Mapping[str, Look]) -> None:
    names = distinct(row["step"] for row in rows)
    for method in distinct(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        ranks = [row["rank"] for row in own]
        ax.plot(range(len(own)), ranks, label=own[0]["title"], **look[method].line())  # type: ignore[arg-type]
    first = {row["method"]: row for row in rows if row["step"] == names[0]}
    last = {row["method"]: row for row in rows if row["step"] == names[-1]}
    between = max(1, len(names) - 1)
    margin = _NAME_SHARE * between / (1 - 2 * _NAME_SHARE)
    gap = 0.1 * margin
    for ends, x, side in ((first, -gap, "right"), (last, len(names) - 1 + gap, "left")):
        for position, title in _places(ends.values()):
            ax.text(x, position, title, ha=side, va="center", fontsize=5.5)
    # Steps are close: on a flatter axis their names would touch.
    headings = [step_heading(name) for name in names]
    ax.set_xticks(range(len(names)), headings, rotation=45, ha="right", rotation_mode="anchor")
    ax.set_xlim(-margin, len(names) - 1 + margin)
    ax.set_ylim(max(len(first), *(row["rank"] for row in rows)) + 0.6, 0.4)
    ax.set_yticks([])
    ax.grid(visible=False)


def _places(rows: Iterable[Row]) -> Iterator[tuple[int, str]]:
    """The position of each name: at its rank, or below the others that share this rank."""
    shared: Counter[int] = Counter()
    for row in rows:
        yield row["rank"] + shared[row["rank"]], f"{row['title']}{mark_of(row)}"
        shared[row["rank"]] += 1
