import gzip

import pytest

from fedrec.config.catalogue import ENCODINGS, TableFormat
from fedrec.data import archives, lines
from fedrec.data.parse import read_interactions, read_titles
from fedrec.errors import DataError

COLUMNS = {"user": 0, "item": 1, "rating": 2, "time": 3}
COMMA = TableFormat(",", COLUMNS, ids="integer")
COLONS = TableFormat("::", COLUMNS, ids="integer")
HETREC = TableFormat(
    "\t",
    {"user": "userID", "item": "movieID", "rating": "rating", "time": "timestamp"},
    header=True,
    time="milliseconds",
)
LASTFM = TableFormat(
    "\t", {"user": "userID", "item": "artistID", "time": ("year", "month", "day")}, header=True, time="ymd"
)
TAFENG = TableFormat(
    ",", {"user": "TRANSACTION_DT", "item": "CUSTOMER_ID"}, header=True, quoted=True, ids="text"
)
QB = TableFormat(",", {"user": "user_id", "item": "item_id", "rating": "click"}, header=True)


@pytest.fixture
def read(tmp_path):
    def read(content, format_):
        path = tmp_path / "file.dat"
        path.write_bytes(content)
        return read_interactions(path, format_)

    return read


def columns(table):
    return {name: table[name].to_list() for name in table.columns}


@pytest.mark.parametrize(
    ("content", "format_", "expected"),
    [
        pytest.param(
            b"1,20,5,100\n2,10,3.5,50\n", COMMA,
            {"user": [1, 2], "item": [20, 10], "rating": [5, 3.5], "time": [100, 50]}, id="comma",
        ),
        pytest.param(
            b"1,20,5,100\r\n2,10,3.5,50\r\n", COMMA,
            {"user": [1, 2], "item": [20, 10], "rating": [5, 3.5], "time": [100, 50]}, id="carriage-returns",
        ),
        pytest.param(
            b"1,20,5,100\n2,10,3.5,50", COMMA,
            {"user": [1, 2], "item": [20, 10], "rating": [5, 3.5], "time": [100, 50]}, id="no-last-line-end",
        ),
        pytest.param(
            b"1::20::5::100\n2::10::3::50\n", COLONS,
            {"user": [1, 2], "item": [20, 10], "rating": [5, 3], "time": [100, 50]}, id="double-separator",
        ),
        pytest.param(
            b"userID\tmovieID\trating\ttimestamp\n75\t3\t1\t1162160236000\n75\t32\t4.5\t1162160624000\n", HETREC,
            {"user": [75, 75], "item": [3, 32], "rating": [1, 4.5], "time": [1162160236, 1162160624]}, id="hetrec",
        ),
        pytest.param(
            b"userID\tartistID\ttagID\tday\tmonth\tyear\r\n2\t52\t13\t1\t4\t2009\r\n2\t52\t15\t2\t1\t1956\r\n", LASTFM,
            {"user": [2, 2], "item": [52, 52], "rating": [1, 1], "time": [1238544000, -441763200]}, id="lastfm-tags",
        ),
        pytest.param(
            b'\xef\xbb\xbf"TRANSACTION_DT","CUSTOMER_ID","AGE"\r\n"11/1/2000","01104905","4,5"\r\n', TAFENG,
            {"user": ["11/1/2000"], "item": ["01104905"], "rating": [1], "time": [0]}, id="tafeng",
        ),
        pytest.param(
            b"user_id,item_id,click,gender,age,click_count\n1,2,1,0,3,5\n1,3,0,0,,\n", QB,
            {"user": [1, 1], "item": [2, 3], "rating": [1, 0], "time": [0, 0]}, id="qb-article",
        ),
    ],
)  # fmt: skip
def test_each_documented_form_is_read(read, content, format_, expected):
    found = columns(read(content, format_))
    assert found == expected | {"row": list(range(len(found["user"])))}


