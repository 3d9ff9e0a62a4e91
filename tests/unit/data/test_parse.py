import pytest

from fedrec.config.catalogue import TableFormat
from fedrec.data.parse import read_interactions, read_titles
from fedrec.errors import DataError

COMMA = TableFormat(",", {"user": 0, "item": 1, "rating": 2, "time": 3})
COLONS = TableFormat("::", {"user": 0, "item": 1, "rating": 2, "time": 3})
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
        (b"1,2,3,4\n1,2,3\n", COMMA, "line 2: 3 fields, expected 4: '1|2|3'"),
        (b"1,2,3,4\n1,2,3,4,5\n", COMMA, "line 2: 5 fields, expected 4"),
        (b"1,2,3,4\n\n1,2,3,4\n", COMMA, "line 2: 1 fields, expected 4"),
        (b"1,2,3,4\n1,,3,4\n", COMMA, "line 2: item is empty"),
        (b"1,2,3,4\n1,2,3,4.5\n", COMMA, "line 2: time is '4.5', expected an integer"),
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
            "no column 'timestamp'; its header names userID, movieID",
        ),
        (b"1,2,3\n", COMMA, "no column 3; its first line has 3"),
        (b"", COMMA, "is empty"),
        (b"userID\tmovieID\trating\ttimestamp\n", HETREC, "holds no rows"),
        (b"userID\tartistID\tday\tmonth\tyear\n1\t2\t31\t2\t2009\n", LASTFM, "a date does not exist"),
        (b'"TRANSACTION_DT","CUSTOMER_ID"\n"1","2"\n"3",""\n', TAFENG, "line 3: item is empty"),
    ],
)
def test_a_malformed_row_gives_file_line_and_value(read, content, format_, said):
    with pytest.raises(DataError) as error:
        read(content, format_)
    assert said in str(error.value)
    assert "file.dat" in str(error.value)


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
    with pytest.raises(DataError, match="line 2: 1 fields, expected 2 or more"):
        read_titles(path, TableFormat("::", {"item": 0, "title": 1}))
