"""The audit as the report shows it: which claims survive, and the tables and the figure that say why.

Everything comes from the csv files, through the functions that made the tables beside them, so that the page
and the files say the same.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedrec.audit.significance import ALPHA
from fedrec.audit.verdicts import HOLDS, JUDGED_BY, REVERSED, UNTESTED, VERDICTS, WEAKER
from fedrec.config.papers import Paper
from fedrec.errors import ConfigurationError, did_you_mean
from fedrec.reporting.audit_granularity import granularity_table
from fedrec.reporting.exposures import exposure_tables
from fedrec.reporting.ladders import ladder_tables, told_of
from fedrec.reporting.panels import distinct
from fedrec.reporting.report_artefacts import (
    FIGURE_FORMS,
    TABLE_FORMS,
    Image,
    image_of,
    links_of,
    telling,
)
from fedrec.reporting.results import provenance_of_rows
from fedrec.reporting.significances import significance_tables
from fedrec.reporting.tables import Row, Table
from fedrec.reporting.upload_tables import upload_tables
from fedrec.reporting.verdicts import ALL, EFFECTS, verdict_tables
from fedrec.reporting.views import View, read_csv, typed, view

MARKS = {HOLDS: "holds", WEAKER: "weaker", REVERSED: "reversed", UNTESTED: "untested"}
"""The class of each verdict in the page's style."""


@dataclass(frozen=True)
class Kind:
    """A table of the audit: what it is called on the page, how to read it, and how its rows are shown."""

    title: str
    reading: str
    tables: Callable[[Sequence[Row]], Sequence[Table]]
    rule: str = ""
    """What its numbers are and what follows from them, where the captions do not say it."""
    figure: str | None = None
    """The figure that is drawn from the same rows."""
    folds: bool = False
    """Whether tables of other protocols than the clean one are folded: there are many."""


@dataclass(frozen=True)
class Count:
    """What became of the claims of one paper, each counted once for every dataset it was tested on."""

    paper: str
    claims: int
    tested: int
    """Claims with a verdict on one dataset at the least."""
    datasets: Sequence[str]
    """Those with a verdict on one claim at the least: what is counted."""
    verdicts: Sequence[tuple[str, str, int]]
    """Each verdict, its class and how often it was reached on these datasets."""


@dataclass(frozen=True)
class Audited:
    """A table of the audit on the page."""

    name: str
    title: str
    reading: str
    rule: str
    counts: Sequence[Count]
    shown: Sequence[View]
    folded: Sequence[View]
    links: Sequence[tuple[str, str]]
    """Ending and relative address of each file."""
    image: Image | None
    image_links: Sequence[tuple[str, str]]


KINDS = {
    "verdicts": Kind(
        "Verdicts on the papers’ claims",
        "Each row is one claim on one dataset: the advantage that the paper prints, the one we find under "
        "its own protocol, which leaks, and the one under the clean protocol, with intervals over users. "
        "The verdict follows from the clean interval and the printed number by one rule, never by hand. "
        "“Reversed” speaks of a claim under this protocol, with the paper’s settings; it does not say that a "
        "method cannot be made to work.",
        lambda rows: verdict_tables(rows, on_page=True),
        rule=f"Effects are {EFFECTS}",
    ),
    "audit_protocols": Kind(
        "From published to clean, one switch at a time",
        "Columns are protocols, from published to clean: “only” changes one thing of the published protocol, "
        "“up to” this one and all before it. A method whose number falls where nothing but the pool of "
        "negatives is changed owed the difference to the leak.",
        lambda rows: ladder_tables(rows, told_of(rows)),
        figure="audit_ranks",
    ),
    "audit_exposure": Kind(
        "Exposure: what the draws of negatives give away",
        "A held-out item that is never drawn, while its rivals are drawn again and again, can be told by "
        "that alone. The nearer the correlation of scores and draws comes to -1, the more a model merely "
        "remembers its draws. Hits that vanish once held-out items may be drawn were owed to the leak.",
        lambda rows: exposure_tables(rows, provenance_of_rows(rows)),
    ),
    "audit_significance": Kind(
        "Significance: which differences are more than chance",
        "Every method is compared with the best of its table and with popularity, user by user. A difference "
        f"whose interval holds 0, or whose p is {ALPHA} or more, is no evidence that one method is better. "
        "Conclusions come from the clean protocol; the tables of others are folded.",
        lambda rows: significance_tables(rows, provenance_of_rows(rows)),
        folds=True,
    ),
    "audit_uploads": Kind(
        "Uploads: what a server can infer",
        "An attacker on the server ranks all items by what a client sent, and guesses which of them the "
        "client trained on: AUC 0.5 is guessing, 1 is complete knowledge. Beside it stands what noise takes "
        "from a method. Noise protects little where AUC stays high, and costs too much where the hits go.",
        lambda rows: upload_tables(rows, provenance_of_rows(rows)),
    ),
    "audit_granularity": Kind(
        "Granularity: are printed numbers averages?",
        "A hit ratio of one run over n users is a multiple of 1/n; an average of five runs need not be one. "
        "Where nearly all printed numbers are such multiples, though few would be by chance, they fit single "
        "runs, or five that are all the same. It is a question to the authors, not an accusation.",
        lambda rows: [granularity_table(rows)],
    ),
}
"""The tables of the audit by name, in the order of the page; of one paper alone as `<name>_<paper>`."""


