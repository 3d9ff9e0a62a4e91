import argparse
import csv
import itertools
import re
import shlex
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from fedrec.cli import train as train_command
from fedrec.config.papers import Artefact, load_papers
from fedrec.errors import FedrecError
from fedrec.plan.availability import can_be_built, without
from fedrec.plan.layouts import Layout
from fedrec.plan.runs import RunId
from fedrec.reporting.figures.colours import KIND_COLOURS
from fedrec.reporting.page.page import PAGE_FOLDER
from fedrec.reporting.page.sections import front
from fedrec.reporting.page.sections.missing import missing_table
from fedrec.reporting.page.sections.papers import artefact_label
from fedrec.reporting.tables.metrics import metric_tables
from fedrec.reporting.tables.table import ReportColumn, ReportTable
from tests.conftest import ROOT
from tests.made_results import BUILT, CHOSEN, DATASETS, METHODS, UNAVAILABLE, shared_made

SHOWN = ReportTable(
    "A caption.", [ReportColumn("dataset", "dataset", align="left"), ReportColumn("users", "users")], []
)
VOID = {"meta", "link", "img", "br", "hr", "input", "wbr", "source"}


def number_in(cell):
    """What the page's script sorts a cell by."""
    return float(cell.get("data-value", cell["text"]))


