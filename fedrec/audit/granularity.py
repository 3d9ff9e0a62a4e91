"""Granularity: are printed hit ratios those of single runs, or averages of several?

The hit ratio of one run over n users is a multiple of 1/n, an average of five runs a multiple of 1/(5n). All
five papers state averages of five runs. The audit counts the printed numbers that are rounded multiples of
1/n. It compares the count with that expected by chance, and with that expected of averages of five.
"""

import re
from collections.abc import Iterable, Mapping
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.config.printed import Printed, PrintedKey, printed_numbers

AVERAGED_RUNS = 5
"""The number of runs that the papers state to average."""
SINGLE, SOME, AVERAGES, NEITHER = "single runs", "some single runs", "averages", "neither"
CANNOT_TELL, USERS_UNKNOWN = "cannot tell", "users unknown"
ALL_TABLES = "all tables"
_RARE = 0.001  # a probability below this is not chance
_LIKELY = 0.05  # a probability above this may be chance
_HIT_RATIO = re.compile(r"hr@\d+")
# Variants that print a hit ratio over part of the users, and so have another n.
_PART_OF_USERS = re.compile(r"\b(subset|inactive users)\b")

Cells = NDArray[np.int64]


def granularity_rows(
    users: Mapping[tuple[str, str], int], numbers: Mapping[PrintedKey, Printed] | None = None
) -> list[dict[str, Any]]:
    """One row per paper, dataset and table with hit ratios, and one over all tables if there are several.

    `users` is the number of users by paper and dataset; a group without one is listed as such. `numbers` are
    the printed numbers, by default `printed_numbers()`. A number that a group prints twice counts once: it
    comes from one run, or average. The columns:

    - `values`: distinct hit ratios over all users; `left_out`: printed ones over part of them.
    - `single_matches`: how many of `values` are rounded multiples of 1/n. `single_chance`: the share of all
      numbers of so many digits that are; `single_p`: how likely so many matches, or more, are by that
      chance. `single_claimed`, `single_claimed_p`: the same for averages of five runs instead of all numbers.
    - `average_matches`, `average_chance`, `average_p`: the same as the first three, for 1/(5n).
    - `finding`: see `_finding`; it follows from the other columns.
    """
    hit_ratios = {
        key: number
        for key, number in (printed_numbers() if numbers is None else numbers).items()
        if _HIT_RATIO.fullmatch(key[5])
    }
    steps = _steps_of_papers(hit_ratios)
    rows = []
    for (paper, dataset), tables in _groups(hit_ratios).items():
        several = {ALL_TABLES: [key for keys in tables.values() for key in keys]} if len(tables) > 1 else {}
        for table, keys in (tables | several).items():
            whole = [key for key in keys if not _PART_OF_USERS.search(key[4])]
            cells = _cells((hit_ratios[key] for key in whole), steps[paper])
            rows.append(
                {
                    "paper": paper,
                    "dataset": dataset,
                    "table": table,
                    "users": users.get((paper, dataset)),
                    "values": len(cells),
                    "left_out": len(keys) - len(whole),
                    **_columns(cells, steps[paper], users.get((paper, dataset))),
                }
            )
    return rows


def _groups(keys: Iterable[PrintedKey]) -> dict[tuple[str, str], dict[str, list[PrintedKey]]]:
    """The keys by paper and dataset, then by table; in their order."""
    groups: dict[tuple[str, str], dict[str, list[PrintedKey]]] = {}
    for key in keys:
        groups.setdefault((key[0], key[2]), {}).setdefault(key[1], []).append(key)
    return groups


def _steps_of_papers(numbers: Mapping[PrintedKey, Printed]) -> dict[str, int]:
    """The number of printable steps between 0 and 1, by paper.

    A paper prints all hit ratios with equal digits; a number with fewer has lost zeros at its end.
    """
    steps: dict[str, int] = {}
    for key, number in numbers.items():
        steps[key[0]] = max(steps.get(key[0], 1), _whole(number) * 10**number.decimals)
    return steps


def _whole(number: Printed) -> int:
    """The value of a hit ratio of 1 in the number's unit."""
    return 100 if number.unit == "percent" else 1


def _cells(numbers: Iterable[Printed], steps: int) -> Cells:
    """The distinct numbers, in steps."""
    return np.array(
        sorted({round(number.value * steps / _whole(number)) for number in numbers}), dtype=np.int64
    )


def _columns(cells: Cells, steps: int, users: int | None) -> dict[str, Any]:
    if users is None:
        return {"finding": USERS_UNKNOWN}
    single = _matches("single", cells, steps, users)
    claimed = float(_fits(_rounded_multiples(AVERAGED_RUNS * users, steps), steps, users).mean())
    columns = {
        **single,
        "single_claimed": claimed,
        "single_claimed_p": _tail(single["single_matches"], len(cells), claimed),
        **_matches("average", cells, steps, AVERAGED_RUNS * users),
    }
    return {**columns, "finding": _finding(columns, len(cells))}


def _matches(name: str, cells: Cells, steps: int, parts: int) -> dict[str, Any]:
    matches = int(_fits(cells, steps, parts).sum())
    chance = float(_fits(np.arange(steps + 1), steps, parts).mean())
    return {
        f"{name}_matches": matches,
        f"{name}_chance": chance,
        f"{name}_p": _tail(matches, len(cells), chance),
    }


def _fits(cells: Cells, steps: int, parts: int) -> NDArray[np.bool_]:
    """Whether each number is a rounded multiple of 1/parts; a half may be rounded up or down."""
    rest = cells * parts % steps
    return 2 * np.minimum(rest, steps - rest) <= parts


def _rounded_multiples(parts: int, steps: int) -> Cells:
    """The rounded value, in steps, of every multiple of 1/parts from 0 to 1."""
    return (2 * np.arange(parts + 1) * steps + parts) // (2 * parts)


def _tail(matches: int, values: int, share: float) -> float:
    """The probability of at least `matches` among `values`, each with probability `share`."""
    return min(
        1.0,
        sum(comb(values, k) * share**k * (1 - share) ** (values - k) for k in range(matches, values + 1)),
    )


def _finding(columns: Mapping[str, Any], values: int) -> str:
    """The finding of a group of numbers.

    - `single runs`: nearly all are multiples of 1/n, which neither chance nor averages of five explain;
      five runs that are all the same look like this too.
    - `some single runs`: too many are for chance and for averages, but not nearly all.
    - `averages`: no more are than of averages of five, and nearly all are multiples of 1/(5n). Where almost
      any number is one, this says that they are no single runs, and no more.
    - `neither`: no more are than of averages of five, but not nearly all are multiples of 1/(5n): the number
      of users or of runs, or the rounding, is another.
    - `cannot tell`: too few numbers or too many users for single runs to stand out, or a doubtful case.
    """
    likely = max(columns["single_p"], columns["single_claimed_p"])
    could_stand_out = max(columns["single_chance"], columns["single_claimed"]) ** values < _RARE
    if not could_stand_out or _RARE <= likely < _LIKELY:
        return CANNOT_TELL
    if likely < _RARE:
        return SINGLE if _nearly_all(columns["single_matches"], values) else SOME
    return AVERAGES if _nearly_all(columns["average_matches"], values) else NEITHER


def _nearly_all(matches: int, values: int) -> bool:
    """Whether at most one number, or one in ten, does not match: papers have misprints."""
    return values - matches <= max(1, values // 10)