def audited(results: Path, names: Sequence[str], papers: Mapping[str, Paper], out: Path) -> list[Audited]:
    """The tables of the audit in `names`, from their files below `results`, for the page `out`.

    The answer comes first: tables are in the order of `KINDS`, and of `names` where they are of one kind.
    """
    known = {f"{kind}{of}": (kind, of) for kind in KINDS for of in ("", *(f"_{paper}" for paper in papers))}
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"'{name}' is no table of the audit. There are {', '.join(KINDS)}; one of a single paper "
                f"ends in its name, like verdicts_pfedclr.{did_you_mean(name, known)}"
            )
    order = list(KINDS)
    chosen = sorted(dict.fromkeys(names), key=lambda name: order.index(known[name][0]))
    return [_audited(results, *known[name], papers, out) for name in chosen]


def _audited(results: Path, kind: str, of: str, papers: Mapping[str, Paper], out: Path) -> Audited:
    """One table; `of` is what its name ends in where it is of one paper alone."""
    about, stem = KINDS[kind], results / "tables" / f"{kind}{of}"
    path = stem.with_name(f"{stem.name}.csv")
    with telling(path):
        rows = [{key: typed(key, text) for key, text in row.items()} for row in read_csv(path)]
        tables = about.tables(rows)
        counts = list(_counts(rows, papers)) if kind == "verdicts" else []
    figure = None if about.figure is None else results / "figures" / f"{about.figure}{of}"
    return Audited(
        stem.name,
        f"{about.title}, {papers[of[1:]].title} alone" if of else about.title,
        about.reading,
        about.rule,
        counts,
        [found for table, found in _views(stem.name, tables) if not (about.folds and _is_other(table))],
        [found for table, found in _views(stem.name, tables) if about.folds and _is_other(table)],
        links_of(stem, TABLE_FORMS, out),
        None if figure is None else image_of(figure, "Lines of ranks, one for each method."),
        [] if figure is None else links_of(figure, FIGURE_FORMS, out),
    )


def _views(name: str, tables: Sequence[Table]) -> Iterator[tuple[Table, View]]:
    for place, table in enumerate(tables, start=1):
        best = [column.key for column in table.columns if column.ranked]
        yield table, view(f"{name}-{place}", table, best=best, marks={"verdict": MARKS})


def _is_other(table: Table) -> bool:
    """Whether a table of one protocol is not of the clean one."""
    return bool(table.rows[0]["protocol"] != "clean")


def _counts(rows: Sequence[Row], papers: Mapping[str, Paper]) -> Iterator[Count]:
    """What became of the claims of each paper, by the metric that decides."""
    for paper in distinct(str(row["paper"]) for row in rows):
        own = [
            row
            for row in rows
            if (row["paper"], row["metric"]) == (paper, JUDGED_BY) and row["dataset"] != ALL
        ]
        tested = [row for row in own if row["verdict"] != UNTESTED]
        datasets = distinct(str(row["dataset"]) for row in tested)
        reached = Counter(row["verdict"] for row in own if row["dataset"] in datasets)
        yield Count(
            papers[paper].title if paper in papers else paper,
            len({row["claim"] for row in own}),
            len({row["claim"] for row in tested}),
            datasets,
            [(one, MARKS[one], reached[one]) for one in VERDICTS if one != UNTESTED or reached[one]],
        )
