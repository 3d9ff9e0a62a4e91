"""Build the documentation, the pages of results and the API reference as a folder of HTML.

    python -m docs.site OUT

The first page is OUT/index.html. It opens from the disk without a network, and any web server can serve it.
Files that a page links to are included: Markdown as HTML, sources as text, other files unchanged.
"""

import argparse
import html
import itertools
import json
import os
import posixpath
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, unquote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup, escape

from docs.api import packages_of
from docs.tables.numbers import DOCS, ROOT
from fedrec.errors import ConfigurationError

REPORT = ROOT / "results/reference/report/report.html"
_TABLES = ROOT / "results/reference/tables"
"""Tables that the page of results also shows, mostly at the anchor of their name."""
_STYLED_LIKE = ROOT / "fedrec/reporting/page"
"""The folder with style and script of the page of results."""
_START = ROOT / "README.md"
_OTHERS = (ROOT / "config/README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
_MARK = ".fedrec-site"
"""The file that marks a folder as a site by fedrec."""
_AS_THEY_ARE = {".html", ".svg", ".png", ".csv", ".pdf", ".txt"}
"""Endings of files that browsers can show."""
_TEMPLATES = DOCS / "templates"
_INTERFACE = (
    "fedrec",
    "fedrec.federation.model",
    "fedrec.plan.layouts",
    "fedrec.runs.record",
)
"""The modules for scripts and method files, which come first in the navigation."""
_INDEX = "search-index.js"
"""The file of all sections, which a page loads for a search."""
_SECTION, _BRIEFLY = 1500, 160
"""The most letters of a section in the search, and of the description of an internal module."""
_HEADING = re.compile(r'<h[1-4][^>]*? id="([^"]+)"[^>]*>(.*?)</h[1-4]>', re.DOTALL)
_TAG = re.compile(r"<(?:style|script).*?</(?:style|script)>|<[^>]+>", re.DOTALL)
_EYEBROW = '<p class="eyebrow">'
"""The beginning of the header of a page of results."""
_ADDRESS = re.compile(r'(?:href|src|srcset)="([^"#:]+?)(?:#[^"]*)?"')
"""The address of a file in a page of HTML, without other schemes."""


class Site:
    """A site in a folder: files keep their paths relative to the project's root."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._asked: dict[Path, None] = {}
        self._sections: list[tuple[str, str, str, str]] = []
        self._packages = packages_of(ROOT / "fedrec", _docstring_html)

    def write(self) -> list[Path]:
        """Write all pages and the files that they link to; return the sources."""
        for path in (_START, *sorted(DOCS.rglob("*.md")), *_OTHERS, REPORT):
            self._asked[path] = None
        done: list[Path] = []
        while len(done) < len(self._asked):
            path = list(self._asked)[len(done)]
            self._write_one(path)
            done.append(path)
        for package in self._packages:
            body = _template("api.html").render(package=package, address_of=self._address_of_name)
            self._page(f"api/{package.name}.html", package.name, body)
        style = [_STYLED_LIKE / "page.css", _TEMPLATES / "site.css"]
        self._file("site.css", "\n".join(path.read_text(encoding="utf-8") for path in style))
        script = [_STYLED_LIKE / "page.js", _TEMPLATES / "search.js"]
        self._file("site.js", "\n".join(path.read_text(encoding="utf-8") for path in script))
        self._file(_INDEX, f"window.fedrecSections = {json.dumps(self._sections, ensure_ascii=False)};\n")
        self._file(_MARK, "Written by `python -m docs.site`, which replaces this folder.\n")
        return done

    def address(self, path: Path) -> str:
        """The address of a project file in the site."""
        name = path.relative_to(ROOT).as_posix()
        if path == _START:
            return "index.html"
        if path.is_dir():
            return f"{name}/index.html"
        if path.suffix == ".md":
            return f"{name.removesuffix('.md')}.html"
        return name if path.suffix in _AS_THEY_ARE else f"{name}.html"

    def _write_one(self, path: Path) -> None:
        if path.is_dir():
            files = [one for one in sorted(path.iterdir()) if one.is_file() and one.suffix in _AS_THEY_ARE]
            lines = [f"- [{one.name}]({quote(one.name)})" for one in files]
            self._markdown(path, "\n".join([f"# {path.name}", "", *lines]), path)
        elif path.suffix == ".md":
            self._markdown(path, path.read_text(encoding="utf-8"), path.parent)
        elif path.suffix in _AS_THEY_ARE:
            self._copy(path)
        else:
            name = path.relative_to(ROOT).as_posix()
            text = escape(path.read_text(encoding="utf-8"))
            self._page(self.address(path), name, f"<h1>{name}</h1><pre><code>{text}</code></pre>")

    def _copy(self, path: Path) -> None:
        """Copy a file and, for a page of HTML, the files that it links to."""
        target = self.out / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        if path.suffix != ".html":
            return
        address = self.address(path)
        text = path.read_text(encoding="utf-8")
        up = "../" * address.count("/")
        back = f'{_EYEBROW}<a href="{up}index.html">Documentation and search</a> · '
        self._file(address, text.replace(_EYEBROW, back, 1))
        for anchor, heading, _ in _sections_of(text):
            self._sections.append((f"{address}#{anchor}", "Results", heading, ""))
        for address in dict.fromkeys(_ADDRESS.findall(path.read_text(encoding="utf-8"))):
            linked = _inside(path.parent / unquote(address), path)
            if linked.suffix == ".md":
                # The page links to the Markdown itself.
                shutil.copyfile(linked, self._place(linked.relative_to(ROOT).as_posix()))
            else:
                self._asked.setdefault(linked)

    def _markdown(self, path: Path, text: str, folder: Path) -> None:
        """Write a page of Markdown with links to pages of the site, and request the linked files."""
        here = self.address(path)
        tokens = _parser(html=True).parse(text)
        for token in _every(tokens):
            for name in ("href", "src"):
                if name in token.attrs:
                    token.attrs[name] = self._link(str(token.attrs[name]), path, folder, here)
        title = next((one.content for one in _headings(tokens) if one.content), path.name)
        body = _parser(html=True).renderer.render(tokens, _parser(html=True).options, {})
        self._page(here, re.sub(r"[`*]", "", title), body)

    def _link(self, link: str, page: Path, folder: Path, here: str) -> str:
        """A link of a Markdown page, adapted to the site."""
        file, sign, anchor = link.partition("#")
        if not file or re.match(r"\w+:", file):
            return link
        path = _inside(folder / unquote(file), page)
        if path.parent == _TABLES and path.suffix == ".md" and path.stem in _anchors(REPORT):
            path, sign, anchor = REPORT, "#", path.stem
        self._asked.setdefault(path)
        return quote(posixpath.relpath(self.address(path), posixpath.dirname(here))) + sign + anchor

    def _address_of_name(self, name: str) -> str:
        """The address of a name's description, relative to a page of the same folder."""
        pages = {
            one: f"{package.name}.html#{one}"
            for package in self._packages
            for module in package.modules
            for one in (module.name, *(item.name for item in module.items))
        }
        return pages.get(name) or pages[name.rpartition(".")[0]]

    def _page(self, address: str, title: str, body: str) -> None:
        is_source = address.endswith((".yaml.html", ".py.html", ".toml.html"))
        for anchor, heading, text in [] if is_source else _sections_of(body):
            briefly = title.startswith("fedrec.") and not anchor.startswith(_INTERFACE[1:])
            letters = _BRIEFLY if briefly else _SECTION
            self._sections.append((f"{address}#{anchor}", title, heading, text[:letters]))
        up = "../" * address.count("/")
        page = _template("site.html").render(
            title=title if title == "fedrec" else f"{title} - fedrec",
            up=up,
            here=address,
            groups=self._groups(),
            body=Markup(body),  # noqa: S704 - rendered from files of the project
        )
        self._file(address, page)

    @cache  # noqa: B019 - a site lives as long as the command that writes it
    def _groups(self) -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
        """The navigation of every page."""
        report = self.address(REPORT)
        return [
            ("Start", [("fedrec", "index.html"), *((_title(path), self.address(path)) for path in _OTHERS)]),
            ("Results", [("All results", report), ("Runs", report.replace(".html", ".runs.html"))]),
            (
                "Python interface",
                [(name, f"api/{self._address_of_name(name)}") for name in self._interface()],
            ),
            ("Documents", sorted((_title(path), self.address(path)) for path in DOCS.glob("*.md"))),
            ("Lab notes", sorted((_title(path), self.address(path)) for path in DOCS.glob("lab/*.md"))),
            ("All modules", [(one.name, f"api/{one.name}.html") for one in self._packages]),
        ]

    def _interface(self) -> list[str]:
        """The existing modules that come first in the navigation."""
        there = {module.name for package in self._packages for module in package.modules}
        return [name for name in _INTERFACE if name in there]

    def _file(self, address: str, text: str) -> None:
        self._place(address).write_text(text, encoding="utf-8")

    def _place(self, address: str) -> Path:
        path = self.out / address
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def build_site(out: Path) -> list[Path]:
    """Write the site into a folder, replacing an earlier site, but nothing else.

    It is written beside the folder first, so an interrupted build keeps the earlier site.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise ConfigurationError(f"{out}: is not a folder. Name another one.")
    if out.exists() and any(out.iterdir()) and not (out / _MARK).is_file():
        raise ConfigurationError(f"{out}: has files, but not of a site by fedrec. Name another folder.")
    part = out.resolve().with_name(f".{out.resolve().name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    (part / _MARK).touch()
    sources = Site(part).write()
    shutil.rmtree(out, ignore_errors=True)
    part.replace(out.resolve())
    return sources


def slug(heading: str) -> str:
    """The anchor of a heading, by the rule of code forges."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def _sections_of(body: str) -> Iterator[tuple[str, str, str]]:
    """The sections of a page of HTML: anchor, heading and text without tags."""
    parts = _HEADING.split(body)
    for anchor, heading, below in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        yield anchor, _words(heading).removesuffix(" #"), _words(below)


def _words(text: str) -> str:
    return " ".join(html.unescape(_TAG.sub(" ", text)).split())


def _inside(path: Path, page: Path) -> Path:
    """The project file that a page links to."""
    target = Path(os.path.normpath(path))
    if not target.is_relative_to(ROOT) or not target.exists():
        raise ConfigurationError(
            f"{page.relative_to(ROOT)}: links to {target}, which does not exist. Correct the link."
        )
    return target


@cache
def _anchors(page: Path) -> frozenset[str]:
    """The anchors of a page of HTML."""
    return frozenset(re.findall(r' id="([^"]+)"', page.read_text(encoding="utf-8")))


@cache
def _parser(*, html: bool) -> MarkdownIt:
    """A parser of Markdown, with HTML for the project's pages, without for docstrings."""
    parser = MarkdownIt("commonmark", {"html": html}).enable("table")
    parser.core.ruler.push("anchors", lambda state: _add_anchors(state.tokens))
    parser.add_render_rule("table_open", lambda *_: f"{_FRAME}<table data-sortable>")
    parser.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return parser


_FRAME = '<div class="scroll" role="region" tabindex="0" aria-label="A table">'


def _add_anchors(tokens: Sequence[Token]) -> None:
    """Add anchors to headings, and a class to cells with numbers."""
    seen: dict[str, int] = {}
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open":
            anchor = slug("".join(one.content for one in inline.children or ()))
            again = seen[anchor] = seen.get(anchor, -1) + 1
            token.attrs["id"] = f"{anchor}-{again}" if again else anchor
        elif token.type in ("th_open", "td_open") and token.attrs.pop("style", "") == "text-align:right":
            token.attrs["class"] = "number"


def _headings(tokens: Sequence[Token]) -> Iterator[Token]:
    """The content of headings."""
    for token, inline in itertools.pairwise(tokens):
        if token.type == "heading_open":
            yield inline


def _every(tokens: Sequence[Token]) -> Iterator[Token]:
    """Tokens and their children."""
    for token in tokens:
        yield token
        yield from _every(token.children or ())


def _docstring_html(text: str) -> str:
    return Markup(_parser(html=False).render(text))  # noqa: S704 - the parser escapes what is no Markdown


def _title(path: Path) -> str:
    """The first heading of a page of Markdown."""
    heading = next(_headings(_parser(html=True).parse(path.read_text(encoding="utf-8"))))
    return re.sub(r"[`*]", "", heading.content)


@cache
def _template(name: str) -> Any:  # noqa: ANN401 - jinja2's own type says no more
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template(name)


def main() -> None:
    """Write the site and print the path of its first page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("out", type=Path, help="the folder to write")
    out = cast("Path", parser.parse_args().out)
    try:
        build_site(out)
    except (ConfigurationError, OSError) as error:
        sys.exit(f"python -m docs.site: {error}")
    print(f"Open {out / 'index.html'}")


if __name__ == "__main__":
    main()
