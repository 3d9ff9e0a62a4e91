"""Copy tables, figures and the page that were built from stored runs next to the runs."""

import base64
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from fedrec.errors import ResultError
from fedrec.files.checked_json import write_checked_json
from fedrec.reporting.page.files import NUMBERS_BESIDE

_READ = {
    "tables": (".md", ".csv"),
    "tuning": (".md", ".csv"),
    "figures": (".svg", ".txt"),
    "report": (".html", ".txt"),
}
"""The folders of results that are copied, with the endings of the copied files."""
PUBLISHED_FROM = "published.json"
"""The file with the checksum of the runs from which the copied files were built."""
_LINK = re.compile(r'<a href="(\.\./[^"#]+)">(.*?)</a>')
"""A link from the page to another file of the results."""
_LINKS = re.compile(rf"{_LINK.pattern}(?:, {_LINK.pattern})+")
"""Several links in a row: the forms of a table, the files of a run."""
_PACKED = "packed"
"""The word that replaces links if none of their files is copied."""
_PICTURE = re.compile(r"data:image/svg\+xml;base64,([A-Za-z0-9+/=]+)")
"""A picture inside the page."""
_NUMBERS_BUILT = " Its numbers are in the csv file that `fedrec reference build` writes."
"""The end of a figure's alternative text: of its files, only the picture is copied."""
_OWN_PICTURES, _PICTURES_BESIDE = "img-src data:;", "img-src data: 'self' file:;"
"""The image policy of a page with all pictures inside, and of one that links to files."""


def publish(results: Path, store: Path) -> list[Path]:
    """Copy the files that were built from a store into it; remove earlier copies."""
    for folder in _READ:
        shutil.rmtree(store / folder, ignore_errors=True)
    files = list(_files(results))
    if not files:
        raise ResultError(f"{results}: has no built files. Build them with: fedrec reference build")
    copied = []
    for file in files:
        path = store / file.relative_to(results)
        path.parent.mkdir(parents=True, exist_ok=True)
        copied.append(Path(shutil.copyfile(file, path)))
    for page in (path for path in copied if path.suffix == ".html"):
        text = page.read_text(encoding="utf-8").replace(NUMBERS_BESIDE, _NUMBERS_BUILT)
        text = _with_links_that_lead(page, text)
        page.write_text(_with_picture_files(text, page, store / "figures"), encoding="utf-8")
    write_checked_json(store / PUBLISHED_FROM, {"runs": store_checksum(store)})
    return copied


def store_checksum(store: Path) -> str:
    """Checksum of all stored runs."""
    digest = hashlib.sha256()
    for path in sorted(store.rglob("*.parquet")):
        digest.update(f"{path.relative_to(store).as_posix()}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _with_links_that_lead(page: Path, text: str) -> str:
    """A page without links to files that are not copied, such as those of packed runs.

    A row of links keeps the working ones; a single broken link becomes its text.
    """

    def leads(link: re.Match[str]) -> bool:
        return (page.parent / link[1]).exists()

    def left(links: re.Match[str]) -> str:
        return ", ".join(link[0] for link in _LINK.finditer(links[0]) if leads(link)) or _PACKED

    return _LINK.sub(lambda link: link[0] if leads(link) else link[2], _LINKS.sub(left, text))


def _with_picture_files(text: str, page: Path, figures: Path) -> str:
    """A page that links to the copied figures, instead of containing them a second time."""
    there = {path.read_bytes(): path for path in sorted(figures.glob("*.svg"))}

    def linked(picture: re.Match[str]) -> str:
        path = there.get(base64.b64decode(picture[1]))
        return picture[0] if path is None else os.path.relpath(path, page.parent)

    return _PICTURE.sub(linked, text).replace(_OWN_PICTURES, _PICTURES_BESIDE)


def _files(results: Path) -> Iterator[Path]:
    for folder, endings in _READ.items():
        for path in sorted((results / folder).glob("*")):
            if path.suffix in endings:
                yield path
