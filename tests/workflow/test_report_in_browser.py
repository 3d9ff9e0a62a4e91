"""The report in a real browser: it shows, it sorts, and it asks nobody for anything."""

import json
from urllib.parse import unquote

import pytest

from tests import made_audit
from tests.browser import started
from tests.conftest import ROOT
from tests.made_results import CHOSEN, METHODS, shared_made

ALL_IMAGES = (
    "Promise.all([...document.images].map(async (image) => { image.loading = 'eager'; await image.decode();"
    " return image.naturalWidth; }))"
)


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    made = shared_made(tmp_path_factory).copied(tmp_path_factory.mktemp("report"))
    made_audit.write_audit(made.folder)
    out = made.write_page(audit=list(made_audit.FORMS), forms=made_audit.FORMS)
    return out.as_uri()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = started(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


@pytest.fixture
def page(browser, address):
    browser.open(address)
    return browser


@pytest.fixture
def runs(browser, address):
    browser.open(address.replace("report.html", "report.runs.html"))
    return browser


def heading(table, words):
    return (
        f"[...document.querySelectorAll('#{table} thead th')]"
        f".find((th) => th.textContent === {json.dumps(words)})"
    )


def column(page, table, place):
    return page.ask(
        f"[...document.querySelectorAll('#{table} tbody tr')].filter((row) => !row.hidden)"
        f".map((row) => row.cells[{place}].textContent)"
    )


def test_the_page_loads_alone_and_without_complaint(page, address):
    page.ask("new Promise((done) => setTimeout(done, 200))")
    requested = [found["request"]["url"] for found in page.of("Network.requestWillBeSent")]
    assert {url for url in requested if not url.startswith("data:")} == {address}
    assert page.of("Network.loadingFailed") == []
    assert page.of("Runtime.exceptionThrown") == []
    assert page.of("Runtime.consoleAPICalled") == []
    assert page.of("Log.entryAdded") == []


def test_all_figures_show(page):
    widths = page.ask(ALL_IMAGES)
    # Beside the front figure two datasets have slopes, and the audit has one of its own.
    assert len(widths) == 4 + sum("fig" in name for name in CHOSEN if name != "plgc_fig7")
    assert all(widths)


def test_the_page_beside_the_stored_runs_shows_the_figures_that_lie_there(browser):
    browser.open((ROOT / "results/reference/report/report.html").as_uri())
    widths = browser.ask(ALL_IMAGES)
    assert widths
    assert all(widths)
    assert browser.of("Log.entryAdded") == []


def pixels(page, image):
    """The shares of light and of dark among the pixels of an image, on a transparent ground."""
    return page.ask(
        "(async () => { const image = new Image(); image.src = "
        + image
        + ".currentSrc; await image.decode();"
        " const canvas = document.createElement('canvas'); canvas.width = 400; canvas.height = 300;"
        " const pen = canvas.getContext('2d'); pen.drawImage(image, 0, 0, 400, 300);"
        " const all = pen.getImageData(0, 0, 400, 300).data; let light = 0, dark = 0, clear = 0;"
        " for (let at = 0; at < all.length; at += 4) { const sum = all[at] + all[at + 1] + all[at + 2];"
        " if (all[at + 3] < 128) clear += 1; else if (sum > 600) light += 1; else if (sum < 300) dark += 1; }"
        " return [light, dark, clear].map((one) => one / 120000); })()"
    )


def test_figures_follow_the_colour_scheme_on_a_transparent_ground(page):
    seen = {}
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.open(page.ask("location.href"))
        seen[scheme] = pixels(page, "document.querySelector('.hero img')")
    page.call("Emulation.setEmulatedMedia", features=[])
    (light, dark, clear), (bright, dim, open_ground) = seen["light"], seen["dark"]
    assert min(clear, open_ground) > 0.5
    assert dark > 10 * light
    assert bright > 10 * dim


def test_a_click_sorts_numbers_as_numbers(page):
    original = column(page, "ml-100k_comparison-1", 0)
    th = heading("ml-100k_comparison-1", "HR@10, published")
    orders, states = [], []
    for _ in range(3):
        page.click(f"{th}.querySelector('button')")
        orders.append(column(page, "ml-100k_comparison-1", 0))
        states.append(page.ask(f"{th}.getAttribute('aria-sort')"))
    assert states == ["descending", "ascending", None]
    assert orders[0][:2] == ["draw-counter", "MF"]
    assert orders[1] == orders[0][::-1]
    assert orders[2] == original
    seconds = heading("ml-100k_comparison-1", "seconds per round")
    page.click(f"{seconds}.querySelector('button')")
    found = [float(text) for text in column(page, "ml-100k_comparison-1", 9)]
    assert found == sorted(found, reverse=True)
    assert page.ask("document.querySelectorAll('#ml-100k_comparison-1 [aria-sort]').length") == 1


def test_the_keyboard_sorts_too_and_missing_numbers_come_last(page):
    table = "pfedclr_table1-ml-100k"
    button = f"{heading(table, 'HR@10, clean')}.querySelector('button')"
    for key, code, text in (("Enter", 13, "\r"), (" ", 32, " ")):
        page.ask(f"{button}.focus()")
        page.press(key, code, text)
        found = [text.split()[0] for text in column(page, table, 3)]
        assert found.index("–") == len(found) - 1
        numbers = [float(text) for text in found[:-1]]
        assert numbers == sorted(numbers, reverse=key == "Enter")


def test_words_are_sorted_with_numbers_in_them_in_order(runs):
    runs.click(f"{heading('runs-ml-100k', 'method')}.querySelector('button')")
    found = column(runs, "runs-ml-100k", 0)[::2]
    assert sorted(found) == sorted(METHODS)
    assert found[:4] == ["draw-counter", "fedmf", "fedmf[d=8]", "fedmf[d=16]"]
    assert found[-1] == "popularity"


def test_verdicts_are_sorted_with_their_claims(page):
    original = column(page, "verdicts-1", 0)
    assert "" not in original
    page.click(f"{heading('verdicts-1', 'verdict')}.querySelector('button')")
    words = column(page, "verdicts-1", 4)
    assert words == sorted(words)
    assert column(page, "verdicts-1", 0)[-3:] == ["A part of it helps"] * 3
    page.click(f"{heading('verdicts-1', 'clean')}.querySelector('button')")
    found = [float(text.split()[0]) for text in column(page, "verdicts-1", 3) if text != "–"]
    assert found == [0.2, 0.2, 0.01, 0.01, -0.3, -0.3]
    claims = column(page, "verdicts-1", 0)
    assert (claims[4:6], sorted(claims)) == (["A part of it helps"] * 2, sorted(original))


def test_folded_differences_unfold_and_sort(page):
    seen = "document.getElementById('audit_significance-1').checkVisibility()"
    assert not page.ask(seen)
    page.click("document.querySelector('.audit .folded > summary')")
    assert page.ask(seen)
    page.click(f"{heading('audit_significance-1', 'to best [interval]')}.querySelector('button')")
    assert column(page, "audit_significance-1", 0) == ["PFedCLR", "FedMF <i>x</i>", "draw-counter"]


def test_what_is_folded_is_printed(page):
    states = "[...document.querySelectorAll('.folded')].map((one) => one.open)"
    page.ask("addEventListener('beforeprint', () => { window.seen = " + states + "; })")
    page.call("Page.printToPDF")
    assert (page.ask("window.seen"), page.ask(states)) == ([True, True], [False, False])


def test_a_long_table_is_filtered_by_words_and_by_choices(page):
    search = "document.querySelector('.tools input')"
    page.ask(f"{search}.value = 'HELPS reversed'; {search}.dispatchEvent(new Event('input'))")
    assert column(page, "verdicts-1", 0) == ["A part of it helps"] * 3
    page.ask(f"{search}.value = ''; {search}.dispatchEvent(new Event('input'))")
    names = "[...document.querySelectorAll('.tools select')].map((one) => one.parentElement.firstChild.data.trim())"
    assert page.ask(names) == ["dataset", "verdict", "metric", "paper"]
    choices = "[...document.querySelectorAll('.tools select')[1].options].map((one) => one.text)"
    assert page.ask(choices) == ["all", "holds", "not found", "not testable here", "reversed"]
    for place, value in ((0, "ml-100k"), (1, "reversed"), (2, "HR@10")):
        page.ask(
            f"{{const one = document.querySelectorAll('.tools select')[{place}]; one.value = '{value}';"
            " one.dispatchEvent(new Event('input')); null}"
        )
    assert column(page, "verdicts-1", 0) == ["A part of it helps"]
    count = page.ask("document.querySelector('.tools output').textContent")
    assert count == "1 of 16 rows"


def is_clear(page):
    """Whether the marked row is what a reader sees where it is."""
    return page.ask(
        "(() => { const target = document.querySelector(':target'); const cell = target.querySelector('th');"
        " const r = cell.getBoundingClientRect(); const at = document.elementFromPoint(r.x + 9, r.y + r.height / 2);"
        " const marked = getComputedStyle(cell).backgroundColor !== getComputedStyle(document.body).backgroundColor;"
        " return marked && cell.contains(at) && r.top >= 0 && r.bottom <= innerHeight; })()"
    )


@pytest.mark.parametrize("width", [420, 1400])
def test_numbers_lead_to_rows_that_are_seen_marked_and_have_their_commands(browser, address, width):
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )
    browser.open(address)
    links = browser.ask(
        "[...document.querySelectorAll('#ml-100k_comparison-1 td.number a')].map((one) => one.hash)"
    )
    for place, link in list(enumerate(links))[:: len(links) // 3]:
        browser.open(address)
        browser.events.clear()
        browser.click(f"document.querySelectorAll('#ml-100k_comparison-1 td.number a')[{place}]")
        browser.wait(lambda found: found.get("method") == "Page.loadEventFired")
        wanted = unquote(link[1:])
        assert browser.ask("document.querySelector(':target').id") == wanted
        assert is_clear(browser), wanted
        commands = browser.ask("[...document.querySelectorAll('.chosen code')].map((one) => one.textContent)")
        assert commands[0] == f"snakemake --cores 1 results/{wanted}/run.json"
        assert "fedrec train --data results/data/ml-100k --method" in commands[1]
    browser.call("Emulation.clearDeviceMetricsOverride")


def test_a_button_copies_a_command_or_selects_it(runs, address):
    runs.open("about:blank")
    runs.open(f"{address.replace('report.html', 'report.runs.html')}#runs/pfedclr/ml-100k/fedmf")
    assert is_clear(runs)
    assert "the first of 2" in runs.ask("document.querySelector('.chosen p').textContent")
    button = "document.querySelector('.chosen button')"
    runs.click(button)
    runs.ask("new Promise((done) => setTimeout(done, 200))")
    assert runs.ask(f"{button}.textContent") in ("Copied", "Selected")


def test_what_decides_a_claim_is_inside_the_frame(page):
    for width in (420, 1400):
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
        )
        page.open(page.ask("location.href"))
        sides = page.ask(
            "(() => { const table = document.getElementById('verdicts-1');"
            " const cells = [...table.tBodies[0].rows[0].cells].slice(0, 5);"
            " const frame = table.parentElement.getBoundingClientRect();"
            " return [Math.max(...cells.map((one) => one.getBoundingClientRect().right)), frame.right]; })()"
        )
        assert sides[0] <= sides[1], width
    page.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize(("width", "metrics"), [(420, ["HR@10"]), (1400, ["HR@10", "NDCG@10"])])
