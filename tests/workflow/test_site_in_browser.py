"""The site in a real browser, opened from the disk: it searches, it prints, and it fits narrow screens."""

import pytest

from docs.site import build_site
from tests.browser import started

ASK_COUNT = "document.getElementById('found-count').textContent"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    build_site(folder)
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = started(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def waited(browser, condition):
    return browser.ask(
        "new Promise((done) => { const until = Date.now() + 20000; const look = () => { const found = "
        f"({condition}); if (found || Date.now() > until) done(found); else setTimeout(look, 50); }}; look(); }})"
    )


def typed(browser, text):
    for letter in text:
        browser.press(letter, ord(letter.upper()), letter)


def test_the_keyboard_alone_finds_a_section(browser, site):
    browser.open((site / "docs/engine.html").as_uri())
    assert browser.ask("document.getElementById('search').checkVisibility()")
    browser.press("/", 191, "/")
    assert browser.ask("document.activeElement.id") == "search"
    typed(browser, "user_ranks")
    assert waited(browser, f"{ASK_COUNT} !== ''")
    assert browser.ask("document.getElementById('found').checkVisibility()")
    browser.press("ArrowDown", 40)
    first = browser.ask("document.activeElement.href")
    assert first.endswith("/api/fedrec.runs.html#fedrec.runs.record.RunRecord.user_ranks")
    browser.press("Escape", 27)
    assert not browser.ask("document.getElementById('found').checkVisibility()")
    browser.ask("document.getElementById('search').dispatchEvent(new Event('input')); null")
    assert waited(browser, "document.getElementById('found').checkVisibility()")
    browser.events.clear()
    browser.press("Enter", 13, "\r")
    browser.wait(lambda found: found.get("method") == "Page.loadEventFired")
    assert browser.ask("document.querySelector(':target').id") == "fedrec.runs.record.RunRecord.user_ranks"


def test_what_no_page_has_is_found_nowhere(browser, site):
    browser.open((site / "index.html").as_uri())
    browser.ask("document.getElementById('search').focus(); null")
    typed(browser, "qqzzqq")
    assert waited(browser, f"{ASK_COUNT} !== ''")
    assert browser.ask(ASK_COUNT) == "0 places"


def test_only_files_of_the_site_are_loaded(browser, site):
    browser.open((site / "index.html").as_uri())
    asked = {found["request"]["url"] for found in browser.of("Network.requestWillBeSent")}
    assert asked
    assert {url for url in asked if not url.startswith(("data:", site.as_uri()))} == set()
    assert browser.of("Log.entryAdded") == []
    assert browser.of("Runtime.exceptionThrown") == []


@pytest.mark.parametrize(
    "page",
    ["index.html", "docs/protocols.html", "docs/results.html", "api/fedrec.html", "api/fedrec.runs.html"],
)
def test_pages_are_as_wide_as_a_narrow_screen(browser, site, page):
    browser.call(
        "Emulation.setDeviceMetricsOverride", width=420, height=800, deviceScaleFactor=1, mobile=False
    )
    browser.open((site / page).as_uri())
    width = browser.ask("document.documentElement.scrollWidth")
    is_open = browser.ask("document.querySelector('.contents').open")
    browser.call("Emulation.clearDeviceMetricsOverride")
    assert (width <= 420, is_open) == (True, False)


def test_dark_is_dark(browser, site):
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.call("Emulation.setEmulatedMedia", features=features)
    browser.open((site / "docs/protocols.html").as_uri())
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    browser.call("Emulation.setEmulatedMedia", features=[])
    assert ground == "rgb(20, 23, 27)"


def test_on_paper_there_is_no_navigation_and_links_say_where_they_lead(browser, site):
    browser.open((site / "docs/protocols.html").as_uri())
    browser.call("Emulation.setEmulatedMedia", media="print")
    seen = browser.ask("['nav', '.search'].filter((one) => document.querySelector(one).checkVisibility())")
    behind = browser.ask(
        "[...document.querySelectorAll('main p a[href*=\".html\"]')].map((one) => "
        "getComputedStyle(one, '::after').content)"
    )
    cut = browser.ask(
        "[...document.querySelectorAll('.scroll')].filter((one) => getComputedStyle(one).overflowX !== 'visible')"
        ".length"
    )
    browser.call("Emulation.setEmulatedMedia", media="")
    assert (seen, cut) == ([], 0)
    assert behind
    assert all(".html" in text for text in behind)


def test_the_page_of_results_leads_back_to_the_documents(browser, site):
    browser.open((site / "results/reference/report/report.html").as_uri())
    browser.events.clear()
    browser.click("document.querySelector('.eyebrow a')")
    browser.wait(lambda found: found.get("method") == "Page.loadEventFired")
    assert browser.ask("location.href") == (site / "index.html").as_uri()
