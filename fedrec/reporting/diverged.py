"""Runs that diverged, for readers: a mark on what is shown of them, and a note that tells the round.

A run that diverged has the number of the round that its protocol reports if that came before, and else none.
Rows say so in the column `diverged` (`fedrec.runs.provenance_columns`): the seed and the round, as in `0:7`.
"""

from collections.abc import Iterable, Sequence

from fedrec.config.protocol import short_name
from fedrec.plan.runs import DIVERGED
from fedrec.reporting.tables.table import DIVERGED_MARK, Row

WHAT_IS_SHOWN = (
    "The number shown is from an earlier round, the one that the protocol reports. A dash, or nothing "
    "drawn, means that there is none."
)


def mark_of(row: Row) -> str:
    """What stands behind the numbers of a row whose runs diverged, or behind its name; of others nothing."""
    return DIVERGED_MARK if row.get(DIVERGED) else ""


def named(rows: Iterable[Row], key: str) -> list[Row]:
    """The rows as they are shown, with the mark behind what the column `key` says."""
    return [{**row, key: f"{row[key]}{mark_of(row)}"} if mark_of(row) else row for row in rows]


def rounds_text(diverged: Sequence[str], seeds: int) -> str:
    """In which round a run diverged: `in round 7`; of several seeds `in round 7 with seed 1`."""
    found = [one.split(":") for one in diverged]
    if seeds == 1:
        return f"in round {found[0][1]}"
    return ", ".join(f"in round {round_} with seed {seed}" for seed, round_ in found)


def diverged_notes(rows: Iterable[Row], *keys: str) -> list[str]:
    """A note on which of the rows diverged, each named by its columns `keys`; none where none did."""
    told = dict.fromkeys(
        ", ".join([*(_word(key, row[key]) for key in keys), rounds_text(row[DIVERGED], _seeds(row))])
        for row in rows
        if row.get(DIVERGED)
    )
    return [f"{DIVERGED_MARK} Diverged: {'; '.join(told)}. {WHAT_IS_SHOWN}"] if told else []


def _word(key: str, value: object) -> str:
    return short_name(str(value)) if key == "protocol" else str(value)


def _seeds(row: Row) -> int:
    return len(str(row["seeds"]).split())