def test_what_decides_in_a_table_of_a_paper_is_inside_the_frame(page, width, metrics):
    page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )
    page.open(page.ask("location.href"))
    wanted = [f"{metric}, {side}" for metric in metrics for side in ("printed", "published", "clean")]
    frame, sides = page.ask(
        "(() => { const table = document.getElementById('pfedclr_table1-ml-100k');"
        f" const wanted = {json.dumps(wanted)};"
        " const heads = [...table.tHead.rows[0].cells].filter((one) => wanted.includes(one.textContent));"
        " const rows = [table.tHead.rows[0], ...table.tBodies[0].rows];"
        " return [table.parentElement.getBoundingClientRect().right, heads.map((head) => Math.max("
        " ...rows.map((row) => row.cells[head.cellIndex].getBoundingClientRect().right)))]; })()"
    )
    page.call("Emulation.clearDeviceMetricsOverride")
    assert len(sides) == len(wanted)
    assert max(sides) <= frame


def test_numbers_of_the_front_figure_unfold_and_lead_to_their_runs(page):
    assert not page.ask("document.getElementById('front-numbers').checkVisibility()")
    page.click("document.querySelector('#front .folded > summary')")
    assert page.ask("document.getElementById('front-numbers').checkVisibility()")
    links = page.ask("[...document.querySelectorAll('#front-numbers td a')].map((one) => one.hash)")
    assert len(links) == 2 * len(column(page, "front-numbers", 0))
    assert all(unquote(link).startswith("#runs/") for link in links)