@pytest.mark.parametrize(
    ("content", "format_", "said"),
    [
        (b"1,2,3,4\n1,x,3,4\n", COMMA, "line 2: item is 'x', expected an integer"),
        (b"1,2,3,4\n1,2,good,4\n", COMMA, "line 2: rating is 'good', expected a number"),
        (b"1,2,3,4\n1,2,nan,4\n", COMMA, "line 2: rating is 'nan', expected a number"),
        (b"1,2,3,4\n1,2,3\n", COMMA, "line 2: 3 fields, expected 4 as in line 1: '1,2,3'"),
        (b"1,2,3,4\n1,2,3,4,5\n", COMMA, "line 2: 5 fields, expected 4"),
        (b"1,2,3,4\n\n1,2,3,4\n", COMMA, "line 2: is blank"),
        (b"1,2,3,4\n1,,3,4\n", COMMA, "line 2: item is empty"),
        (b"1,2,3,4\n1,2,3,4e5\n", COMMA, "line 2: time is '4e5', expected an integer"),
        (b"1::2::3::4\n1:2:3:4\n", COLONS, "line 2: 1 fields, expected 4"),
        (b"1::2::3::4\n1:x:2:y:3:z:4\n", COLONS, "line 2: 1 fields, expected 4"),
        (b"1::2::3::4\n1::2::3\n", COLONS, "line 2: 3 fields, expected 4"),
        (
            b"userID\tmovieID\trating\ttimestamp\n1\t2\t3\tnow\n",
            HETREC,
            "line 2: time is 'now', expected an integer",
        ),
        (
            b"userID\tmovieID\trating\n1\t2\t3\n",
            HETREC,
            "line 1: has no column 'timestamp'; its header names 'userID, movieID",
        ),
        (b"1,2,3\n", COMMA, "no column 3; its first line has 3"),
        (b"", COMMA, "is empty"),
        (b"userID\tmovieID\trating\ttimestamp\n", HETREC, "has no rows."),
        (
            b"userID\tartistID\tday\tmonth\tyear\n1\t2\t31\t2\t2009\n",
            LASTFM,
            "line 2: the date 2009-2-31 (year-month-day) does not exist",
        ),
        (b'"TRANSACTION_DT","CUSTOMER_ID"\n"1","2"\n"3",""\n', TAFENG, "line 3: item is empty"),
    ],
)
def test_a_malformed_row_gives_file_line_and_value(read, content, format_, said):
    with pytest.raises(DataError) as error:
        read(content, format_)
    assert said in str(error.value)
    assert "file.dat" in str(error.value)


@pytest.mark.parametrize(
    ("content", "format_", "said"),
    [
        # Where a column is not read, its line is counted all the same.
        (b"userID\tartistID\ttagID\tday\tmonth\tyear\n12\t7\t30\t5\t1\t2\t2010\n", LASTFM, "line 2: 7 fields, expected 6"),
        (b'"TRANSACTION_DT","CUSTOMER_ID","AGE"\n"1","2"\n', TAFENG, "line 2: 2 fields, expected 3"),
        (b'"TRANSACTION_DT","CUSTOMER_ID","AGE"\n"1","2","3","4"\n', TAFENG, "line 2: 4 fields, expected 3"),
        (b"1,9,2,8\n1,9,2,3,8\n", TableFormat(",", {"user": 0, "item": 1}), "line 2: 5 fields, expected 4"),
        # Numbers are spelled in one way.
        (b"1,2,3,4\n1, 2,3,4\n", COMMA, "line 2: item is ' 2', expected an integer"),
        (b"1,2,3,4\n1,2,3 ,4\n", COMMA, "line 2: rating is '3 ', expected a number"),
        (b"1,2,3,4\n1,+2,3,4\n", COMMA, "line 2: item is '+2', expected an integer"),
        (b"1,2,3,4\n1,1_0,3,4\n", COMMA, "line 2: item is '1_0', expected an integer"),
        ("1,2,3,4\n1,\u0663,3,4\n".encode(), COMMA, "line 2: item is '\u0663', expected an integer"),
        (b"1,2,3,4\n1,9223372036854775808,3,4\n", COMMA, "item is '9223372036854775808', expected an integer from -2^63"),
        (b"1,2,3,4\n1,2,3,-9223372036854775809\n", COMMA, "line 2: time is '-9223372036854775809', expected an integer"),
        (b"1,2,3,4\n1,2,inf,4\n", COMMA, "line 2: rating is 'inf', expected a number"),
        (b"1,2,3,4\n1,2,1e39,4\n", COMMA, "line 2: rating is '1e39', expected a number of at most 3.4e+38"),
        (b"1,2,3,4\n1,2,3,nan\n", COMMA, "line 2: time is 'nan', expected an integer"),
        # Text that is none.
        (b"1,2,3,4\n1,2,3,\xe9\n", COMMA, "line 2: the byte 0xe9 is not utf-8 text. Save the file as UTF-8, or set encoding"),
        (b"1,2,3,4\n1,2,3,\xe9\n", COMMA, "one of: utf-8, latin-1, cp1252, gb18030."),
        (b"1,2,3,4\n1,2,3,4\n\xff\xfe1", COMMA, "line 3: the byte 0xff is not utf-8 text"),
        (b"1,2,3,4\n1,2\r,3,4\n", COMMA, "line 2: a carriage return inside the line."),
        (b"1,2,3,4\r\n1,2,3,4\r\r\n", COMMA, "line 2: a carriage return inside the line."),
        (b"1,2,3,4\n1,2,\x00,4\n", COMMA, "line 2: a zero byte inside the line. Is the file text?"),
        # Quotes.
        (b'"TRANSACTION_DT","CUSTOMER_ID"\n"1","2"\n"3"x,"4"\n', TAFENG, "line 3: a double quote may open"),
        (b'"TRANSACTION_DT","CUSTOMER_ID"\n"1","2"\n"3","4\n5,6\n', TAFENG, "line 3: a double quote is opened and not closed"),
        (b'"TRANSACTION_DT","CUSTOMER_ID"\n"1","2\n3"\n"5"\n', TAFENG, "line 4: 1 fields, expected 2"),
        (b'"1","2",3,4\n', COMMA, "Set quoted: true in the entry's format"),
        (b"userID\tartistID\tday\tmonth\tyear\tyear\n", LASTFM, "line 1: has several columns 'year'"),
    ],
)  # fmt: skip
def test_what_is_not_written_as_it_must_be_is_refused(read, content, format_, said):
    with pytest.raises(DataError) as error:
        read(content, format_)
    assert said in str(error.value)


