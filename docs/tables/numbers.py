"""Read the measured numbers in docs/numbers, and write them as Markdown."""

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
NUMBERS = DOCS / "numbers"
REFERENCE = ROOT / "results/reference"
Row = dict[str, str]


def numbers(name: str) -> list[Row]:
    """The rows of one file of numbers."""
    with (NUMBERS / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def numbers_text(rows: Sequence[Row]) -> str:
    """The text of a file of numbers."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], right: int = 1) -> str:
    """A Markdown table with the columns from `right` on aligned to the right."""
    rule = ["---"] * right + ["---:"] * (len(head) - right)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def stored_table(table: str) -> list[Row]:
    """The rows of a table in the reference."""
    with (REFERENCE / f"tables/{table}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
