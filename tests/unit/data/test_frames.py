"""Interactions of one's own: what is read from a frame or a file, what is said, and what is refused."""

from datetime import datetime, timedelta

import polars as pl
import pytest

import fedrec
from fedrec.data.interactions import read_interactions_file
from fedrec.data.temporal import split_in
from fedrec.errors import ConfigurationError, DataError, SplitError
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(ROOT / "config")


def made(users=40, per_user=8) -> pl.DataFrame:
    """Text ids, ratings of which one in eight is 0, and times as polars has them."""
    start = datetime(2024, 1, 1)
    rows = [
        (f"u-{user}", f"i-{user * 8 + row}", float(row), start + timedelta(days=row))
        for user in range(users)
        for row in range(per_user)
    ]
    return pl.DataFrame(rows, schema=["customer", "product", "stars", "at"], orient="row")


def hashed(data) -> str:
    return read_interactions_file(data.folder / "interactions.parquet").content_hash()


def test_frames_and_files_of_the_same_rows_are_one_dataset(capsys):
    frame = made()
    data = fedrec.split(frame, name="shop")
    said = capsys.readouterr().err
    assert "user from 'customer', item from 'product', rating from 'stars', time from 'at'" in said
    assert "40 rows that are rated 0 or less." in said
    assert data.folder.as_posix() == "results/data/shop"
    ids = pl.read_parquet(data.folder / "users.parquet")["original_id"]
    assert set(ids) == set(frame["customer"])

    written = (data.folder / "interactions.parquet").stat().st_mtime_ns
    frame.with_columns(pl.col("at").dt.epoch("s").alias("time")).drop("at").write_csv("shop.csv")
    frame.write_parquet("shop.parquet")
    for same in (
        frame.to_pandas(),
        frame.to_pandas().set_index("customer"),
        frame.lazy(),
        "shop.csv",
        "shop.parquet",
    ):
        again = fedrec.split(same, name="shop", protocol=["clean", "temporal"])
        assert (again.users, again.items, again.interactions) == (data.users, data.items, data.interactions)
    assert (data.folder / "interactions.parquet").stat().st_mtime_ns == written
    assert split_in(data.folder / "temporal").users == data.users


def test_columns_that_are_named_come_before_those_that_are_recognised():
    turned = made().rename({"customer": "item", "product": "user"})
    data = fedrec.split(turned, name="turned", user="item", item="user")
    assert hashed(data) == hashed(fedrec.split(made(), name="shop"))


def test_columns_of_a_file_can_be_named():
    made().drop("at").rename({"customer": "a", "product": "b"}).select("b", "a", "stars").write_csv(
        "shop.csv"
    )
    data = fedrec.split("shop.csv", name="shop", user="a", item="b")
    assert (data.users, data.items) == (40, 280)
    assert "user from 'a', item from 'b'" in data.notes[0]


def test_other_data_of_the_same_name_are_refused():
    fedrec.split(made(), name="shop")
    with pytest.raises(DataError, match="contains other data with the name"):
        fedrec.split(made(per_user=7), name="shop")
    with pytest.raises(DataError, match="contains other data with the name"):
        fedrec.split(made().with_columns(customer=pl.format("x-{}", "customer")), name="shop")


def test_a_folder_with_other_files_and_a_split_by_other_rules_are_refused(tmp_path):
    (tmp_path / "mine/shop").mkdir(parents=True)
    (tmp_path / "mine/shop/notes.txt").touch()
    with pytest.raises(DataError, match=r"exists already, but is not a prepared dataset\."):
        fedrec.split(made(), name="shop", out=tmp_path / "mine/shop")
    data = fedrec.split(made(), name="shop", protocol=["clean", "clean-1"])
    for file in ("split", "candidates"):
        (data.folder / f"clean-1/{file}.parquet").replace(data.folder / f"clean/{file}.parquet")
    with pytest.raises(SplitError, match=r"contains a split by other rules with the same name\."):
        fedrec.split(made(), name="shop")


def test_what_a_killed_process_left_is_completed():
    data = fedrec.split(made(), name="shop")
    (data.folder / "items.parquet").unlink()
    fedrec.split(made(), name="shop")
    assert (data.folder / "items.parquet").is_file()


@pytest.mark.parametrize(
    ("frame", "more", "said"),
    [
        (made(), {"user": "custmer"}, "Did you mean 'customer'"),
        (made(), {"time": "product"}, "time='product': the frame has no time in this column"),
        (made(), {"user": "customer", "item": "customer"}, "a column is named twice. Name each column once."),
        (made().with_columns(customer=pl.when(pl.col("stars") == 1).then(None).otherwise("customer")), {}, "column 'customer' is empty in 40 of 320 rows. Remove these rows, or fill them"),
        (made().clear(), {}, "the frame: the table is empty. Give a table with one interaction per row"),
        (made().select("customer"), {}, "separator|no column is left"),
        (3, {}, "an object of type int is not a table of interactions. Give a polars, pandas or pyarrow frame"),
        ("nowhere.parquet", {}, "no such file"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_says_why(frame, more, said):
    with pytest.raises(DataError, match=said):
        fedrec.split(frame, name="shop", **more)


@pytest.mark.parametrize(("name", "more"), [("ml-100k", {}), ("My Shop", {}), ("shop", {"out": "elsewhere"})])
def test_a_name_that_runs_could_not_be_filed_by_is_refused(name, more):
    with pytest.raises(ConfigurationError):
        fedrec.split(made(), name=name, **more)