DATED = {"user": 0, "item": 1, "time": 2}


@pytest.mark.parametrize(
    ("form", "written", "seconds"),
    [
        ("iso", "2024-04-18", 1_713_398_400),
        ("iso", "2024-04-18T13:51:56", 1_713_448_316),
        ("iso", "2024-04-18 13:51:56.999+02:00", 1_713_441_116),
        ("iso", "1969-12-31T23:59:59Z", -1),
        ("day_first", "18/4/2024 13:51", 1_713_448_260),
        ("month_first", "04/18/2024, 1:51:56 PM", 1_713_448_316),
        ("month_first", "4/18/2024 12:00 AM", 1_713_398_400),
        ("seconds", "1713448316.9", 1_713_448_316),
        ("milliseconds", "1713448316999.5", 1_713_448_316),
    ],
)
def test_times_are_whole_seconds_however_they_are_written(read, form, written, seconds):
    table = read(f"1;2;{written}\n".encode(), TableFormat(";", DATED, time=form))
    assert table["time"].to_list() == [seconds]


@pytest.mark.parametrize(
    ("form", "written", "said"),
    [
        ("seconds", "2024-04-18T13:51:56", "line 2: time is '2024-04-18T13:51:56', expected an integer"),
        ("seconds", "2024-04-18T13:51:56", "Set time: iso in the entry's format (interactions.format.time)"),
        ("seconds", "03/04/2024", "Set time: day_first or time: month_first in the entry's format"),
        ("seconds", "-1.5", "time is '-1.5', expected an integer"),
        ("iso", "1713448316", "expected a date that exists, such as 2024-04-18 or 2024-04-18T13:51:56. Set time: seconds"),
        ("iso", "2024-02-30", "time is '2024-02-30', expected a date that exists"),
        ("iso", "2024-04-18T24:00", "expected a date that exists"),
        ("iso", "2024-04-18Tnoon", "expected a date that exists"),
        ("iso", "", "line 2: time is empty"),
        ("iso", "2024-04-18T13:51Z", "has one. Write all times with a time zone, or all without."),
        ("day_first", "04/18/2024", "Set time: month_first"),
        ("month_first", "4/18/2024 13:00 PM", "expected a date that exists"),
    ],
)  # fmt: skip
def test_a_time_that_is_none_gives_line_value_and_key(read, form, written, said):
    first = {"seconds": "5", "iso": "2024-04-18", "day_first": "18.04.2024", "month_first": "04/18/2024"}[
        form
    ]
    with pytest.raises(DataError) as error:
        read(f"1;2;{first}\n1;3;{written}\n".encode(), TableFormat(";", DATED, time=form))
    assert said in str(error.value)


def test_seconds_that_are_stated_to_be_milliseconds_are_refused(read):
    with pytest.raises(DataError, match=r"in the year 1970[.] Write time: seconds in the entry's format"):
        read(b"1,2,1713448316\n1,3,1713448317\n", TableFormat(",", DATED, time="milliseconds"))


def test_quoted_fields_may_hold_separators_quotes_and_line_ends(read):
    table = read(b'TRANSACTION_DT,CUSTOMER_ID\n"a,""b""","1\r\n2"\nx,"3"\n', TAFENG)
    assert table.select("user", "item").rows() == [('a,"b"', "1\n2"), ("x", "3")]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "gb18030"])
