"""Figures as SVG that follow the reader's colour scheme: transparent, with ink that is light on dark.

What matplotlib writes stays as it is, so that any program shows it, but for what nobody sees: digits of
coordinates, letters of paths that go without saying, names of groups, paint that every mark of a line
repeats, and room between tags. A rule of style for a dark scheme is added for each colour in it. Letters are
paths: no font of the reader's machine moves a label. The same figure gives the same bytes.
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
"""More colours than this are a scale, whose order would be lost if some were lightened."""
_MANY = 1500
"""Points or cells of one kind, or coloured segments of a figure, from which on they are drawn as pixels."""
_COLOURS = 128
"""That pixels have at most: more are not told apart, and take three times the room."""
_LONG = 24
"""Coordinates from which on a line is one of many points, and no shape."""
_RC: dict[Any, Any] = {"svg.hashsalt": "fedrec", "svg.fonttype": "path"}
_HEAD = re.compile(r"^.*?(?=<svg )", re.DOTALL)
_METADATA = re.compile(r"\s*<metadata>.*?</metadata>", re.DOTALL)
_UNSEEN = re.compile(r'<!--.*?-->|(?<=<g) id="[^"]*"')
"""The words of a text, and names that nothing refers to."""
_INDENTED = re.compile(r"\n\s+")
_LETTER = re.compile(r'(<use xlink:href="#[^"]*") transform="translate\((\S+) (\S+)\)"/>')
"""A letter of a text, and how far it is moved."""
_MARKERS = re.compile(
    r'<g((?:(?! style=)[^>])*)>((?:\n<use [^>]*?) style="([^"]*)"/>(?:\n<use [^>]*? style="\3"/>)+\n)(?=</g>)'
)
"""Marks of one line, which are painted alike."""
_FONT = re.compile(r'(?<=")(#?)DejaVuSans-')
_COORDINATES = re.compile(r'(?<= [dxy]=")[^"]*|(?<=translate\()[^)]*')
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_LINE = re.compile(rf"M {_NUMBER.pattern} {_NUMBER.pattern} (?:\nL {_NUMBER.pattern} {_NUMBER.pattern} )*")
"""A line from point to point, or the point at which a path begins."""
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
    """With coordinates to a hundredth of a point, long lines to a tenth and as steps, short names."""
    text = _FONT.sub(r"\1d", _LETTER.sub(r'\1 x="\2" y="\3"/>', _UNSEEN.sub("", text)))
    text = _COORDINATES.sub(lambda place: _placed(place[0]), text)
    return _MARKERS.sub(_painted_once, _INDENTED.sub("\n", text).replace(' y="0"/>', "/>"))


def _painted_once(markers: re.Match[str]) -> str:
    """Marks whose paint is said by their group, from which each has it."""
    group, marks, paint = markers.groups()
    own = f' style="{paint}"'
    return f"<g{group}{own}>{marks.replace(own, '')}"


def _placed(coordinates: str) -> str:
    """A place, or a path, in few digits."""
    path = _LINE.sub(lambda line: _steps(line[0]), coordinates)
    return _NUMBER.sub(lambda number: f"{round(float(number[0]), 2):g}", path).replace("\n", "")


def _steps(line: str) -> str:
    """A line from point to point as the place of the first one and the steps to the others.

    Each step begins where those before it lead, so that what is rounded of them does not add up.
    """
    numbers = [float(number) for number in _NUMBER.findall(line)]
    of_a_point = 10 if len(numbers) > _LONG else 100
    rounded = [round(number * of_a_point) for number in numbers]
    places = list(zip(rounded[::2], rounded[1::2], strict=True))
    moves = [(x - before_x, y - before_y) for (before_x, before_y), (x, y) in pairwise(places)]
    first, *others = (f"{x / of_a_point:g} {y / of_a_point:g}" for x, y in (places[0], *moves))
    return f"M {first}l{' '.join(others)}" if others else f"M {first} "


def _with_few_colours(pixels: str) -> str:
    """A picture of pixels by a palette of its own, where that is smaller."""
    whole, few = base64.b64decode(pixels), io.BytesIO()
    with Image.open(io.BytesIO(whole)) as picture:
        picture.quantize(_COLOURS, method=Image.Quantize.FASTOCTREE).save(few, "png", optimize=True)
    return base64.b64encode(min(few.getvalue(), whole, key=len)).decode("ascii")


def _dark_rules(text: str) -> str:
    """For each colour that an element is filled or drawn with, what it is on a dark ground."""
    paints = sorted(set(_PAINT.findall(text)))
    coloured = {colour for _, colour in paints if not is_grey(colour)}
    rules = [
        f'[style*="{kind}: {colour}"]{{{kind}:{dark}!important}}'
        for kind, colour in paints
        if (is_grey(colour) or len(coloured) <= _SCALE) and (dark := in_the_dark(colour)) != colour
    ]
    # What names no colour is black, by what an SVG inherits.
    ink = f"svg{{fill:{in_the_dark('#000000')}}}"
    return f"@media screen and (prefers-color-scheme:dark){{{ink}{''.join(rules)}}}"


@contextmanager
def _many_as_pixels(figure: Figure) -> Iterator[None]:
    """Inside, points and cells that are too many for an SVG are drawn as pixels."""
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
    """How many lines one after the other an artist draws, each of which has a colour of its own."""
    return len(artist.get_segments()) if isinstance(artist, LineCollection) else 0


def _is_crowd(artist: Artist) -> bool:
    if isinstance(artist, PathCollection):
        return len(artist.get_offsets()) > _MANY  # type: ignore[arg-type]
    cells = artist.get_array() if isinstance(artist, QuadMesh) else None
    return cells is not None and cells.size > _MANY
