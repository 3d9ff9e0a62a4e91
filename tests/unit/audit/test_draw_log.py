"""Logs of draws as other programs write them: both formats, both kinds of ids, and what is wrong with a file."""

import re

import polars as pl
import pytest

from fedrec.audit.draw_log import read_draw_log
from fedrec.errors import DataError
from fedrec.files.parquet import write_table

USERS, ITEMS = ("07", "7", "ann"), ("10", "20", "30", "40")


@pytest.fixture
def data(tmp_path):
    """A prepared dataset of three users and four items, with ids that only text tells apart."""
    folder = tmp_path / "made"
    for what, ids in (("user", USERS), ("item", ITEMS)):
        frame = pl.DataFrame({what: range(len(ids)), "original_id": ids}, schema_overrides={what: pl.Int32})
        write_table(folder / f"{what}s.parquet", frame.to_arrow(), {"dataset": "made"})
    return folder


def csv(tmp_path, text):
    path = tmp_path / "log.csv"
    path.write_text(text)
    return path


def parquet(tmp_path, **columns):
    path = tmp_path / "log.parquet"
    pl.DataFrame(columns).write_parquet(path)
    return path


def pairs(log):
    return dict(zip(zip(log.user.tolist(), log.item.tolist(), strict=True), log.count.tolist(), strict=True))


def test_draws_are_counted_by_original_ids(tmp_path, data):
    log = read_draw_log(
        csv(tmp_path, "round,user,label,item\n1,07,0,10\n1,7,0,40\n3,7,0,40\n3,ann,0,20\n"), data
    )
    assert pairs(log) == {(0, 0): 1, (1, 3): 2, (2, 1): 1}
    assert log.rounds == 2


def test_parquet_may_hold_numbers_and_needs_no_round(tmp_path, data):
    for items in ([10, 40, 40], [10.0, 40.0, 40.0], ["10", "40", "40"]):
        log = read_draw_log(parquet(tmp_path, user=["07", "7", "7"], item=items), data)
        assert pairs(log) == {(0, 0): 1, (1, 3): 2}
        assert log.rounds == 1


def test_ids_may_be_numbers_of_fedrec(tmp_path, data):
    log = read_draw_log(parquet(tmp_path, user=[0, 2], item=[3, 0], round=[5, 5]), data, "fedrec")
    assert pairs(log) == {(0, 3): 1, (2, 0): 1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "log.csv: is empty. Write a header line user,item,round"),
        ("user,item,round\n", "log.csv: has no draws."),
        ("users,item\n7,10\n", "has no column 'user'. Did you mean 'users'? It has: users, item."),
        ("user,Item\n7,10\n", "has no column 'item'. Did you mean 'Item'?"),
        ("7,10,1\n7,20,1\n", "has no column 'user'. It has: 7, 10, 1."),
        ("user,item,item\n7,10,10\n", "has two columns 'item'."),
        ("user,item\n7\n", "cannot be read as a table"),
        ("user,item\n7,10\n7,\n7,NaN\n", "column 'item' has no value in 2 of 3 rows, row 2 for one."),
        ("user,item\n,10\n", "column 'user' has no value in 1 of 1 rows"),
        ("user,item,round\n7,10,-1\n", "column 'round' holds '-1'. Number rounds from 0 or 1."),
        ("user,item,round\n7,10,\n", "column 'round' has no value in 1 of 1 rows"),
        (
            "user,item\n7,10\n7,1\n7,1\n7,2\n7,3\n7,9\n7,10\n",
            "5 of 7 draws name items that made does not have. Unknown ids: 4, which are '1', '2', '3' and more.",
        ),
        (
            "user,item\n8,10\nann,10\n",
            "1 of 2 draws name users that made does not have. Unknown ids: 1, which are '8'.",
        ),
        ("user,item\n8,10\n", "Ids are those of the raw file, in the column original_id of"),
        ("user,item\n1,10\n", "If they are fedrec's numbers, 0 to 2, add --ids fedrec."),
        ("user,item\n7,-1\n", "Leave out the draws of placeholders, such as -1 for no item."),
        ("user,item\n7,10.0\n", "'10.0'. Write ids without decimals."),
    ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, data, text, said):
    with pytest.raises(DataError, match=re.escape(said)):
        read_draw_log(csv(tmp_path, text), data)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user": [0, -1], "item": [0, 0]}, "1 of 2 draws name users that made does not have"),
        ({"user": [0, 3], "item": [0, 0]}, "Its users have the numbers 0 to 2."),
        ({"user": [0, 1], "item": [0.0, float("nan")]}, "column 'item' has no value in 1 of 2 rows, row 2"),
        ({"user": [0, None], "item": [0, 1]}, "column 'user' has no value in 1 of 2 rows, row 2"),
        (
            {"user": [0, 1], "item": [0.5, 1.0]},
            "column 'item' holds double where text or whole numbers are needed",
        ),
        ({"user": [[0], [1]], "item": [0, 1]}, "column 'user' holds"),
        ({"user": [], "item": []}, "has no draws"),
    ],
)
def test_what_is_wrong_with_numbers_is_said(tmp_path, data, columns, said):
    with pytest.raises(DataError, match=re.escape(said)):
        read_draw_log(parquet(tmp_path, **columns), data, "fedrec")


def test_a_file_that_is_none_is_an_error(tmp_path, data):
    with pytest.raises(DataError, match="no such file"):
        read_draw_log(tmp_path / "log.csv", data)
    with pytest.raises(DataError, match="is a folder"):
        read_draw_log(tmp_path, data)
    broken = tmp_path / "log.parquet"
    broken.write_bytes(b"user,item")
    with pytest.raises(DataError, match="cannot be read as a table"):
        read_draw_log(broken, data)