def test_an_encoding_may_be_stated(read, encoding):
    assert set(ENCODINGS) == {"utf-8", "latin-1", "cp1252", "gb18030"}
    content = "u\xe9,1\n\xfc,2\n".encode(encoding)
    assert read(content, TableFormat(",", {"user": 0, "item": 1}, encoding=encoding))["user"].to_list() == [
        "u\xe9", "\xfc",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("ids", "users", "found"),
    [
        ("auto", ["3", "-1", "0"], [3, -1, 0]),
        ("auto", ["u3", "u-1"], ["u3", "u-1"]),
        # As integers, some of these would be the same, or none.
        ("auto", ["7", "007"], ["7", "007"]),
        ("auto", ["7", "9223372036854775808"], ["7", "9223372036854775808"]),
        ("integer", ["7", "007"], [7, 7]),
        ("text", ["7", "u7"], ["7", "u7"]),
    ],
)
def test_ids_are_integers_where_all_are_and_text_where_none_is(read, ids, users, found):
    content = "".join(f"{user},{item}\n" for item, user in enumerate(users)).encode()
    table = read(content, TableFormat(",", {"user": 0, "item": 1}, ids=ids))
    assert table["user"].to_list() == found
    assert table["item"].to_list() == (
        [str(n) for n in range(len(users))] if ids == "text" else [*range(len(users))]
    )


def test_ids_of_both_kinds_are_refused_with_the_key_to_set(read):
    with pytest.raises(DataError) as error:
        read(b"1,1\n2,2\nuser,3\n", TableFormat(",", {"user": 0, "item": 1}))
    assert (
        "line 3: user is 'user', but in line 1 it is the integer '1'. Set ids in the entry's format"
        in str(error.value)
    )


def test_a_file_is_read_alike_in_blocks_of_any_size(read, monkeypatch):
    rows = [(f"u\xfc{n % 7}", n * 37 % 11, n) for n in range(40)]
    content = "\ufeffwho,what,when\r\n" + "".join(f'"{u}","x\n""{i}",{t}\r\n' for u, i, t in rows)
    format_ = TableFormat(",", {"user": "who", "item": "what", "time": "when"}, header=True, quoted=True)
    whole = read(content.encode(), format_)
    assert whole["item"].to_list() == [f'x\n"{i}' for _, i, _ in rows]
    for size in (1, 2, 7, 64):
        monkeypatch.setattr(lines, "_BLOCK_BYTES", size)
        assert read(content.encode(), format_).equals(whole)
        with pytest.raises(DataError, match="line 82: 4 fields, expected 3"):
            read(f"{content}a,b,1,2\n".encode(), format_)


@pytest.mark.parametrize(
    "content", ["1,2,3,4\n1,2," + "9" * 3_000_000, "1,2,3,4\n" + "9," * 5_000_000 + "\n"]
)
def test_a_huge_line_is_refused_in_few_words(read, content):
    with pytest.raises(DataError, match="line 2: more than 1,000,000 characters") as error:
        read(content.encode(), COMMA)
    assert len(str(error.value)) < 1000


def test_what_unpacks_to_far_more_than_tables_do_is_refused(read, monkeypatch):
    monkeypatch.setattr(archives, "ALWAYS_ALLOWED_BYTES", 1000)
    with pytest.raises(
        DataError, match=r"unpacks to far more data than a table has\. Unpack it by hand to read it\."
    ):
        read(gzip.compress(b"1,2,3,4\n" * 100_000), COMMA)


def test_a_long_value_is_cut_in_the_message(read):
    with pytest.raises(DataError) as error:
        read("1,2,3,4\n1,{0},3,4\n1,{0},3,4\n1,2,{0}\n".format("\U0001f600" * 5000).encode(), COMMA)
    assert len(str(error.value)) < 1000


def test_only_the_first_malformed_rows_are_shown(read):
    with pytest.raises(DataError) as error:
        read(b"1,2,3,4\n" + b"a,2,3,4\n" * 10, COMMA)
    assert len(str(error.value).splitlines()) == 3


def test_titles_keep_their_spelling(tmp_path):
    path = tmp_path / "items"
    path.write_bytes("1|Misérables, Les (1995)|x\n2|A \x85 B|y\n".encode("latin-1"))
    titles = read_titles(path, TableFormat("|", {"item": 0, "title": 1}, encoding="latin-1"))
    assert titles.rows() == [("1", "Misérables, Les (1995)"), ("2", "A \x85 B")]


def test_a_short_line_of_titles_is_refused(tmp_path):
    path = tmp_path / "items"
    path.write_text("1::First::War\n2\n")
    with pytest.raises(DataError, match=r"line 2: 1 fields, expected 3 as in line 1: '2'"):
        read_titles(path, TableFormat("::", {"item": 0, "title": 1}))
