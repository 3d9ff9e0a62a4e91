"""Guesses at how files are to be read, and that the reader reads them so."""

import datetime
import gzip

import polars as pl
import pytest

from fedrec.data import guess
from fedrec.data.guess import guess_format
from fedrec.data.parse import read_interactions
from fedrec.errors import DataError

TABLES = {
    "comma, header, umlauts": (
        "Kunde,Buch,Bewertung,Zeit\nKäufer-1,Bücher/7,5,1600000000\nKäufer-2,Bücher/8,3,1600000001\n",
        {"user": "Kunde", "item": "Buch", "rating": "Bewertung", "time": "Zeit"},
        {"separator": ",", "header": True, "ids": "text"},
    ),
    "MovieLens 100K": (
        "196\t242\t3\t881250949\n186\t302\t3\t891717742\n",
        {"user": 0, "item": 1, "rating": 2, "time": 3},
        {"separator": "\t", "header": False, "ids": "auto"},
    ),
    "MovieLens 1M": (
        "1::1193::5::978300760\n1::661::3::978302109\n",
        {"user": 0, "item": 1, "rating": 2, "time": 3},
        {"separator": "::", "header": False},
    ),
    "MovieLens 20M, item first": (
        "movieId,userId,rating,timestamp\n2,1,3.5,1112486027\n29,1,3.5,1112484676\n",
        {"user": "userId", "item": "movieId", "rating": "rating", "time": "timestamp"},
        {},
    ),
    "Amazon": (
        "A2IBPI20UZIR0U,0000013714,5.0,1360886400\nA14VAT5EAX3D9S,000143026X,4.0,1360886401\n",
        {"user": 0, "item": 1, "rating": 2, "time": 3},
        {"ids": "text"},
    ),
    "RecBole": (
        "user_id:token\titem_id:token\ttimestamp:float\n1\t5\t1600000000\n2\t6\t1600000001\n",
        {"user": "user_id:token", "item": "item_id:token", "time": "timestamp:float"},
        {"separator": "\t"},
    ),
    "milliseconds, quoted": (
        '"user";"item";"ts"\n"1";"a;b";1600000000000\n"2";"c";1600000000001\n',
        {"user": "user", "item": "item", "time": "ts"},
        {"separator": ";", "quoted": True, "time": "milliseconds", "ids": "text"},
    ),
    "two columns": ("7 1\n7 2\n8 1\n", {"user": 0, "item": 1}, {"separator": " ", "header": False}),
    "leading zeros are part of an id": (
        "user,item\n007,1\n7,2\n", {"user": "user", "item": "item"}, {"ids": "text"},
    ),
    "text without times": (
        "user,song\nanna,one\nbert,two\n", {"user": "user", "item": "song"}, {"header": True},
    ),
    "dates with a time zone": (
        "user,item,timestamp\nanna,x,2024-04-18T13:51:56+02:00\nbert,y,2024-04-18 13:51:56.25Z\n",
        {"user": "user", "item": "item", "time": "timestamp"}, {"time": "iso"},
    ),
    "dates without a header line": (
        "anna,x,18.04.2024\nbert,y,07.04.2024\n", {"user": 0, "item": 1, "time": 2}, {"time": "day_first"},
    ),
    "months first, times of day": (
        "user,item,date\n1,2,4/8/2024 1:51 PM\n1,3,4/18/2024 12:00 AM\n",
        {"user": "user", "item": "item", "time": "date"}, {"time": "month_first"},
    ),
    "seconds as pandas writes them": (
        "user,item,ts\n1,2,1713448316.0\n1,3,1713448317.5\n",
        {"user": "user", "item": "item", "time": "ts"}, {"time": "seconds"},
    ),
    "seconds beside a date": (
        "user,item,date,ts\n1,2,2024-04-18,1713448316\n1,3,2024-04-18,1713448317\n",
        {"user": "user", "item": "item", "time": "ts"}, {"time": "seconds"},
    ),
    "the index of pandas": (
        ",user,item\n0,7,8\n1,9,8\n", {"user": "user", "item": "item"}, {"header": True},
    ),
    "byte-order mark, line ends of Windows": (
        "\ufeffuser,item\r\n1,2\r\n2,3\r\n", {"user": "user", "item": "item"}, {"ids": "auto"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_as_people_have_them(tmp_path, name):
    text, columns, rest = TABLES[name]
    path = tmp_path / "table"
    path.write_bytes(text.encode())
    found = guess_format(path)
    assert dict(found.format.columns) == columns
    assert {key: getattr(found.format, key) for key in rest} == rest
    rows = text.count("\n") - found.format.header
    if not text.startswith("\ufeff"):
        assert len(read_interactions(path, found.format)) == rows


def test_what_is_uncertain_is_said(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text('who,what,date,stars\nx,y,2020-01-02,4.5\nz,y,yesterday,"4,0"\n')
    found = guess_format(path)
    assert dict(found.format.columns) == {"user": "who", "item": "what"}
    time, rating, user, item, no_times = found.remarks
    assert "column 'date' is NOT read as time: line 3 has 'yesterday', not seconds or milli" in time
    assert time.endswith('To read it, correct the file, and write time: "date" into this entry\'s columns')
    assert (
        "column 'stars' is NOT read as rating: line 3 has '4,0', not a number with a decimal point" in rating
    )
    assert user.startswith(
        "no column has a usual name for users: 'who' is a guess by its position. Correct user in"
    )
    assert item.startswith("no column has a usual name for items: 'what' is a guess by its position")
    assert "Protocols with no_times: random (clean) hold out random rows." in no_times


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has fewer than two lines"),
        (b"user,item\n", "has fewer than two lines"),
        (
            b"\xff\xfe\n",
            (
                "is not text in UTF-8, and not a gzip or parquet file. Save it as text with one interaction per "
                "line."
            ),
        ),
        (b"\x1f\x8b\x08\x00\xff\xfe\n", "gzip cannot unpack it"),
        (gzip.compress(b"1,2\n" * 9, mtime=0)[:-3], "It is damaged or cut short; pack it again."),
        (b"PAR1 and no more", "this parquet file cannot be read as a table"),
        (
            b"a\nb\nc\n",
            (
                r"no separator gives every line the same number of fields .* Give a table with one interaction "
                r"per line, or write its entry by hand \(docs/datasets\.md\)\."
            ),
        ),
        (
            b"a,b\nc,d,e\n",
            (
                r"no separator gives every line the same number of fields .* Give a table with one interaction "
                r"per line, or write its entry by hand \(docs/datasets\.md\)\."
            ),
        ),
        (b"rating,time\n1,2\n3,4\n", "no column is left for users and items"),
    ],
)
def test_what_is_no_table_of_interactions_is_refused(tmp_path, content, said):
    path = tmp_path / "table"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        guess_format(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        guess_format(tmp_path / "none")


def test_a_column_that_is_not_read_is_told(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("Nutzer,Artikel,Sorte,Zeit\n1,2,a,1600000000\n1,3,b,1600000001\n")
    assert any("not read: 'Sorte'" in remark for remark in guess_format(path).remarks)


def test_days_and_months_are_told_apart_by_the_whole_file(tmp_path, monkeypatch):
    """Behind the lines that are looked at, one day is above 12, or none is."""
    monkeypatch.setattr(guess, "_LINES", 3)
    path = tmp_path / "mine.csv"
    rows = "user,item,date\n1,2,03/04/2024\n1,3,05/06/2024\n2,3,"
    path.write_text(f"{rows}07/13/2024\n")
    found = guess_format(path)
    assert (found.format.columns["time"], found.format.time) == ("date", "month_first")
    path.write_text(f"{rows}07/12/2024\n")
    found = guess_format(path)
    assert "time" not in found.format.columns
    assert any(
        'Write time: "date" into this entry\'s columns, and time: day_first or time: month_first' in remark
        for remark in found.remarks
    )


def test_an_index_is_told_and_a_first_column_that_does_not_count_is_read(tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text(",user,item\n0,7,8\n1,9,8\n")
    assert "numbers the rows: it is taken for an index, and NOT read" in guess_format(path).remarks[0]
    path.write_text("index,user,item\n5,7,8\n1,9,8\n")
    assert guess_format(path).remarks[0] == "columns that are not read: 'index'"


def test_what_is_packed_is_read_as_its_text(tmp_path):
    table = pl.DataFrame(
        {
            "user": ["anna", 'b,"c"'],
            "item": ["x", "y"],
            "time": [datetime.datetime(2024, 4, 18, 13, 51, 56, 5)] * 2,
        }
    )
    text, packed, columns = tmp_path / "mine.csv", tmp_path / "mine.csv.gz", tmp_path / "mine.parquet"
    table.write_csv(text)
    packed.write_bytes(gzip.compress(text.read_bytes()))
    table.write_parquet(columns)
    expected = read_interactions(text, guess_format(text).format)
    assert expected.rows() == [("anna", "x", 1, 1_713_448_316, 0), ('b,"c"', "y", 1, 1_713_448_316, 1)]
    for path in (packed, columns):
        assert read_interactions(path, guess_format(path).format).equals(expected)
