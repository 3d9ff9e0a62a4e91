"""Guesses at how files are to be read, and that the reader reads them so."""

import pytest

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
    "byte-order mark, line ends of Windows": (
        "\ufeffuser,item\r\n1,2\r\n2,3\r\n", {"user": "user", "item": "item"}, {"ids": "auto"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_tables_as_people_have_them(tmp_path, name):
    text, columns, rest = TABLES[name]
    path = tmp_path / "table"
    path.write_bytes(text.encode())
    guess = guess_format(path)
    assert dict(guess.format.columns) == columns
    assert {key: getattr(guess.format, key) for key in rest} == rest
    rows = text.count("\n") - guess.format.header
    if not text.startswith("\ufeff"):
        assert len(read_interactions(path, guess.format)) == rows


def test_what_is_uncertain_is_said(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("who,what,date,stars\nx,y,2020-01-02,good\nz,y,2020-01-03,bad\n")
    guess = guess_format(path)
    assert dict(guess.format.columns) == {"user": "who", "item": "what"}
    assert guess.remarks == (
        "column 'date' holds no seconds since 1970, so it is not read as time",
        "column 'stars' holds no numbers, so it is not read as rating",
        "no column is called like one of users: this is a guess by its place",
        "no column is called like one of items: this is a guess by its place",
        "without a time column the order of a user's rows is that in the file",
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has fewer than two lines"),
        (b"user,item\n", "has fewer than two lines"),
        (b"\x1f\x8b\x08\x00\xff\xfe\n", "is no text in UTF-8. Unpack it"),
        (b"a\nb\nc\n", "no separator gives every line as many fields"),
        (b"a,b\nc,d,e\n", "no separator gives every line as many fields"),
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
    assert any("not read: Sorte" in remark for remark in guess_format(path).remarks)
