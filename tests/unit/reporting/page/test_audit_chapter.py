"""The audit on the report's page, from made csv files: what it counts, marks, folds, links and refuses."""

import re
from urllib.parse import unquote

import pytest

from fedrec.audit.verdicts import VERDICTS
from fedrec.config.conditions import CONDITIONS
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.runs import RunId
from fedrec.reporting.page.cells import RunLinks
from fedrec.reporting.page.origin import sentences_of
from fedrec.reporting.page.page import PAGE_FOLDER, write_page
from fedrec.reporting.page.sections.audit import VERDICT_CLASSES, shown_audit
from fedrec.reporting.tables.audit.verdicts import table_of_all
from fedrec.reporting.tables.table import Chapter, ReportColumn, ReportTable, write_forms
from tests.federations import METHODS
from tests.made_audit import FORMS, NAMES, PAPERS, verdict_rows, write_audit, write_ranks, write_verdicts
from tests.made_project import build_target
from tests.made_runs import write_run
from tests.unit.reporting.page.test_page import Page, luminance


@pytest.fixture
def results(tmp_path):
    write_audit(tmp_path / "results")
    return tmp_path / "results"


def report(results, audit=tuple(FORMS), **forms):
    out = results / "report/report.html"
    nothing = {name: [] for name in ("datasets", "targets", "artefacts", "built", "statistics")} | {
        "kept": {},
        "prefix": "",
    }
    content = nothing | {"unavailable": {}, "audit": list(audit)}
    write_page(out, results, PAPERS, {**FORMS, **forms}, content, [], METHODS)
    return Page(out.read_text(encoding="utf-8"))


def audited(results, *names):
    page = results / "report/report.html"
    return shown_audit(results, {name: FORMS[name] for name in names}, PAPERS, RunLinks(results, page))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    results = tmp_path_factory.mktemp("audit") / "results"
    write_audit(results)
    found = report(results)
    found.results = results
    return found


def ids(page):
    return [found["id"] for _, found in page.tags if "id" in found]


def test_the_verdicts_come_first_and_why_after_them(page):
    found = [one for one in ids(page) if one in ("verdict", "audit", "missing", *NAMES)]
    assert found == [
        "verdict", "verdicts", "audit", "audit_protocols", "audit_exposure", "audit_significance", "audit_uploads",
        "audit_granularity", "missing",
    ]  # fmt: skip
    assert len(ids(page)) == len(set(ids(page)))
    links = [found["href"] for found in page.all("a")]
    assert {f"#{name}" for name in ("audit", *NAMES)} <= set(links)
    files = [unquote(link) for link in links if not link.startswith("#") and "/runs/" not in link]
    assert len(files) == 3 * len(NAMES) + 4
    assert all((page.results / "report" / file).is_file() for file in files)
    assert "docs/protocols.md" in page.prose


def test_verdicts_of_all_papers_are_one_table_that_begins_with_what_decides(page):
    assert [name for name in page.tables if name.startswith("verdicts")] == ["verdicts-1"]
    rows = page.rows("verdicts-1")
    assert list(rows[0])[:5] == ["claim", "dataset", "printed", "clean", "verdict"]
    assert [row["claim"]["text"] for row in rows[:5]] == ["It is better & <i>best</i>"] * 5
    assert [row["paper"]["text"] for row in rows] == ["pfedclr"] * 13 + ["fedem"] * 3
    assert [row["verdict"]["text"] for row in rows[:12]] == [
        *["holds"] * 2, *["not found"] * 2, "holds 1, not found 1",
        *["reversed"] * 2, *["not testable here"] * 2, "reversed 1, not testable here 1",
        *["not testable here"] * 2,
    ]  # fmt: skip
    body = page.text[page.text.index('<table id="verdicts-1"') :]
    body = body[: body.index("</table>")]
    marked = re.findall(r'<td><span class="kind (\w+)">([^<]+)</span>', body)
    assert marked[:6] == [
        *[("holds", "holds")] * 2, *[("unsure", "not found")] * 2, *[("reversed", "reversed")] * 2,
    ]  # fmt: skip
    assert set(marked[6:]) == {("untested", "not testable here")}
    assert set(VERDICT_CLASSES) == set(VERDICTS)


def test_verdicts_are_chosen_by_paper_dataset_metric_and_verdict(page):
    head = page.tables["verdicts-1"]["rows"][0]
    assert [cell["text"] for cell in head if "data-choose" in cell] == [
        "dataset", "verdict", "metric", "paper",
    ]  # fmt: skip