class Page(HTMLParser):
    """A page as a tree of what the tests ask for; a tag that does not fit is an error."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.open, self.tags, self.attributes = [], [], []
        self.tables = {}
        self.words = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        assert len(found) == len(attributes), "an attribute is given twice"
        self.tags.append((tag, found))
        if tag == "table":
            self.table = self.tables[found["id"]] = {"head": [], "rows": [], "caption": ""}
        if tag == "tr":
            self.table["rows"].append([])
        if tag in ("td", "th"):
            self.end_cell()
            self.table["rows"][-1].append({"tag": tag, "text": "", **found})
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag == "tr":
            self.end_cell()
        assert self.open.pop() == tag

    def end_cell(self):
        """A cell ends where the next one begins, or its row ends: the page does not say so."""
        if self.open[-1] in ("td", "th"):
            self.open.pop()

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)
        if "caption" in self.open:
            self.table["caption"] += data
        elif "td" in self.open or ("th" in self.open):
            self.table["rows"][-1][-1]["text"] += data

    def all(self, *tags):
        return [found for tag, found in self.tags if tag in tags]

    def rows(self, table):
        """Cells by heading, row by row."""
        head, *body = self.tables[table]["rows"]
        return [{h["text"]: cell for h, cell in zip(head, row, strict=True)} for row in body]

    @property
    def prose(self):
        return re.sub(r"\s+", " ", "".join(self.words))


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return shared_made(tmp_path_factory)


@pytest.fixture(scope="module")
def drawn():
    """The front figures that tests of this module drew, as text, by their standings and width."""
    return {}


@pytest.fixture(autouse=True)
def _front_figure_is_drawn_once(request, monkeypatch):
    """To draw it takes most of the time of a page; it has tests of its own, and one here draws it twice."""
    if "draws_again" in request.fixturenames:
        return
    texts = request.getfixturevalue("drawn")
    draw, text_of = front.front_figure, front.svg_of

    def text_once(asked):
        found, narrow = asked
        key = repr(found), narrow
        if key not in texts:
            texts[key] = text_of(draw(found, narrow=narrow))
        return texts[key]

    monkeypatch.setattr(front, "front_figure", lambda found, *, narrow=False: (found, narrow))
    monkeypatch.setattr(front, "svg_of", text_once)


@pytest.fixture
def draws_again():
    """Every page of the test draws its front figure."""


@pytest.fixture
def made(original, tmp_path):
    """Results a test may damage."""
    return original.copied(tmp_path)


@pytest.fixture(scope="module")
def page(original):
    return report(original)


@pytest.fixture(scope="module")
def runs_page(original):
    report(original)
    return Page((original.folder / "report/report.runs.html").read_text(encoding="utf-8"))


def report(made, **changes):
    return Page(made.write_page(**changes).read_text(encoding="utf-8"))


def test_the_pages_are_well_formed_and_their_anchors_resolve(page, runs_page, original):
    ids = {name: ids_of(one) for name, one in (("report.html", page), ("report.runs.html", runs_page))}
    assert all(len(found) == len(set(found)) for found in ids.values())
    for name, one in (("report.html", page), ("report.runs.html", runs_page)):
        links = [found["href"].partition("#") for found in one.all("a")]
        anchors = {(file or name, anchor) for file, sign, anchor in links if sign}
        assert all(anchor in ids[file] for file, anchor in anchors)
        labelled = {word for _, found in one.tags for word in found.get("aria-labelledby", "").split()}
        assert labelled <= set(ids[name])
        files = {file for file, _, _ in links if file}
        assert files
        assert not any(file.startswith("/") for file in files)
        # The runs of papers' tables were never made, but for those on the page of runs.
        made_files = [file for file in files if "/runs/" not in file]
        assert all((original.folder / "report" / unquote(file)).is_file() for file in made_files)
    assert {name for name in CHOSEN if name != "plgc_fig7"} <= set(ids["report.html"])
    listed = [row["id"] for tag, row in runs_page.tags if tag == "tr" and "id" in row]
    assert all((original.folder / folder / "run.json").is_file() for folder in listed)
    assert len(listed) == len(original.runs)
    assert not any(tag == "tr" and "id" in row for tag, row in page.tags)


def ids_of(page):
    return [found["id"] for _, found in page.tags if "id" in found]


def test_runs_of_a_line_are_one_group_that_a_link_can_mark(runs_page):
    groups = [found["id"] for tag, found in runs_page.tags if tag == "tbody" and "id" in found]
    assert "runs/pfedclr/ml-100k/fedmf@d-8" in groups
    assert len(groups) == len(set(groups)) == 2 * len(METHODS)


def test_only_the_first_picture_is_loaded_at_once(page):
    first, *others = page.all("img")
    assert "loading" not in first
    assert {found.get("loading") for found in others} == {"lazy"}


def test_commands_that_train_a_run_are_there_to_be_filled_in(runs_page, original):
    templates = [found["data-template"] for found in runs_page.all("code") if "data-template" in found]
    run = original.runs[0].relative_to(original.folder).as_posix()
    _, paper, dataset, protocol, method, seed = run.split("/")
    fields = {
        "folder": run,
        "paper": paper,
        "dataset": dataset,
        "protocol": protocol,
        "method": method,
        "seed": seed.removeprefix("seed"),
    }
    workflow, alone = (template.format(**fields) for template in templates)
    assert workflow == f"snakemake --cores 1 results/{run}/run.json"
    parser = argparse.ArgumentParser()
    train_command.add_commands(parser.add_subparsers())
    parsed = parser.parse_args(shlex.split(alone)[1:])
    assert (parsed.method, parsed.paper, parsed.protocol, parsed.seed) == (method, paper, protocol, 0)


def test_nothing_is_loaded_from_anywhere(page):
    for tag, found in page.tags:
        for name in ("src", "srcset", "data", "action", "poster"):
            assert name not in found or (
                tag in ("img", "source") and found[name].startswith("data:image/svg+xml;base64,")
            )
        assert not re.match(r"\w+://|//", found.get("href", ""))
        assert "style" not in found
        assert not any(name.startswith("on") for name in found)
    assert [found["href"] for found in page.all("link")] == ["data:,"]
    for file in (PAGE_FOLDER / name for name in ("page.html", "page.css", "page.js")):
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest|import\(", text), file
    policy = next(found["content"] for found in page.all("meta") if "http-equiv" in found)
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_page_is_accessible(page):
    tags = [tag for tag, _ in page.tags]
    for landmark in ("header", "nav", "main", "footer", "h1"):
        assert tags.count(landmark) == 1
    assert page.all("html") == [{"lang": "en"}]
    assert all(table["caption"].strip() for table in page.tables.values())
    for table in page.tables.values():
        head, *body = table["rows"]
        assert {cell.get("scope") for cell in head} == {"col"}
        assert {(row[0]["tag"], row[0].get("scope")) for row in body} == {("th", "row")}
        assert {len(row) for row in body} == {len(head)}
    assert all(found["alt"] and int(found["width"]) > 100 for found in page.all("img"))
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h\d", tag)]
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))


def luminance(colour):
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def test_colours_have_contrast():
    style = (PAGE_FOLDER / "page.css").read_text(encoding="utf-8")
    themes = [
        dict(re.findall(r"--([\w-]+): (#\w{6});", block))
        for block in re.findall(r":root \{(.*?)\}", style, re.S)
    ]
    assert len(themes) == 3
    on = {"paper": ("ink", "soft", "link", "leak", "clean"), "shade": ("ink", "soft", "link")}
    on |= {"leak-shade": ("leak",), "clean-shade": ("clean",), "best": ("ink",)}
    on["paper"] += tuple(KIND_COLOURS)
    for theme in themes[:2]:
        for ground, inks in on.items():
            for ink in inks:
                light, dark = sorted((luminance(theme[ground]), luminance(theme[ink])), reverse=True)
                assert (light + 0.05) / (dark + 0.05) >= 4.5, (ink, ground)
    # Words have the colours of the figures.
    for theme, side in zip(themes, (0, 1, 0), strict=True):
        assert {kind: theme[kind] for kind in KIND_COLOURS} == {
            kind: colours[side] for kind, colours in KIND_COLOURS.items()
        }


def test_comparisons_show_both_protocols_with_the_best_marked(page):
    rows = page.rows("ml-100k_comparison-1")
    assert [row["method"]["text"] for row in rows][:2] == ["MF", "FedMF"]
    first = rows[0]
    assert first["HR@10, clean"]["text"] == "0.6405 (best) [0.61, 0.67]"
    assert float(first["HR@10, clean"]["data-value"]) == METHODS["mf"]
    best = {
        heading: [row["method"]["text"] for row in rows if "(best)" in row[heading]["text"]]
        for heading in rows[0]
    }
    assert best["HR@10, published"] == ["draw-counter"]
    assert best["NDCG@10, clean"] == ["MF"]
    assert best["seconds per round"] == []
    assert {row["method"]["text"]: row["kind"]["text"] for row in rows}["PFedCLR"] == "own tables"
    assert '<span class="kind personalised">own tables</span>' in page.text
    assert "settings of pfedclr" in page.tables["ml-100k_comparison-1"]["caption"]


def test_tables_of_papers_come_from_the_csv_by_dataset_with_metrics_side_by_side(page, original):
    with (original.folder / "tables/pfedclr_table1.csv").open(newline="") as stream:
        source = list(csv.DictReader(stream))
    tables = [name for name in page.tables if name.startswith("pfedclr_table1-")]
    assert len(tables) == 5
    shown = page.rows("pfedclr_table1-ml-100k")
    wanted = [row for row in source if row["dataset"] == "ml-100k" and row["metric"] == "hr@10"]
    assert len(shown) == len(wanted) / 2
    for row, published, clean in zip(shown[:-1], wanted[0::2], wanted[1::2], strict=False):
        if not published["value"]:
            assert row["HR@10, published"]["text"] == "–"
            continue
        assert number_in(row["HR@10, published"]) == pytest.approx(float(published["value"]), abs=5e-5)
        assert row["HR@10, clean"]["text"].startswith(f"{float(clean['value']):.4f}")
        assert re.fullmatch(r"[+-]0\.\d{4}", row["HR@10, published minus printed"]["text"])
    assert "(best)" in "".join(row["HR@10, clean"]["text"] for row in shown[:-1])
    # A dataset that is not available has the printed number.
    missing = page.rows("pfedclr_table1-hetrec2011")[0]
    assert (missing["HR@10, clean"]["text"], "data-value" in missing["HR@10, clean"]) == ("–", False)
    assert number_in(missing["HR@10, printed"]) > 0


def test_figures_have_captions_and_data_of_their_own(page):
    *_, alt, _ = (found["alt"] for found in page.all("img"))
    assert alt.startswith("Convergence. Convergence of the federated methods on filmtrust, ml-100k")
    assert "Convergence of the federated methods: 3 < 4 & so on." in page.prose
    assert "../figures/pfedclr_fig10.pdf" in [found["href"] for found in page.all("a")]


def test_everything_from_outside_is_escaped(page):
    assert "FedMF <i>x</i>" in page.prose
    assert UNAVAILABLE["hetrec2011"] in page.prose
    assert page.all("i") == []
    assert "<b>ratings" not in page.text


def test_statistics_are_those_of_the_csv(page):
    ours, missing = page.rows("selected_statistics-counts")
    assert (ours["interactions"]["text"], ours["interactions"]["data-value"]) == ("100,000", "100000")
    assert ours["sparsity, printed"]["text"] == "93.70"
    assert (missing["users"]["text"], missing["match"]["text"]) == ("–", "not available")
    assert "ml-100k: Five stars." in page.prose


def test_a_number_is_said_once_where_its_text_is_that_number(page):
    """Of tens of thousands of numbers on a page most are."""
    said = [cell for name in page.tables for row in page.rows(name) for cell in row.values()]
    twice = [cell["text"] for cell in said if "data-value" in cell]
    assert "100,000" in twice
    assert not [text for text in twice if re.fullmatch(r"[-+]?\d+(\.\d+)?", text)]
    assert [cell["text"] for cell in said if cell.get("class") == "number" and "data-value" not in cell]


def test_every_run_is_listed_with_what_it_was(runs_page, original):
    found = {name: runs_page.rows(f"runs-{name}") for name in DATASETS}
    rows = [row | {"dataset": {"text": name}} for name, some in found.items() for row in some]
    assert len(rows) == len(original.runs) == 2 * 2 * len(METHODS)
    by = {(row["method"]["text"], row["dataset"]["text"], row["protocol"]["text"]): row for row in rows}
    assert by["fedmf[d=8]", "ml-100k", "clean"]["settings changed"]["text"] == "d=8"
    assert by["pfedclr", "ml-100k", "clean"]["settings changed"]["text"] == "layers=32x16"
    mf = by["mf", "filmtrust", "published-pfedclr"]
    assert (mf["settings changed"]["text"], mf["split"]["text"]) == ("none", "cdcdcdcd")
    assert number_in(mf["peak memory, GiB"]) == 1.5
    assert (mf["HR@10"]["text"], mf["NDCG@10"]["text"][:5]) == ("0.7405", "0.370")
    assert mf["files"]["text"] == "run.json, folder"
    caption = runs_page.tables["runs-ml-100k"]["caption"]
    assert "versions fedrec 0.1.0, torch 2.13.0" in caption
    assert "code efefefef" in caption
    links = [unquote(found["href"]) for found in runs_page.all("a")]
    assert "../runs/pfedclr/ml-100k/clean/fedmf@d-8/seed0/run.json" in links


def test_costs_are_per_round_and_client(runs_page):
    row = runs_page.rows("costs-table")[0]
    assert [row[name]["text"] for name in ("seconds per round", "of these, clients", "of these, server")] == [
        "2.500",
        "2.000",
        "0.500",
    ]
    assert (row["KiB received per client"]["text"], row["KiB sent per client"]["text"]) == ("3.0", "1.0")


def test_of_what_stored_runs_are_not_enough_for_the_reason_and_the_command_are_told():
    asked = {"artefacts": ["pfedclr_fig5", "pfedclr_fig6"], "built": [], "unavailable": {}, "datasets": []}
    (row, *_) = missing_table({"pfedclr": load_papers(ROOT / "config/papers")["pfedclr"]}, asked).rows
    texts = [cell.text for cell in row]
    assert texts[1] == "2 figures (5, 6)"
    assert texts[2].startswith("needs models")
    assert texts[3] == "snakemake --cores 2 pfedclr_fig5 pfedclr_fig6"


def test_what_is_missing_is_a_short_table(page):
    rows = [{heading: cell["text"] for heading, cell in row.items()} for row in page.rows("missing-table")]
    assert all(set(row) == {"paper or dataset", "tables and figures", "why", "command"} for row in rows)
    found = {(row["paper or dataset"], row["tables and figures"]): row for row in rows}
    gone = found["PLGC", "1 figure (7)"]
    assert gone["why"].startswith("no dataset is available: ")
    assert f"douban-book: {UNAVAILABLE['douban-book']}" in gone["why"]
    partly = found["PFedCLR", "2 tables (1, 5) and 1 figure (10)"]
    assert partly["why"] == f"shown without hetrec2011: {UNAVAILABLE['hetrec2011']}"
    unasked = [row for row in rows if row["why"] == "not asked for"]
    assert [row["command"] for row in unasked] == [
        f"snakemake --cores 2 {name}" for name in ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap")
    ]
    assert rows[-1]["tables and figures"].startswith("PFedCLR: 2 figures (1, 3); PFedRec: 1 figure (1); ")
    assert rows[-1]["why"] == "show no data, so there is nothing to build"
    assert "plgc_fig7" not in [found.get("id") for _, found in page.tags]


def test_chapters_without_content_are_left_out(page, made):
    headings = [found["id"] for tag, found in page.tags if tag in ("h2", "h3")]
    assert "pfedclr" in headings
    assert not {"pfedrec", "fedem", "plgc", "audit", "verdict"} & set(headings)
    nothing = {name: [] for name in ("datasets", "targets", "artefacts", "built", "statistics", "runs")}
    nothing |= {"kept": {}}
    empty = report(made, **nothing, unavailable={})
    assert [found["id"] for tag, found in empty.tags if tag == "h2"] == ["reading", "missing"]
    assert list(empty.tables) == ["missing-table"]
    assert "This page shows no runs" in empty.prose
    assert "in print" not in empty.prose
    written = (made.folder / "report/report.txt").read_text()
    assert written == "This page compares no methods, so it states no finding.\n"


def test_the_page_begins_with_the_finding_and_its_picture(page, original):
    told = (original.folder / "report/report.txt").read_text(encoding="utf-8").splitlines()
    assert len(told) == 4
    assert told[0] == (
        "On filmtrust, a counter without any model reaches HR@10 1.00 under the published protocol and 0.10 under "
        "the clean one; chance is 0.10."
    )
    first = page.text.index(f"<h1>{told[0].replace(chr(39), '&#39;')}</h1>")
    picture, reading = (page.text.index(word) for word in ('<div id="front">', 'id="reading"'))
    assert first < picture < reading < page.text.index('id="comparisons"')
    image, *others = page.all("img")
    assert image["alt"].startswith(" ".join(told))
    assert len(page.all("source")) == 3  # the front figure and the slopes of both datasets have a narrow one
    assert len(others) == 2 + len([name for name in BUILT if "fig" in name])
    words = page.prose
    assert all(" ".join(sentence.split()) in words for sentence in told)


def test_order_of_chapters(page):
    headings = [found["id"] for tag, found in page.tags if tag == "h2"]
    assert headings == [
        "reading", "comparisons", "pfedclr", "fedrap", "statistics", "protocols", "missing",
    ]  # fmt: skip
    assert "rebuilt beside the printed numbers" in page.prose


def test_a_number_leads_to_its_run(page, runs_page):
    body = page.text[page.text.index('<table id="ml-100k_comparison-1"') :]
    body = body[: body.index("</table>")]
    folder = "runs/pfedclr/ml-100k/clean/fedmf@d-8/seed0"
    assert f'<a href="report.runs.html#{folder}">0.4400</a>' in body
    assert "runs" not in [cell["text"] for cell in page.tables["ml-100k_comparison-1"]["rows"][0]]
    assert f'<tr id="{folder}">' in runs_page.text
    links = [unquote(found["href"]) for found in runs_page.all("a")]
    assert f"../{folder}/run.json" in links
    assert f"../{folder}" in links


def test_a_compared_dataset_that_cannot_be_had_is_listed(made):
    page = report(made, datasets=[*DATASETS, "hetrec2011"])
    (row,) = [row for row in page.rows("missing-table") if row["paper or dataset"]["text"] == "hetrec2011"]
    assert (row["tables and figures"]["text"], row["why"]["text"]) == (
        "methods compared",
        UNAVAILABLE["hetrec2011"],
    )


@pytest.mark.usefixtures("draws_again")
def test_the_same_results_give_the_same_bytes(made):
    first = report(made).text
    assert report(made, runs=made.runs[::-1], built=made.content()["built"][::-1]).text == first


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("tables/pfedclr_table1.json", None, "no such file. Build it with: snakemake"),
        ("tables/pfedclr_table1.json", '{"chapter": null, "tab', "the file is damaged"),
        ("tables/pfedclr_table1.json", "[]", "the file is damaged"),
        ("tables/pfedclr_table1.json", b"\xff", "the file is damaged"),
        ("tables/pfedclr_table1.csv", None, "no such file"),
        ("tables/pfedclr_table1.csv", "", "it is empty"),
        ("tables/pfedclr_table1.tex", None, "no such file"),
        ("tables/ml-100k_comparison.json", '{"chapter": null}', "the file is damaged: it has no checksum"),
        ("tables/selected_statistics.json", '{"chapter": null, "tables": [{"a": 1}]}', "the file is damaged"),
        ("figures/fedrap_fig3.png", b"\x89PNG\r\n\x1a\nhalf", "like a png"),
        ("figures/fedrap_fig3.pdf", b"%PDF-1.4\nhalf", "like a pdf"),
        ("figures/fedrap_fig3.svg", "<svg viewBox='0 0 1 1'>", "like an svg"),
        ("figures/fedrap_fig3.svg", None, "no such file"),
        ("figures/ml-100k_slope.csv", None, "no such file. Build it with: snakemake"),
        ("figures/ml-100k_slope.csv", "dataset,kind\nml-100k,unheard-of\n", "the file is damaged"),
        ("figures/fedrap_fig3.txt", " \n", "it is empty"),
        ("figures/fedrap_fig3.txt", None, "no such file"),
        ("runs/pfedclr/ml-100k/clean/mf/seed0/run.json", None, "this run is not finished"),
        ("runs/pfedclr/ml-100k/clean/mf/seed0/run.json", '{"dataset": "ml', "the file is damaged"),
        ("runs/pfedclr/ml-100k/clean/mf/seed0/run.json", '{"dataset": "x"}', "the file is damaged: it has no checksum"),
        ("runs/pfedclr/ml-100k/clean/mf/seed0/run.json", "[]", "the file is damaged: it has no checksum"),
        ("runs/pfedclr/ml-100k/clean/mf/seed0/timing.parquet", None, "no such file"),
        ("runs/pfedclr/ml-100k/clean/mf/seed0/timing.parquet", b"PAR1", "cannot be read"),
    ],
)  # fmt: skip
def test_a_missing_or_half_file_is_an_error(made, path, content, message):
    (made.folder / path).unlink()
    if content is not None:
        made.write(path, content)
    with pytest.raises(FedrecError, match=message) as caught:
        report(made)
    assert not (made.folder / "report/report.html").exists()
    assert path.partition(".")[0] in str(caught.value)


def test_what_can_be_built_depends_on_the_datasets():
    runs, drawn = Layout("table", needs=("runs",)), Layout("figure", needs=("models",))
    one = Artefact("pfedrec", "table1", "T", "metrics", ("a", "b"))
    assert can_be_built(one, runs, {"a": "gone"})
    assert not can_be_built(one, runs, {"a": "gone", "b": "gone"})
    assert can_be_built(one, runs, {"a": "gone", "b/published-pfedrec": "no order"})
    assert without(one, {"c": "x", "b/published-pfedrec": "no order", "b/published-plgc": "x"}) == {
        "b/published-pfedrec": "no order"
    }
    published = Artefact("pfedrec", "table5", "T", "effort", ("b",), options={"protocols": ["published"]})
    assert not can_be_built(published, runs, {"b/published-pfedrec": "no order"})
    assert can_be_built(Artefact("fedrap", "fig4", "Curricula", "curricula"), drawn, {"a": "gone"})


def test_labels():
    assert [artefact_label(name) for name in ("table3", "fig10", "other")] == [
        "Table 3",
        "Figure 10",
        "other",
    ]


def test_a_table_of_one_line_is_one_table_of_datasets_without_a_best(made):
    one = made.papers["fedrap"].artefacts["table7"]
    rows = [
        {
            "dataset": dataset, "line": "FedRAP", "metric": metric, "protocol": protocol, "of_lines": False,
            "printed": 0.5, "value": place / 10,
        }
        for place, dataset in enumerate(one.datasets)
        for metric in one.metrics
        for protocol in one.protocols
    ]  # fmt: skip
    made.write_table(one.target, rows, metric_tables(one, rows, "A caption.", (), {}))
    found = report(made, artefacts=[one.target], built=[one.target])
    assert [name for name in found.tables if name.startswith(one.target)] == ["fedrap_table7-values"]
    rows = found.rows("fedrap_table7-values")
    assert [row["dataset"]["text"] for row in rows] == list(one.datasets)
    assert [row["HR@10, clean"]["text"] for row in rows] == [f"0.{place}000" for place in range(9)]


def test_rows_lead_to_their_runs_on_the_page_or_to_their_files(page):
    # A run that the page does not list is linked by its file.
    body = page.text[page.text.index('<table id="pfedclr_table1-ml-100k"') :]
    assert '<a href="report.runs.html#runs/pfedclr/ml-100k/fedmf">2 runs</a>' in body
    assert '<a href="../runs/pfedclr/ml-100k/clean/fedncf/seed0/run.json">clean 0</a>' in body


def test_many_runs_of_a_row_are_folded(made):
    rows = [
        {
            "dataset": "x",
            "users": 1,
            "runs": [RunId("p", "d", "clean", "m", seed).folder for seed in range(5)],
        }
    ]
    one = made.papers["pfedclr"].artefacts["table5"]
    made.write_table(one.target, rows, [replace(SHOWN, rows=rows)])
    found = report(made)
    assert (
        '<details class="runs"><summary>5 links</summary><a href="../runs/p/d/clean/m/seed0/run.json">'
        in found.text
    )


def test_a_shared_run_says_whose_settings_it_also_is(runs_page):
    rows = runs_page.rows("runs-ml-100k")
    also = {row["settings also of"]["text"] for row in rows if row["method"]["text"] == "mf"}
    assert also == {"fedem, plgc", "–"}
    assert "is trained once, for the first of them" in runs_page.tables["runs-ml-100k"]["caption"]
