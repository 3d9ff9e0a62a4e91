"""Files that the page shows or links to; a missing or damaged one is an error."""

import base64
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from fedrec.reporting.built_files import damaged, reading_built
from fedrec.reporting.page.origin import split_by_hash

FIGURE_LINKS = ("csv", "pdf", "png", "svg")
TABLE_LINKS = ("csv", "md", "tex")
"""The forms that the page links to."""
NUMBERS_BESIDE = " Its numbers are in the csv file."
"""The end of a figure's alternative text, if its csv lies beside it."""
_PNG = b"\x89PNG\r\n\x1a\n"
_PNG_END = b"IEND\xaeB`\x82"


_SVG_SIZE = re.compile(r'<svg [^>]*?viewBox="0 0 ([\d.]+) ([\d.]+)"')
_PIXELS = 1.75
"""Pixels of the page per point of a figure: small print of seven points has twelve pixels."""


@dataclass(frozen=True)
class Image:
    """A picture inside the page."""

    uri: str
    width: int
    height: int
    alt: str
    caption: str
    narrow: str | None = None
    """A second picture for narrow screens."""
    origin: str = ""
    """The lines of the caption that contain hashes."""


def image_of(
    stem: Path, description: str, narrow: str | None = None, forms: Sequence[str] = FIGURE_LINKS
) -> Image:
    """A figure with its caption and its alternative text `description`.

    `narrow` is an SVG for narrow screens. Each of the files `forms` must exist and be complete.
    """
    paths = {ending: stem.with_name(f"{stem.name}.{ending}") for ending in ("svg", "png", "pdf", "txt")}
    text = content_of(paths["svg"]).decode("utf-8", "replace")
    size = _SVG_SIZE.search(text)
    if size is None or not text.rstrip().endswith("</svg>"):
        raise damaged(paths["svg"], "it does not begin and end like an svg file")
    if "png" in forms:
        content = content_of(paths["png"])
        if not content.startswith(_PNG) or not content.endswith(_PNG_END):
            raise damaged(paths["png"], "it does not begin and end like a png file")
    if "pdf" in forms and b"%%EOF" not in content_of(paths["pdf"])[-32:]:
        raise damaged(paths["pdf"], "it does not end like a pdf file")
    caption = content_of(paths["txt"]).decode("utf-8").strip()
    if not caption:
        raise damaged(paths["txt"], "it is empty")
    shown, origin = split_by_hash(caption.splitlines())
    width, height = (round(_PIXELS * float(side)) for side in size.groups())
    return Image(
        svg_uri(text),
        width,
        height,
        f"{description}{NUMBERS_BESIDE if 'csv' in forms else ''}",
        "\n".join(shown),
        None if narrow is None else svg_uri(narrow),
        "\n".join(origin),
    )


def svg_image(text: str, narrow: str, alt: str, caption: str) -> Image:
    """A freshly drawn figure, with a second one for narrow screens."""
    size = _SVG_SIZE.search(text)
    assert size is not None, "an SVG has a size"
    width, height = (round(_PIXELS * float(side)) for side in size.groups())
    return Image(svg_uri(text), width, height, alt, caption, svg_uri(narrow))


def svg_uri(text: str) -> str:
    """An SVG as a data address."""
    return f"data:image/svg+xml;base64,{base64.b64encode(text.encode()).decode('ascii')}"


def links_of(stem: Path, endings: Sequence[str], page: Path) -> list[tuple[str, str]]:
    """Ending and address, relative to the page, of each form of a table or figure."""
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in endings]
    for path in paths:
        content_of(path)
    return [(ending, address_of(path, page)) for ending, path in zip(endings, paths, strict=True)]


def content_of(path: Path) -> bytes:
    """The content of a file; raise `ResultError` if it is missing or empty."""
    with reading_built(path):
        content = path.read_bytes()
    if not content:
        raise damaged(path, "it is empty")
    return content


def address_of(path: Path, page: Path) -> str:
    """The address of a file in a link on the page `page`."""
    return quote(Path(os.path.relpath(path, page.parent)).as_posix())