def test_what_a_claim_comes_to_under_other_conditions_is_said_in_one_cell():
    row = verdict_rows()[0] | {"tuned": 0.1, "tuned_low": 0.05, "tuned_high": 0.15, "tuned_seeds": "0 1"}
    shown = table_of_all([row | {"tuned_verdict": "smaller"}], CONDITIONS).rows[0]
    assert shown["others"] == "clean, tuned: smaller, +0.1000 [+0.0500, +0.1500], 2 seeds"


def test_effects_are_sorted_by_their_number_and_shown_with_their_interval(page):
    first, *_, last = page.rows("verdicts-1")
    clean = first["clean"]
    assert (clean["text"], float(clean["data-value"])) == ("+0.2000 [+0.1500, +0.2500]", 0.2)
    assert (last["clean"]["text"], last["printed"]["text"]) == ("–", "–")
    assert "data-value" not in last["clean"]
    difference = page.rows("audit_significance-3")[1]["to best [interval]"]
    assert difference["text"] == "-0.1900 [-0.2100, -0.1700]"
    assert float(difference["data-value"]) == pytest.approx(-0.19)


def test_the_summary_counts_claims_by_paper_where_they_were_tested(results):
    counts = audited(results, *NAMES)[0].counts
    tested, untested = counts
    assert (tested["paper"], tested["claims"], tested["judged"]) == ("PFedCLR", 3, 2)
    # ml-1m, where nothing could be tested, is not counted, though two claims are made on it.
    assert tested["datasets"] == ["ml-100k", "lastfm-2k-c"]
    assert (tested["elsewhere"], tested["not_counted"], tested["one_seed"]) == (2, 0, 3)
    assert [(verdict, number) for verdict, _, number in tested["verdicts"]] == [
        ("holds", 1),
        ("smaller", 0),
        ("too few users", 0),
        ("not found", 1),
        ("reversed", 1),
        ("costs more", 0),
    ]
    assert (untested["paper"], untested["claims"], untested["judged"], untested["datasets"]) == (
        "FedEM",
        1,
        0,
        [],
    )


def test_a_claim_not_tested_on_a_tested_dataset_is_counted(results):
    rows = [row if row["dataset"] != "ml-1m" else {**row, "dataset": "ml-100k"} for row in verdict_rows()]
    write_verdicts(results, "verdicts", rows)
    tested = audited(results, "verdicts")[0].counts[0]
    assert tested["verdicts"][-1] == ("not testable here", "untested", 2)


def test_a_long_table_is_on_the_page_of_runs(results):
    columns = [ReportColumn("method", "method", align="left"), ReportColumn("count", "count")]
    rows = [{"method": "fedmf", "count": place} for place in range(1001)]
    table = ReportTable("Everything.", columns, rows)
    write_forms(results / "tables/audit_new", rows, [table], Chapter("All numbers"))
    page = report(results, [*FORMS, "audit_new"], audit_new="table")
    assert "audit_new-1" not in page.tables
    assert '<a href="report.runs.html#audit_new-1">Its 1,001 rows</a>' in page.text
    runs = Page((results / "report/report.runs.html").read_text(encoding="utf-8"))
    assert len(runs.rows("audit_new-1")) == 1001
    assert "All numbers" in runs.prose


def test_verdicts_that_decide_nothing_do_not_come_first(results):
    rows = [row for row in verdict_rows() if row["paper"] == "fedem"]
    write_verdicts(results, "verdicts", rows)
    page = report(results)
    found = [one for one in ids(page) if one in ("verdict", "audit", *NAMES)]
    assert (found[0], found[-1]) == ("audit", "verdicts")
    assert "verdict" not in found


def test_the_summary_is_on_the_page(page):
    words = page.prose
    assert (
        "PFedCLR holds 1 smaller 0 too few users 0 not found 1 reversed 1 costs more 0 2 of 3 claims are judged on at "
        "least one dataset of ml-100k, lastfm-2k-c; 3 verdicts rest on one seed; 2 more on datasets without runs here"
    ) in words
    assert "FedEM none of 1 claims could be tested here" in words
    assert '<span class="kind reversed">reversed 1</span>' in page.text


def test_only_differences_under_clean_are_open(page):
    first, last = (page.text.index(mark) for mark in ('<details class="folded"><', 'id="audit_uploads"'))
    folded = re.findall(r'<table id="([^"]+)"', page.text[first:last])
    assert folded == ["audit_significance-1", "audit_significance-2"]
    assert "under the published protocol: test HR@10" in page.tables["audit_significance-1"]["caption"]
    assert "under the clean protocol: test NDCG@10" in page.tables["audit_significance-4"]["caption"]
    assert "2 more tables" in page.prose


