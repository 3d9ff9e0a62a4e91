"""The site of the documentation: every link leads somewhere, nothing is loaded from elsewhere."""

import posixpath
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest

from docs import site
from docs.api import packages_of
from docs.site import build_site, slug
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT


class Links(HTMLParser):
    """What a page leads to, loads, and offers as anchors."""

    def __init__(self, text):
        super().__init__()
        self.links, self.loaded, self.ids = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif "href" in found or "src" in found:
            self.loaded.append(found.get("href") or found["src"])


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "site"
    build_site(folder)
    return folder


@pytest.fixture(scope="module")
def pages(built):
    return {
        path.relative_to(built).as_posix(): Links(path.read_text(encoding="utf-8"))
        for path in built.rglob("*.html")
    }


def test_every_link_leads_to_a_file_and_every_anchor_is_there(built, pages):
    broken = []
    for name, page in pages.items():
        for link in [*page.links, *page.loaded]:
            file, _, anchor = link.partition("#")
            if re.match(r"\w+:", link):
                continue
            path = (
                posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(file))) if file else name
            )
            if not (built / path).is_file() or (anchor and unquote(anchor) not in pages[path].ids):
                broken.append(f"{name}: {link}")
    assert broken == []
    assert len(pages) > 60


def test_pages_load_nothing_from_elsewhere_and_lead_elsewhere_by_https_alone(pages):
    loaded = {link for page in pages.values() for link in page.loaded if re.match(r"\w+:|//", link)}
    assert {link.partition(",")[0].partition(";")[0] for link in loaded} <= {"data:", "data:image/svg+xml"}
    schemes = {
        link.partition(":")[0] for page in pages.values() for link in page.links if re.match(r"\w+:", link)
    }
    assert schemes <= {"https", "http"}


def test_anchors_of_a_page_are_unique(pages):
    assert {name for name, page in pages.items() if len(page.ids) != len(set(page.ids))} == set()


def test_every_document_is_in_the_navigation_of_every_page(built, pages):
    sources = [*(ROOT / "docs").rglob("*.md")]
    documents = {path.relative_to(ROOT).with_suffix(".html").as_posix() for path in sources}
    assert "docs/lab/README.html" in documents
    linked = {
        posixpath.normpath(posixpath.join("docs", link))
        for link in pages["docs/engine.html"].links
        if "#" not in link
    }
    wanted = {"index.html", "results/reference/report/report.html", "api/fedrec.html", "CHANGELOG.html"}
    assert documents | wanted <= linked
    assert 'aria-current="page">' in (built / "docs/engine.html").read_text(encoding="utf-8")


def test_sources_that_a_page_leads_to_come_along_as_text(built):
    text = (built / "config/methods.yaml.html").read_text(encoding="utf-8")
    assert "<pre><code>" in text
    assert "../docs/methods.html" in text


def test_functions_classes_fields_and_constants_are_described(tmp_path):
    package = tmp_path / "made"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").write_text('"""The package."""\n')
    (package / "inner/__init__.py").write_text("")
    (package / "inner/_hidden.py").write_text('"""Hidden."""\n')
    (package / "inner/one.py").write_text(
        '"""A module with `code`."""\n\nLIMIT = 3\n"""How many there are."""\nplain = 4\n\n\n'
        "class One(Base):\n"
        '    """A thing."""\n\n    size: int = 0\n    """Its size."""\n\n'
        '    @property\n    def twice(self) -> int:\n        """Twice <it>."""\n        return 2\n\n'
        "    def _own(self) -> None: ...\n\n\n"
        'def made(a: int, *, b: str = "x") -> One:\n    """Make it."""\n'
    )
    first, second = packages_of(package, str.upper)
    assert [(module.name, module.text) for module in first.modules] == [("made", "THE PACKAGE.")]
    names = [module.name for module in second.modules]
    assert names == ["made.inner", "made.inner.one"]
    assert [(item.name, item.code, item.text) for item in second.modules[1].items] == [
        ("made.inner.one.LIMIT", "LIMIT = 3", "HOW MANY THERE ARE."),
        ("made.inner.one.One", "class One(Base)", "A THING."),
        ("made.inner.one.One.size", "size: int = 0", "ITS SIZE."),
        ("made.inner.one.One.twice", "@property\ndef twice(self) -> int", "TWICE <IT>."),
        ("made.inner.one.made", "def made(a: int, *, b: str='x') -> One", "MAKE IT."),
    ]


def test_what_docstrings_say_is_text_and_no_html(built):
    text = (built / "api/fedrec.reporting.html").read_text(encoding="utf-8")
    assert "<code>fedrec.runs.provenance_columns</code>" in text
    assert not re.search(r"<(script|iframe|object)(?! src=\"../site.js\")", text)


def test_anchors_are_those_of_forges():
    assert slug("`order`: what “latest” means, again") == "order-what-latest-means-again"


def test_a_site_replaces_an_earlier_one_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "packages_of", lambda *_: [])
    monkeypatch.setattr(site.Site, "write", lambda self: (self.out / "index.html").write_text("new") and [])
    out = tmp_path / "out"
    out.mkdir()
    build_site(out)
    (out / "old.html").write_text("old")
    build_site(out)
    assert sorted(path.name for path in out.iterdir()) == [".fedrec-site", "index.html"]
    (out / ".fedrec-site").unlink()
    with pytest.raises(ConfigurationError, match="has files, but not of a site by fedrec"):
        build_site(out)
    assert (out / "index.html").read_text() == "new"
    file = tmp_path / "file"
    file.write_text("mine")
    link = tmp_path / "link"
    link.symlink_to(out)
    for path in (file, link):
        with pytest.raises(ConfigurationError, match="is not a folder"):
            build_site(path)
    assert file.read_text() == "mine"


def test_a_site_that_cannot_be_written_leaves_the_earlier_one(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / ".fedrec-site").touch()
    (out / "index.html").write_text("earlier")
    monkeypatch.setattr(site, "packages_of", lambda *_: [])
    monkeypatch.setattr(site.Site, "write", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        build_site(out)
    assert (out / "index.html").read_text() == "earlier"


def test_a_link_of_a_document_that_leads_nowhere_is_an_error(tmp_path, monkeypatch):
    root = tmp_path / "project"
    (root / "docs").mkdir(parents=True)
    (root / "docs/one.md").write_text("# One\n\n[two](two.md)\n")
    monkeypatch.setattr(site, "ROOT", root)
    monkeypatch.setattr(site, "DOCS", root / "docs")
    monkeypatch.setattr(site, "packages_of", lambda *_: [])
    monkeypatch.setattr(site, "_OTHERS", ())
    made = site.Site(tmp_path / "out")
    with pytest.raises(ConfigurationError, match=r"docs/one.md: links to .*two.md, which does not exist"):
        made._write_one(root / "docs/one.md")
