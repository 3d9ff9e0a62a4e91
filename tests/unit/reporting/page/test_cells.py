"""Links to runs in the cells of a page."""

from pathlib import Path

import pytest

from fedrec.plan.runs import RunId
from fedrec.reporting.page.cells import RunLinks


def folders(protocol, seeds):
    return [RunId("plgc", "filmtrust", protocol, "mf", seed).folder for seed in seeds]


@pytest.mark.parametrize(("seeds", "words"), [((0, 1, 2, 3, 4), "0–4"), ((0, 2), "0, 2"), ((3,), "3")])
def test_runs_on_the_page_that_differ_by_seed_alone_share_a_link_to_the_first(seeds, words):
    published, clean = folders("published-plgc", (0,)), folders("clean", seeds)
    links = RunLinks(Path("r"), Path("r/report/report.html"), frozenset([*published, *clean]))

    assert links.cell([*published, *clean]).links == [
        ("published 0", f"#{published[0]}"),
        (f"clean {words}", f"#{clean[0]}"),
    ]


def test_runs_that_the_page_does_not_list_have_a_link_each():
    clean = folders("clean", (0, 1))
    links = RunLinks(Path("r"), Path("r/report/report.html"))

    assert links.cell(clean).links == [
        ("clean 0", f"../{clean[0]}/run.json"),
        ("clean 1", f"../{clean[1]}/run.json"),
    ]