def test_captions_and_notes_say_what_the_files_beside_them_say(page):
    for name, table in (
        ("audit_protocols", "audit_protocols-4"),
        ("audit_exposure", "audit_exposure-1"),
        ("audit_uploads", "audit_uploads-1"),
        ("audit_significance", "audit_significance-2"),
        ("audit_granularity", "audit_granularity-1"),
    ):
        text = (page.results / f"tables/{name}.md").read_text(encoding="utf-8")
        assert all(sentence in text for sentence in sentences_of(page.tables[table]["caption"].strip()))
    # What names hashes is folded below a table.
    assert "Seeds 0, 1; splits abababab; code efefefef." in page.prose
    assert not any("abababab" in found["caption"] for found in page.tables.values())
    assert (
        "Trained for 100 rounds under the protocols clean; seeds 0. The csv lists splits and code."
        in page.prose
    )
    # The rule stands once, above all tables of verdicts.
    assert page.prose.count("A claim to be better holds if") == 1
    assert "needs 6 seeds to reach p < 0.05, and the runs here have 1." in page.prose


def test_numbers_come_from_the_csv_with_the_best_marked(page):
    rows = {row["method"]["text"]: row for row in page.rows("audit_protocols-1")}
    assert list(rows) == ["FedMF <i>x</i>", "PFedCLR", "draw-counter"]
    assert rows["draw-counter"]["published"]["text"] == "1.0000 (best)"
    assert rows["FedMF <i>x</i>"]["clean"]["text"] == "0.4600 (best)"
    exposed = page.rows("audit_exposure-1")
    assert [row["hits that vanish"]["text"] for row in exposed] == ["–", "–", "0.900", "–", "–", "–"]
    assert [row["change by noise"]["text"] for row in page.rows("audit_uploads-1")] == ["–", "-0.1250"]
    assert [row["finding"]["text"] for row in page.rows("audit_granularity-1")][1] == "users unknown"


def test_the_figure_has_its_caption(page):
    (image,) = page.all("img")
    assert image["src"].startswith("data:image/svg+xml;base64,")
    assert image["alt"].startswith("Audit ranks.")
    assert "Ranks of methods: 1 < 2 & so on." in page.prose


def test_differences_of_runs_say_on_the_page_where_they_come_from(results):
    ranks = {"popularity": (1, 20, 20), "fedmf": (1, 1, 20), "pfedclr": (20, 20, 20)}
    runs = [
        write_run(results, RunId("pfedclr", "ml-100k", "clean", method, seed), METHODS, ranks=found).id
        for method, found in ranks.items()
        for seed in (0, 1)
    ]
    build_target(results, "significance", "audit_significance", runs)
    page = report(results)
    assert "Seeds 0, 1; splits 5p1175p1; code " in page.prose
    rows = page.rows("audit_significance-1")
    assert [row["method"]["text"] for row in rows] == ["FedMF", "popularity", "PFedCLR"]
    assert rows[2]["to popularity [interval]"]["text"].startswith("-0.3333 [")
    assert "needs 6 seeds to reach p < 0.05, and the runs here have 2." in page.prose


def test_what_comes_from_files_is_escaped(page):
    assert page.all("i") == []
    assert "FedMF <i>x</i>" in page.prose


def test_the_audit_of_a_paper_has_a_section_and_a_figure_of_its_own(results):
    rows = [row for row in verdict_rows() if row["paper"] == "pfedclr"]
    write_verdicts(results, "verdicts_pfedclr", rows)
    for form in ("csv", "md", "tex"):
        content = (results / f"tables/audit_protocols.{form}").read_bytes()
        (results / f"tables/audit_protocols_pfedclr.{form}").write_bytes(content)
    shown = read_checked_json(results / "tables/audit_protocols.json") | {"name": "audit_protocols_pfedclr"}
    write_checked_json(results / "tables/audit_protocols_pfedclr.json", shown)
    write_ranks(results, "audit_ranks_pfedclr")
    own = {"audit_protocols_pfedclr": "table", "verdicts_pfedclr": "table", "audit_ranks_pfedclr": "figure"}
    page = report(results, [*own, *FORMS], **own)
    found = [one for one in ids(page) if re.fullmatch(r"(verdicts|audit_protocols)(_\w+)?", one)]
    assert found == ["verdicts", "verdicts_pfedclr", "audit_protocols", "audit_protocols_pfedclr"]
    assert "Verdicts on the papers’ claims, PFedCLR alone" in page.prose
    assert len(page.all("img")) == 2


