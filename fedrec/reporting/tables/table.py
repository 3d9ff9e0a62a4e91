"""One table in four forms: csv for programs, markdown for reading, LaTeX for papers, json for the page.

The csv has every row and column. Its column `runs` has the folders of the runs behind a row, relative to the
results and separated by blanks (`runs_against` for the second side of a comparison). The json has the tables
as shown, with numbers as numbers, and the text by which the page introduces them.
"""

import csv
import io
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from fedrec.files.atomic import write_text
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.reporting.built_files import reading_built

Row = Mapping[str, Any]
PRINTED = "_printed"
"""Ending of the keys of columns with printed numbers."""
RUNS = "runs"
AGAINST = "runs_against"
MISSING = "–"
DIVERGED_MARK = "†"
"""The mark behind the number of a run that diverged, or in its place; such a cell is never marked as best."""
_WIDEST = 24
"""The most characters to which cells of markdown are padded."""
_LATEX_SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "±": r"$\pm$",
    DIVERGED_MARK: r"$\dagger$",
}


@dataclass(frozen=True)
class ReportColumn:
    """A column of a shown table: the key in the rows, the heading, and how values are spelt."""

    key: str
    heading: str
    form: str = "{}"
    align: Literal["left", "right"] = "right"
    ranked: bool = False
    """Whether the highest and the second highest value of the column are marked."""

    def spelled(self, row: Row) -> str:
        """The cell's text with the deviation and mark of its row; a dash without a value."""
        value, sd = row.get(self.key), row.get(f"{self.key}_sd")
        mark: str = row.get(f"{self.key}_mark", "")
        if value is None:
            return f"{MISSING}{mark}"
        form = self._form_in(row)
        deviation = "" if sd is None else " ± " + form.format(sd)
        return f"{form.format(value)}{deviation}{mark}"

    def _form_in(self, row: Row) -> str:
        """The format of the numbers of a row, which may have its own; differences keep their signs."""
        own: str | None = row.get("form") if self.align == "right" else None
        if own is None:
            return self.form
        return own.replace("{:", "{:+") if self.form.startswith("{:+") else own

    def takes_part(self, row: Row) -> bool:
        """Whether the number of a row competes for best and second best."""
        return row.get(self.key) is not None and not row.get("unranked") and not self.is_diverged(row)

    def is_diverged(self, row: Row) -> bool:
        """Whether a run behind the number of a row diverged."""
        return str(row.get(f"{self.key}_mark", "")).startswith(DIVERGED_MARK)


