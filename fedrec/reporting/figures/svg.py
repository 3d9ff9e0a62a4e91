"""Figures as SVG that follow the reader's colour scheme: transparent, with light ink on a dark background.

The code shortens matplotlib's SVG without a visible change: fewer digits of coordinates, implied path
commands, no names of groups, shared paint, no blanks between tags. It adds a style rule for a dark scheme for
each colour. Letters are paths, so labels do not depend on fonts of the machine. The same figure gives the
same bytes.
"""

import base64
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist
from matplotlib.collections import LineCollection, PathCollection, QuadMesh
from matplotlib.figure import Figure
from PIL import Image

from fedrec.reporting.figures.colours import in_the_dark, is_grey

_SCALE = 24
"""With more colours, they form a scale, whose order would be lost if some were lightened."""
_MANY = 1500
"""From so many points, cells or coloured segments on, they are drawn as pixels."""
_COLOURS = 128
"""The most colours of pixels: more look the same and take three times the space."""
_LONG = 24
"""From so many coordinates on, a path is a line through data, not a shape."""
_RC: dict[Any, Any] = {"svg.hashsalt": "fedrec", "svg.fonttype": "path"}
_HEAD = re.compile(r"^.*?(?=<svg )", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_UNSEEN = re.compile(r'<!--.*?-->|(?<=<g) id="[^"]*"')
"""Comments, and names that nothing refers to."""
_INDENTED = re.compile(r"\n\s+")
_LETTER = re.compile(r'(<use xlink:href="#[^"]*") transform="translate\((\S+) (\S+)\)"/>')
"""A letter of a text, and its offset."""
_MARKERS = re.compile(
    r'<g((?:(?! style=)[^>])*)>((?:\n<use [^>]*?) style="([^"]*)"/>(?:\n<use [^>]*? style="\3"/>)+\n)(?=</g>)'
)
"""Markers of one line, which share their paint."""
_FONT = re.compile(r'(?<=")(#?)DejaVuSans-')
_COORDINATES = re.compile(r'(?<= [dxy]=")[^"]*|(?<=translate\()[^)]*')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LINE = re.compile(rf"M {_NUMBER.pattern} {_NUMBER.pattern} (?:\nL {_NUMBER.pattern} {_NUMBER.pattern} )*")
"""A polyline, or the first point of a path."""
_PIXELS = re.compile(r"(?<=data:image/png;base64,)[A-Za-z0-9+/=\s]+")
_PAINT = re.compile(r"(fill|stroke): (#[0-9a-f]{6})")


def svg_of(figure: Figure) -> str:
    """The figure as the text of an SVG file."""
    stream = io.StringIO()
    with mpl.rc_context(_RC), _many_as_pixels(figure):
        figure.savefig(stream, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = _shortened(_METADATA.sub("", _HEAD.sub("", stream.getvalue(), count=1)))
    text = _PIXELS.sub(lambda pixels: _with_few_colours(pixels[0]), text)
    opened = text.index(">") + 1
    return f"{text[:opened]}\n <style>{_dark_rules(text)}</style>{text[opened:]}"


def _shortened(text: str) -> str:
    """Shorten an SVG: coordinates to 0.01 points, long lines to 0.1 and as relative steps, short names."""
    text = _FONT.sub(r"\1d", _LETTER.sub(r'\1 x="\2" y="\3"/>', _UNSEEN.sub("", text)))
    text = _COORDINATES.sub(lambda place: _placed(place[0]), text)
    return _MARKERS.sub(_painted_once, _INDENTED.sub("\n", text).replace(' y="0"/>', "/>"))


def _painted_once(markers: re.Match[str]) -> str:
    """Markers that inherit their paint from their group."""
    group, marks, paint = markers.groups()
    own = f' style="{paint}"'
    return f"<g{group}{own}>{marks.replace(own, '')}"


def _placed(coordinates: str) -> str:
    """A position or a path with few digits."""
    path = _LINE.sub(lambda line: _steps(line[0]), coordinates)
    return _NUMBER.sub(lambda number: f"{round(float(number[0]), 2):g}", path).replace("\n", "")


def _steps(line: str) -> str:
    """A polyline as its first point and relative steps.

    Each step begins at the rounded end of the steps before it, so that rounding errors do not accumulate.
    """
    numbers = [float(number) for number in _NUMBER.findall(line)]
    of_a_point = 10 if len(numbers) > _LONG else 100
    rounded = [round(number * of_a_point) for number in numbers]
    points = list(zip(rounded[::2], rounded[1::2], strict=True))
    moves = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(points)]
    first, *others = (f"{x / of_a_point:g} {y / of_a_point:g}" for x, y in (points[0], *moves))
    return f"M {first}l{' '.join(others)}" if others else f"M {first} "


def _with_few_colours(pixels: str) -> str:
    """An image of pixels with its own palette, if that is smaller."""
    whole, few = base64.b64decode(pixels), io.BytesIO()
    with Image.open(io.BytesIO(whole)) as picture:
        picture.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE).save(few, "png", optimize=True)
    return base64.b64encode(min(few.getvalue(), whole, key=len)).decode("ascii")


def _dark_rules(text: str) -> str:
    """The style rules of all colours on a dark background."""
    paints = sorted(set(_PAINT.findall(text)))
    coloured = {colour for _, colour in paints if not is_grey(colour)}
    rules = [
        f'[style*="{kind}: {colour}"]{{{kind}:{dark}!important}}'
        for kind, colour in paints
        if (is_grey(colour) or len(coloured) <= _SCALE) and (dark := in_the_dark(colour)) != colour
    ]
    # Elements without a colour are black by default.
    ink = f"svg{{fill:{in_the_dark('#000000')}}}"
    return f"@media screen and (prefers-color-scheme:dark){{{ink}{''.join(rules)}}}"


@contextmanager
def _many_as_pixels(figure: Figure) -> Iterator[None]:
    """Draw points and cells as pixels inside, if there are too many for an SVG."""
    paths = figure.findobj(LineCollection)
    many_paths = sum(_segments(path) for path in paths) > _MANY
    crowds = [
        one
        for one in figure.findobj(lambda one: _is_crowd(one) or (many_paths and _segments(one) > 1))
        if not one.get_rasterized()
    ]
    for one in crowds:
        one.set_rasterized(True)
    try:
        yield
    finally:
        for one in crowds:
            one.set_rasterized(False)


def _segments(artist: Artist) -> int:
    """The number of separately coloured segments that an artist draws."""
    return len(artist.get_segments()) if isinstance(artist, LineCollection) else 0


def _is_crowd(artist: Artist) -> bool:
    if isinstance(artist, PathCollection):
        return len(artist.get_offsets()) > _MANY  # type: ignore[arg-type]
    cells = artist.get_array() if isinstance(artist, QuadMesh) else None
    return cells is not None and cells.size > _MANY
