"""Marks on the numbers of runs that diverged, and notes that name the round.

A run that diverged has the number of its reported round if that round came before, and otherwise none. The
column `diverged` of a row (`fedrec.runs.provenance_columns`) has seed and round, as in `0:7`.
"""

from collections.abc import Iterable, Sequence

from fedrec.config.protocol import short_name
from fedrec.plan.runs import DIVERGED
from fedrec.reporting.tables.table import DIVERGED_MARK, Row

SHOWN_NUMBER_NOTE = (
    "The number shown is from an earlier round, the one that the protocol reports. A dash, or nothing "
    "drawn: no earlier round has a number."
)


def mark_of(row: Row) -> str:
    """The mark behind the numbers, or the name, of a row whose runs diverged; empty for other rows."""
    return DIVERGED_MARK if row.get(DIVERGED) else ""


def named(rows: Iterable[Row], key: str) -> list[Row]:
    """The rows as shown, with the mark behind the value of the column `key`."""
    return [{**row, key: f"{row[key]}{mark_of(row)}"} if mark_of(row) else row for row in rows]


def rounds_text(diverged: Sequence[str], seeds: int) -> str:
    """The round in which a run diverged: `in round 7`, or for several seeds `in round 7 with seed 1`."""
    pairs = [entry.split(":") for entry in diverged]
    if seeds == 1:
        return f"in round {pairs[0][1]}"
    return ", ".join(f"in round {round_} with seed {seed}" for seed, round_ in pairs)


def diverged_notes(rows: Iterable[Row], *keys: str) -> list[str]:
    """A note that names the rows that diverged by their columns `keys`; empty if none did."""
    texts = dict.fromkeys(
        ", ".join([*(_word(key, row[key]) for key in keys), rounds_text(row[DIVERGED], _seeds(row))])
        for row in rows
        if row.get(DIVERGED)
    )
    return [f"{DIVERGED_MARK} Diverged: {'; '.join(texts)}. {SHOWN_NUMBER_NOTE}"] if texts else []


def _word(key: str, value: object) -> str:
    return short_name(str(value)) if key == "protocol" else str(value)


def _seeds(row: Row) -> int:
    return len(str(row["seeds"]).split())
