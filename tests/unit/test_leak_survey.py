"""docs/leak-survey.md: the counts of its prose are those of its tables."""

import re

import pytest

from tests.conftest import ROOT

PAGE = (ROOT / "docs/leak-survey.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())


def table(heading):
    """The rows of the table below a heading, by column."""
    lines = re.findall(r"^\|.*\|$", PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0], re.M)
    names, _, *rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [dict(zip(names, row, strict=True)) for row in rows]


FEDERATED = table("Federated, negatives sampled, one item held out")
CENTRAL = table("In one place, negatives sampled, one item held out")
OTHERS = table("Negatives sampled, another evaluation")
LEAKING = [row for row in FEDERATED if row["leak"].startswith(("yes", "in part"))]


def beginning(column, *letters):
    """How many leaking federated repositories have one of these letters in a column."""
    return sum(row[column].split()[0].rstrip(":,") in letters for row in LEAKING)


def test_repositories_are_counted_as_the_tables_list_them():
    assert f"{len(FEDERATED)} federated repositories that sample negatives" in PROSE
    assert f"{len(LEAKING)} leak, one of them in one of its two parts" in PROSE
    leaking = [row for row in CENTRAL if row["leak"].startswith("yes")]
    assert (len(CENTRAL), len(leaking), len(LEAKING) + len(leaking)) == (8, 2, 20)
    listed = sum(len(re.findall(r"@", row["repository @ commit"])) for row in (*FEDERATED, *CENTRAL, *OTHERS))
    assert f"{listed} stand in the tables below" in PROSE
    copies = [row for row in LEAKING if re.match("tyanfarm|3132565526", row["repository @ commit"])]
    assert f"Without these seven, {len(LEAKING) - len(copies)} of {len(LEAKING)} federated" in PROSE
    assert len(copies) == 7


def test_other_repositories_are_as_many_as_stated():
    """Without one that was not opened, and those that are not stored."""
    section = PROSE.partition("## Other repositories")[2].partition("- **Not stored")[0]
    names = re.findall(r"[\w.-]+/[\w.-]+(?= @|\.|,)|AAAI-25-MRFF|mf\) @|TranhGio", section)
    opened = {name for name in names if not name.endswith(".py")}
    assert f"and {len(opened)} under [other repositories]" in PROSE
    assert len(opened) == 71 - 52


@pytest.mark.parametrize(
    ("column", "letters", "count"),
    [
        ("table", ("K",), 6),
        ("table", ("L",), 9),
        ("table", ("S",), 2),
        ("table", ("K", "L"), 15),
        ("best", ("T",), 5),
        ("best", ("V",), 11),
        ("best", ("n",), 2),
        ("how", ("X",), 17),
    ],
)
def test_letters_are_counted_as_the_tables_have_them(column, letters, count):
    assert beginning(column, *letters) == count


def test_every_leaking_row_says_what_to_change():
    for row in (*FEDERATED, *CENTRAL, *OTHERS):
        leaks = row["leak"].startswith(("yes", "in part"))
        assert row["to change"].startswith("pool") == leaks, row["repository @ commit"]
        if leaks and "best" in row:
            assert ("round" in row["to change"]) == row["best"].startswith("T"), row["repository @ commit"]