@dataclass(frozen=True)
class ReportTable:
    """A table for readers: a caption that states how its numbers came about, columns, rows, notes.

    Further keys of a row: `unranked` excludes it from best and second best, `form` is the format of its
    numbers, `runs` and `runs_against` are the folders of its runs, and `KEY_runs` those of one number.
    """

    caption: str
    columns: Sequence[ReportColumn]
    rows: Sequence[Row]
    notes: Sequence[str] = ()
    part: str = ""
    """The part of its target that it shows, such as a dataset; used for its anchor on the page."""
    folds: bool = False
    """Whether the page states the value of a constant text column once, above the table."""
    aside: bool = False
    """Whether the page shows it folded: it is for comparison, not for conclusions."""
    choosers: Sequence[str] = ()
    """The keys of text columns by which a reader of the page filters rows."""

    def markdown(self) -> str:
        """The table in markdown, caption first, with columns padded for reading as text.

        A long cell exceeds the width of its column; the other cells keep it.
        """
        cells = [[column.heading for column in self.columns], *self._cells()]
        cells = [[cell.replace("|", r"\|") for cell in line] for line in cells]
        for place, form in self._marks({0: "**{}**", 1: "<u>{}</u>"}):
            cells[place[0] + 1][place[1]] = form.format(cells[place[0] + 1][place[1]])
        widths = [
            min(_WIDEST, max(3, *(len(line[place]) for line in cells))) for place in range(len(self.columns))
        ]
        rule = [
            "-" * (width - 1) + ":" if column.align == "right" else "-" * width
            for column, width in zip(self.columns, widths, strict=True)
        ]
        lines = [cells[0], rule, *cells[1:]]
        body = "".join(f"| {self._padded(line, widths)} |\n" for line in lines)
        notes = "".join(f"- {note}\n" for note in self.notes)
        return f"{self.caption}\n\n{body}" + (f"\n{notes}" if notes else "")

    def latex(self) -> str:
        """The table in LaTeX, for the booktabs package."""
        spec = "".join("r" if column.align == "right" else "l" for column in self.columns)
        body = [[column.heading for column in self.columns], *self._cells()]
        body = [list(map(_latex_text, line)) for line in body]
        for cell, form in self._marks({0: r"\textbf{{{}}}", 1: r"\underline{{{}}}"}):
            body[cell[0] + 1][cell[1]] = form.format(body[cell[0] + 1][cell[1]])
        lines = [" & ".join(line) + r" \\" for line in body]
        return "\n".join(
            [
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_latex_text(self.caption)}}}",
                rf"\begin{{tabular}}{{{spec}}}",
                r"\toprule",
                lines[0],
                r"\midrule",
                *lines[1:],
                r"\bottomrule",
                r"\end{tabular}",
                *(rf"\par {_latex_text(note)}" for note in self.notes),
                r"\end{table}",
                "",
            ]
        )

    def legend(self) -> Iterator[str]:
        """A sentence for each kind of mark in the table."""
        if any(self._marks({0: "", 1: ""})):
            yield "The best of a column is bold, the second best underlined."
        if self._has_diverged():
            yield "A number of a diverged run is never marked as best."
        spread = {column.key for row in self.rows for column in self.columns if self._spread(row, column)}
        if spread and all(key.endswith(PRINTED) for key in spread):
            yield "After a printed number, ± is the deviation that the paper prints."
        elif spread:
            yield "± is the standard deviation over seeds."

    def _has_diverged(self) -> bool:
        """Whether a number is excluded from best and second best because its run diverged."""
        ranked = [column for column in self.columns if column.ranked]
        return any(column.is_diverged(row) for column in ranked for row in self.rows)

    @staticmethod
    def _spread(row: Row, column: ReportColumn) -> bool:
        return row.get(f"{column.key}_sd") is not None

    def _marks(self, forms: Mapping[int, str]) -> Iterator[tuple[tuple[int, int], str]]:
        """The cells (row, column) of best and second best values, and the format that marks each.

        Values that are shown as equal have the same mark.
        """
        for at, column in enumerate(self.columns):
            if not column.ranked:
                continue
            shown = {index: row[column.key] for index, row in enumerate(self.rows) if column.takes_part(row)}
            ranks = sorted({column.form.format(value) for value in shown.values()}, key=float, reverse=True)
            for index, value in shown.items():
                rank = ranks.index(column.form.format(value))
                if rank in forms and len(ranks) > 1:
                    yield (index, at), forms[rank]

    def _cells(self) -> list[list[str]]:
        return [[column.spelled(row) for column in self.columns] for row in self.rows]

    def _padded(self, line: Sequence[str], widths: Sequence[int]) -> str:
        return " | ".join(
            cell.rjust(width) if column.align == "right" else cell.ljust(width)
            for cell, width, column in zip(line, widths, self.columns, strict=True)
        )


@dataclass(frozen=True)
class Chapter:
    """The introduction of an audit table on the page: heading, reading help and rule."""

    title: str
    reading: str = ""
    rule: str = ""
    """The meaning of its numbers and the rule for conclusions, where captions do not state them."""
    order: int = 100
    """The sort key among the chapters of the audit; equal ones are sorted by name."""
    figure: str | None = None
    """The layout of the figure of the same rows."""
    counts: Sequence[Mapping[str, Any]] = ()
    """Counts by paper, shown above the tables."""
    finding: Sequence[str] = ()
    """Sentences for the head of the page."""


