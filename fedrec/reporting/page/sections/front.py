"""The front figure on the page: the picture, and its numbers as a table."""

from dataclasses import dataclass

from fedrec.reporting.figures.style import theme
from fedrec.reporting.figures.svg import svg_of
from fedrec.reporting.front_figure import Front, front_figure
from fedrec.reporting.method_scores import CLEAN, KIND_LABELS, PUBLISHED, under
from fedrec.reporting.page.cells import PageTable, RunLinks, page_table
from fedrec.reporting.page.files import Image, svg_image
from fedrec.reporting.page.sections.papers import KIND_CLASSES
from fedrec.reporting.tables.table import ReportColumn, ReportTable


@dataclass(frozen=True)
class ShownFront:
    """The front figure on the page."""

    image: Image
    numbers: PageTable


def shown_front(front: Front, links: RunLinks) -> ShownFront:
    """Draw the front figure; every number in its table links to its runs."""
    with theme():
        wide, narrow = (svg_of(front_figure(front, narrow=narrow)) for narrow in (False, True))
    return ShownFront(svg_image(wide, narrow, front.description, front.caption), _numbers(front, links))


def _numbers(front: Front, links: RunLinks) -> PageTable:
    sides = {PUBLISHED: under(front.scores, PUBLISHED), CLEAN: under(front.scores, CLEAN)}
    rows = [
        {
            "method": one.title,
            "kind": KIND_LABELS[one.kind],
            **{protocol: by_method[method].value for protocol, by_method in sides.items()},
            **{f"{protocol}_runs": by_method[method].runs.split() for protocol, by_method in sides.items()},
            "paper": one.paper,
        }
        for method, one in sides[CLEAN].items()
    ]
    table = ReportTable(
        f"HR@10 of the front figure. {front.settings}.",
        [
            ReportColumn("method", "method", align="left"),
            ReportColumn(PUBLISHED, PUBLISHED, "{:.4f}"),
            ReportColumn(CLEAN, CLEAN, "{:.4f}"),
            ReportColumn("kind", "kind", align="left"),
            ReportColumn("paper", "runs filed under", align="left"),
        ],
        rows,
    )
    return page_table("front-numbers", table, links, {"kind": KIND_CLASSES})
