"""One table in three forms: csv for programs, markdown for reading, LaTeX for papers."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedrec.files.atomic import write_text

Row = Mapping[str, Any]
MISSING = "–"
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
    "ᵇ": r"\textsuperscript{b}",
    "ᵖ": r"\textsuperscript{p}",
}


@dataclass(frozen=True)
class Column:
    """A column of a shown table: the key in the rows, the heading, and how values are spelt."""

    key: str
    heading: str
    form: str = "{}"
    align: Literal["left", "right"] = "right"
    ranked: bool = False
    """Whether the best value of the column, the highest, is marked, and the second best."""

    def spelled(self, row: Row) -> str:
        """The cell's text, with the deviation and mark its row may have; a dash where it has no value."""
        value, sd = row.get(self.key), row.get(f"{self.key}_sd")
        if value is None:
            return MISSING
        form = row.get("form", self.form) if self.align == "right" else self.form
        mark: str = row.get(f"{self.key}_mark", "")
        deviation = "" if sd is None else " ± " + form.format(sd)
        return f"{form.format(value)}{deviation}{mark}"


@dataclass(frozen=True)
class Table:
    """A table to be read: a caption that states how its numbers came about, columns, rows, notes.

    A row with a true `unranked` takes no part in who is best; one with a `form` spells its numbers so.
    """

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table in markdown, caption first, with columns padded for reading as text."""
        cells = [[column.heading for column in self.columns], *self._cells()]
        cells = [[cell.replace("|", r"\|") for cell in line] for line in cells]
        for place, form in self._marks({0: "**{}**", 1: "<u>{}</u>"}):
            cells[place[0] + 1][place[1]] = form.format(cells[place[0] + 1][place[1]])
        widths = [max(3, *(len(line[place]) for line in cells)) for place in range(len(self.columns))]
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
        for place, form in self._marks({0: r"\textbf{{{}}}", 1: r"\underline{{{}}}"}):
            body[place[0] + 1][place[1]] = form.format(body[place[0] + 1][place[1]])
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

    def _marks(self, forms: Mapping[int, str]) -> Iterator[tuple[tuple[int, int], str]]:
        """The places (row, column) of best and second best values and how each is written.

        Equal values are equally good; what is shown as equal is marked alike.
        """
        for at, column in enumerate(self.columns):
            if not column.ranked:
                continue
            shown = {
                place: row[column.key]
                for place, row in enumerate(self.rows)
                if row.get(column.key) is not None and not row.get("unranked")
            }
            ranks = sorted({column.form.format(value) for value in shown.values()}, key=float, reverse=True)
            for place, value in shown.items():
                rank = ranks.index(column.form.format(value))
                if rank in forms and len(ranks) > 1:
                    yield (place, at), forms[rank]

    def _cells(self) -> list[list[str]]:
        return [[column.spelled(row) for column in self.columns] for row in self.rows]

    def _padded(self, line: Sequence[str], widths: Sequence[int]) -> str:
        return " | ".join(
            cell.rjust(width) if column.align == "right" else cell.ljust(width)
            for cell, width, column in zip(line, widths, self.columns, strict=True)
        )


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as csv: every column any of them has, empty where a value is missing."""
    stream = io.StringIO()
    columns = list(dict.fromkeys(column for row in rows for column in row))
    writer = csv.DictWriter(stream, fieldnames=columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def write_forms(stem: Path, rows: Sequence[Row], tables: Sequence[Table]) -> None:
    """Write `stem`.csv with all `rows`, and `stem`.md and `stem`.tex with the `tables`."""
    write_text(stem.with_name(f"{stem.name}.csv"), csv_text(rows))
    write_text(stem.with_name(f"{stem.name}.md"), "\n".join(table.markdown() for table in tables))
    write_text(stem.with_name(f"{stem.name}.tex"), "\n".join(table.latex() for table in tables))


def _latex_text(text: str) -> str:
    return "".join(_LATEX_SPECIAL.get(character, character) for character in text)