@dataclass(frozen=True)
class ShownTables:
    """The content of a table's json: tables with typed rows, and the chapter of the page."""

    tables: Sequence[ReportTable]
    chapter: Chapter | None


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as csv, with the columns of any row: missing values empty, lists separated by blanks."""
    stream = io.StringIO()
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(stream, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _csv_value(value) for key, value in row.items()} for row in rows)
    return stream.getvalue()


def write_forms(
    stem: Path,
    rows: Sequence[Row],
    tables: Sequence[ReportTable],
    chapter: Chapter | None = None,
    on_page: Sequence[ReportTable] | None = None,
) -> None:
    """Write `stem`.csv with all `rows`, `stem`.md and .tex with the `tables`, and `stem`.json for the page.

    The page shows the same tables, unless `shown` has others.
    """
    shown = tables if on_page is None else on_page
    content = {
        "name": stem.name,
        "chapter": None if chapter is None else asdict(chapter),
        "tables": [
            asdict(replace(table, rows=[_shown_row(row, table.columns) for row in table.rows]))
            for table in shown
        ],
    }
    last = {} if any(RUNS in row for row in rows) else {RUNS: None}
    write_text(stem.with_name(f"{stem.name}.csv"), csv_text([{**row, **last} for row in rows]))
    markdown, latex = ("\n".join(texts) for texts in _texts(tables))
    write_text(stem.with_name(f"{stem.name}.md"), markdown)
    write_text(stem.with_name(f"{stem.name}.tex"), latex)
    write_checked_json(stem.with_name(f"{stem.name}.json"), _plain(content), indent=1)


def _texts(tables: Sequence[ReportTable]) -> tuple[list[str], list[str]]:
    """The tables in markdown and in LaTeX, with a legend of marks below the last."""
    markdown, latex = [table.markdown() for table in tables], [table.latex() for table in tables]
    if legend := " ".join(dict.fromkeys(sentence for table in tables for sentence in table.legend())):
        markdown.append(f"- {legend}\n")
        latex.append(f"\\par {legend}\n")
    return markdown, latex


def add_note(stem: Path, note: str, below: Collection[int] | None = None) -> None:
    """Add a note below the tables that `write_forms` wrote, in all forms except the csv.

    The page shows it below the tables with the indices `below`, or below all if None.
    """
    path = stem.with_name(f"{stem.name}.json")
    content = read_checked_json(path)
    tables = [
        {**table, "notes": [*table["notes"], note]} if below is None or index in below else table
        for index, table in enumerate(content["tables"])
    ]
    write_checked_json(path, {**content, "tables": tables}, indent=1)
    for ending, text in (("md", f"\n- {note}\n"), ("tex", f"\n\\par {_latex_text(note)}\n")):
        form = stem.with_name(f"{stem.name}.{ending}")
        write_text(form, form.read_text(encoding="utf-8") + text)


def read_shown(path: Path) -> ShownTables:
    """The tables of a json that `write_forms` wrote."""
    with reading_built(path):
        content = read_checked_json(path)
        if content["name"] != path.stem:
            raise ValueError(f"it is the table {content['name']}")
        chapter = content["chapter"]
        return ShownTables(
            [
                ReportTable(**table | {"columns": [ReportColumn(**column) for column in table["columns"]]})
                for table in content["tables"]
            ],
            None if chapter is None else Chapter(**chapter),
        )


def _shown_row(row: Row, columns: Sequence[ReportColumn]) -> Row:
    """The part of a row that a shown table needs: values, deviations, marks, runs and format."""
    keys = {f"{column.key}{ending}" for column in columns for ending in ("", "_sd", "_mark", "_runs")}
    return {key: value for key, value in row.items() if key in {*keys, "unranked", "form", RUNS, AGAINST}}


def _csv_value(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever json holds
    """The value as json can hold it; NaN becomes None."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    plain = value.item() if hasattr(value, "item") else value
    return None if isinstance(plain, float) and math.isnan(plain) else plain


def _latex_text(text: str) -> str:
    return "".join(_LATEX_SPECIAL.get(character, character) for character in text)