def test_on_paper_there_is_no_navigation_and_no_table_is_cut(page):
    page.call("Emulation.setEmulatedMedia", media="print")
    hidden, cut = page.ask(
        "[['nav', '.tools', '.skip'].every((one) => [...document.querySelectorAll(one)]"
        ".every((found) => !found.checkVisibility())),"
        " [...document.querySelectorAll('.scroll')].filter((one) => getComputedStyle(one).overflowX !== 'visible'"
        " || getComputedStyle(one).maxHeight !== 'none').length]"
    )
    page.call("Emulation.setEmulatedMedia", media="")
    assert (hidden, cut) == (True, 0)


def test_the_finding_and_its_picture_are_on_the_first_screen(page):
    page.call("Emulation.setDeviceMetricsOverride", width=1400, height=900, deviceScaleFactor=1, mobile=False)
    page.open(page.ask("location.href"))
    ends = page.ask(
        "['h1', '.hero .picture'].map((one) => document.querySelector(one).getBoundingClientRect().bottom)"
    )
    assert max(ends) <= 900
    page.call("Emulation.clearDeviceMetricsOverride")


def test_a_narrow_screen_gets_the_narrow_picture_and_a_hint_where_it_scrolls(page):
    chosen, hints = [], []
    for width in (420, 1400):
        page.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
        )
        page.open(page.ask("location.href"))
        chosen.append(page.ask("document.querySelector('.hero img').currentSrc"))
        hints.append(page.ask("[...document.querySelectorAll('.hint')].some((one) => one.checkVisibility())"))
        sides = page.ask(
            "(() => { const r = document.querySelector('.hero img').getBoundingClientRect();"
            " return [r.left, r.right]; })()"
        )
        assert 0 <= sides[0] < sides[1] <= width
    assert chosen[0] != chosen[1]
    assert hints == [True, False]
    page.call("Emulation.clearDeviceMetricsOverride")


@pytest.mark.parametrize("width", [360, 420, 1400])
def test_the_page_is_as_wide_as_the_screen(page, width):
    page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
    )
    page.open(page.ask("location.href"))
    assert page.ask("document.documentElement.scrollWidth") <= width
    assert page.ask("document.querySelector('.contents').open") == (width > 1000)
    page.call("Emulation.clearDeviceMetricsOverride")


def test_dark_is_dark(page):
    grounds = []
    for scheme in ("light", "dark"):
        page.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        grounds.append(page.ask("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(20, 23, 27)"]
