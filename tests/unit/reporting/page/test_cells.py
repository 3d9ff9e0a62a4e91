"""Links to runs in the cells of a page, captions without hashes, and notes that are folded."""

from pathlib import Path

import pytest

from fedrec.plan.runs import RunId
from fedrec.reporting.page.cells import PageTable, RunLinks, page_table
from fedrec.reporting.tables.table import ReportColumn, ReportTable


def folders(protocol, seeds):
    return [RunId("plgc", "filmtrust", protocol, "mf", seed).folder for seed in seeds]


@pytest.mark.parametrize(
    ("seeds", "link"),
    [
        ((0, 1, 2), ("4 runs", "report.runs.html#runs/plgc/filmtrust/mf")),
        ((), ("1 run", "report.runs.html#runs/plgc/filmtrust/published-plgc/mf/seed0")),
    ],
)
def test_runs_that_differ_by_protocol_and_seed_alone_share_one_small_link(seeds, link):
    listed = [*folders("published-plgc", (0,)), *folders("clean", seeds)]
    links = RunLinks(Path("r"), Path("r/report/report.html"), frozenset(listed))

    assert links.links(listed) == [link]


def test_runs_of_another_method_have_a_link_of_their_own():
    listed = [*folders("clean", (0,)), RunId("plgc", "filmtrust", "clean", "fedmf", 0).folder]
    links = RunLinks(Path("r"), Path("r/report/report.html"), frozenset(listed))

    assert [text for text, _ in links.links(listed, "against ")] == ["against 1 run"] * 2


def test_runs_that_the_page_does_not_list_have_a_link_each():
    clean = folders("clean", (0, 1))
    links = RunLinks(Path("r"), Path("r/report/report.html"))

    assert links.links(clean) == [
        ("clean 0", f"../{clean[0]}/run.json"),
        ("clean 1", f"../{clean[1]}/run.json"),
    ]


def test_sentences_of_a_caption_that_name_hashes_stand_apart():
    table = ReportTable("Methods on x. Seeds 0; splits 8e8ce705. Best first.", [ReportColumn("a", "a")], [])
    shown = page_table("t", table)

    assert (shown.caption, shown.origin) == ("Methods on x. Best first.", "Seeds 0; splits 8e8ce705.")


def test_a_long_note_is_folded_behind_its_beginning():
    long_note = f"Diverged lines: {', '.join(f'method {place}' for place in range(40))}."
    table = PageTable("t", "", [], [], notes=["Short.", long_note])

    assert (table.short_notes, table.long_notes) == (["Short."], [("Diverged lines: method 0", long_note)])
