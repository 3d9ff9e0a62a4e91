"""One table in three forms: csv for programs, markdown for reading, LaTeX for papers."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from fedrec.files import write_text

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
}


@dataclass(frozen=True)
class Column:
    """A column of a shown table: the key in the rows, the heading, and how values are spelt."""

    key: str
    heading: str
    form: str = "{}"
    align: Literal["left", "right"] = "right"

    def spelled(self, row: Row) -> str:
        """The cell's text; a dash where the row has no value."""
        value = row.get(self.key)
        return MISSING if value is None else self.form.format(value)


@dataclass(frozen=True)
class Table:
    """A table to be read: a caption that states how its numbers came about, columns, rows, notes."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        """The table in markdown, caption first, with columns padded for reading as text."""
        cells = [[column.heading for column in self.columns], *self._cells()]
        cells = [[cell.replace("|", r"\|") for cell in line] for line in cells]
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
        lines = [" & ".join(map(_latex_text, line)) + r" \\" for line in body]
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