def test_a_page_without_audit_has_no_chapter_of_it(results):
    page = report(results, [])
    assert not {"audit", "verdict"} & set(ids(page))
    assert list(page.tables) == ["missing-table"]


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("tables/verdicts.json", None, "no such file. Build it with: snakemake --cores 2 '.*tables/verdicts.json'"),
        ("tables/verdicts.csv", None, "no such file. Build it with: snakemake --cores 2 '.*tables/verdicts.csv'"),
        ("tables/audit_uploads.tex", None, "Build it with: snakemake --cores 2 '.*tables/audit_uploads.tex'"),
        ("figures/audit_ranks.svg", None, "Build it with: snakemake --cores 2 '.*figures/audit_ranks.svg'"),
        ("figures/audit_ranks.png", None, "Build it with: snakemake --cores 2 '.*figures/audit_ranks.png'"),
        ("tables/audit_exposure.json", '{"tables": []}', "the file is damaged: it has no checksum"),
        ("tables/audit_granularity.json", '{"chapter": nu', "the file is damaged"),
    ],
)  # fmt: skip
def test_a_missing_or_half_file_is_an_error(results, path, content, message):
    (results / path).unlink()
    if content is not None:
        (results / path).write_text(content)
    with pytest.raises(ResultError, match=message):
        report(results)
    assert not (results / "report/report.html").exists()


def test_a_new_table_of_the_audit_has_its_chapter_by_itself(results):
    columns = [ReportColumn("method", "method", align="left"), ReportColumn("count", "count")]
    rows = [{"method": "fedmf", "count": 3, "runs": ["runs/pfedclr/ml-100k/clean/fedmf/seed0"]}]
    chapter = Chapter("A question of ours", "Read it so.", rule="What follows.", order=3)
    write_forms(results / "tables/audit_new", rows, [ReportTable("A caption.", columns, rows)], chapter)
    page = report(results, [*FORMS, "audit_new"], audit_new="table")
    found = [one for one in ids(page) if one in (*NAMES, "audit_new")]
    assert found[:4] == ["verdicts", "audit_protocols", "audit_exposure", "audit_new"]
    assert [row["count"]["text"] for row in page.rows("audit_new-1")] == ["3"]
    for part in ("A question of ours", "Read it so.", "What follows."):
        assert part in page.prose
    assert "#audit_new" in [link["href"] for link in page.all("a")]


def test_a_figure_of_the_audit_without_a_table_is_a_chapter_of_its_own(results):
    write_ranks(results, "audit_other")
    page = report(results, [*FORMS, "audit_other"], audit_other="figure")
    assert ids(page).index("audit_other") > ids(page).index("audit_granularity")
    assert len(page.all("img")) == 2


def test_verdicts_lead_to_the_runs_of_both_sides(results):
    rows = [
        {**row, "against": "FedMF", "runs": ["runs/p/d/clean/a/seed0"], "runs_against": ["runs/p/d/clean/b/seed0"]}
        if row.get("clean") is not None else row
        for row in verdict_rows()
    ]  # fmt: skip
    write_verdicts(results, "verdicts", rows)
    page = report(results)
    first = page.rows("verdicts-1")[0]
    assert (first["against"]["text"], first["runs"]["text"]) == ("FedMF", "clean 0, against clean 0")
    links = [link["href"] for link in page.all("a")]
    assert {"../runs/p/d/clean/a/seed0/run.json", "../runs/p/d/clean/b/seed0/run.json"} <= set(links)


def test_the_same_files_give_the_same_page_whatever_order_is_asked_for(results):
    assert report(results).text == report(results, tuple(FORMS)[::-1]).text


def test_verdicts_can_be_read_on_their_ground_and_told_apart_without_colour():
    style = (PAGE_FOLDER / "page.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.S)
    ]
    for theme in themes[:2]:
        for mark in ("holds", "unsure", "reversed"):
            light, dark = sorted((luminance(theme[f"{mark}-shade"]), luminance(theme[mark])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, mark
    signs = re.findall(r'\.kind\.(\w+)::before \{ content: "(.) "', style)
    assert [mark for mark, _ in signs] == ["holds", "unsure", "reversed"]
    assert len({sign for _, sign in signs}) == 3
