import copy
import hashlib

import polars as pl
import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.data.interactions import read_interactions_file
from fedrec.data.prepare import prepare, write_prepared
from fedrec.errors import DataError
from fedrec.files.parquet import read_table
from tests.conftest import entry

# user, item, rating, time; user 30 has two rows, of which one has no rating above 0.
ROWS = "30,7,0,5\n10,9,1,4\n20,7,5,3\n10,7,2,2\n10,9,3,1\n30,8,4,0\n"


@pytest.fixture
def prepared(tmp_path, write_catalogue):
    def run(content=ROWS, **changes):
        (tmp_path / "alpha.csv").write_text(content)
        dataset = load_catalogue(write_catalogue(alpha=entry("alpha.csv", **changes)))["alpha"]
        return dataset, prepare(dataset, tmp_path)

    return run


def rows(interactions):
    return list(
        zip(interactions.user.tolist(), interactions.item.tolist(), interactions.time.tolist(), strict=True)
    )


def test_users_and_items_are_numbered_by_their_sorted_ids(prepared):
    _, made = prepared()
    assert rows(made.interactions) == [(0, 2, 4), (1, 0, 3), (0, 0, 2), (0, 2, 1), (2, 1, 0)]
    assert made.users.rows() == [(0, "10"), (1, "20"), (2, "30")]
    assert made.items.rows() == [(0, "7", None), (1, "8", None), (2, "9", None)]


def test_rows_without_a_positive_rating_go_before_users_are_counted(prepared):
    _, made = prepared(filter={"min_rows": 2})
    assert made.users["original_id"].to_list() == ["10"]
    assert made.interactions.row.tolist() == [1, 3, 4]


def test_first_appearance_counts_the_whole_file(prepared):
    _, made = prepared(time="first_appearance", filter={"min_rows": 2})
    # Item 7 first stands in row 0, which the filter drops; item 9 in row 1.
    assert rows(made.interactions) == [(0, 1, 1), (0, 0, 0), (0, 1, 1)]
    assert not made.interactions.timed


@pytest.mark.parametrize(("time", "expected"), [("row_number", [1, 2, 3, 4, 5]), ("constant", [0] * 5)])
def test_a_file_without_times_may_count_rows_or_leave_all_to_the_rule_for_ties(prepared, time, expected):
    _, made = prepared(time=time)
    assert made.interactions.time.tolist() == expected
    assert not made.interactions.timed


@pytest.mark.parametrize("ids", ["integer", "text"])
@pytest.mark.parametrize("scale", [1, 10**12])
def test_numbering_does_not_depend_on_how_ids_look(prepared, tmp_path, write_catalogue, ids, scale):
    made = entry("alpha.csv")
    made["interactions"]["format"]["ids"] = ids
    (tmp_path / "alpha.csv").write_text(
        "".join(
            f"{int(u) * scale},{i},{r},{t}\n" for u, i, r, t in (line.split(",") for line in ROWS.split())
        )
    )
    found = prepare(load_catalogue(write_catalogue(alpha=made))["alpha"], tmp_path)
    assert rows(found.interactions) == rows(prepared()[1].interactions)


def test_nothing_left_is_an_error(prepared):
    with pytest.raises(DataError, match="none of 6 rows is left, because no user has 9 rows"):
        prepared(filter={"min_rows": 9})


# Rows with a rating: users 10, 20 and 30 have 3, 2 and 2; items 7, 8 and 9 have 3, 2 and 2.
UNEVEN = "30,8,1,0\n10,9,1,4\n20,7,5,3\n10,7,2,2\n10,9,3,1\n30,7,4,0\n20,8,1,1\n40,6,0,1\n"


@pytest.mark.parametrize(
    ("of", "first", "count", "users", "items"),
    [
        ("users", 0, 1, ["10"], ["7", "9"]),
        # Users 20 and 30 have as many rows: the lower id comes first.
        ("users", 1, 1, ["20"], ["7", "8"]),
        ("users", 2, 1, ["30"], ["7", "8"]),
        ("items", 0, 1, ["10", "20", "30"], ["7"]),
        ("items", 1, 1, ["20", "30"], ["8"]),
        ("items", 1, 2, ["10", "20", "30"], ["8", "9"]),
    ],
)
def test_a_slice_keeps_places_among_those_with_the_most_rows(prepared, of, first, count, users, items):
    _, made = prepared(UNEVEN, filter={"min_rows": 1, "slice": {"of": of, "first": first, "count": count}})
    assert made.users["original_id"].to_list() == users
    assert made.items["original_id"].to_list() == items
    # Numbered anew, and the rows keep their place in the file.
    assert set(made.interactions.user.tolist()) == set(range(len(users)))
    wanted = [
        place
        for place, line in enumerate(UNEVEN.split())
        if line.split(",")[0] in users and line.split(",")[1] in items
    ]
    assert made.interactions.row.tolist() == wanted


def test_a_slice_is_cut_after_users_are_filtered(prepared):
    part = {"of": "items", "first": 0, "count": 1}
    # Of the one user with three rows: item 9 twice, item 7 once.
    _, made = prepared(UNEVEN, filter={"min_rows": 3, "slice": part})
    assert made.items["original_id"].to_list() == ["9"]


def test_a_slice_beyond_the_end_is_an_error(prepared):
    part = {"of": "users", "first": 2, "count": 2}
    with pytest.raises(
        DataError, match=r"2 users from position 2 are more than the 3 that exist\. Lower filter"
    ):
        prepared(UNEVEN, filter={"min_rows": 1, "slice": part})


def test_a_changed_raw_file_is_noticed(tmp_path, write_catalogue):
    made = entry("alpha.csv")
    made["interactions"] = {k: v for k, v in made["interactions"].items() if k != "unverified"} | {
        "sha256": "0" * 64
    }
    dataset = load_catalogue(write_catalogue(alpha=made))["alpha"]
    with pytest.raises(DataError, match="no such file"):
        prepare(dataset, tmp_path)
    (tmp_path / "alpha.csv").write_text(ROWS)
    with pytest.raises(DataError, match=r"content has changed .* Delete it and type the same command again"):
        prepare(dataset, tmp_path)
    # Nobody is told to delete a file of his own.
    with pytest.raises(
        DataError, match=r"its sha256 differs from that of its entry \(.*\)\. Correct the file or the entry\."
    ):
        prepare(dataset, tmp_path / "raw", tmp_path)


def test_a_file_of_ones_own_is_read_where_it_lies(tmp_path, write_catalogue, caplog):
    home, raw = tmp_path / "home", tmp_path / "raw"
    for folder, text in ((home / "mine", ROWS), (raw / "mine", "1,1,1,1\n")):
        folder.mkdir(parents=True)
        (folder / "rows.csv").write_text(text)
    columns = {"user": 0, "item": 1, "rating": 2, "time": 3}
    file = {"path": "mine/rows.csv", "format": {"columns": columns}}
    dataset = load_catalogue(write_catalogue(mine={"interactions": file}))["mine"]
    with caplog.at_level("INFO"):
        made = prepare(dataset, raw, home)
    assert len(made.interactions) == 5
    assert caplog.text.count("its entry has no sha256, so fedrec does not check its content") == 1
    write_prepared(made, dataset, raw, tmp_path / "out", home)
    _, about = read_table(tmp_path / "out/interactions.parquet")
    assert about["raw"] == {"mine/rows.csv": hashlib.sha256(ROWS.encode()).hexdigest()}
    # Below raw comes next; then the error lists the places.
    (home / "mine/rows.csv").unlink()
    assert len(prepare(dataset, raw, home).interactions) == 1
    (raw / "mine/rows.csv").unlink()
    with pytest.raises(DataError) as error:
        prepare(dataset, raw, home)
    assert f"{home}/mine/rows.csv, {raw}/mine/rows.csv" in str(error.value)
    # An absolute path is as good.
    (tmp_path / "else.csv").write_text(ROWS)
    file = {"path": str(tmp_path / "else.csv"), "format": {"columns": columns}}
    dataset = load_catalogue(write_catalogue(mine={"interactions": file}))["mine"]
    assert len(prepare(dataset, raw, home).interactions) == 5


def test_titles_are_joined_by_original_id(prepared, tmp_path):
    titles = {
        "path": "titles.txt",
        "unverified": "made",
        "sources": [],
        "format": {"separator": "::", "columns": {"item": 0, "title": 1}},
    }
    _, without = prepared(titles=titles)
    assert without.items["title"].null_count() == 3
    (tmp_path / "titles.txt").write_text("9::Nine::x\n7::Seven::x\n1::One::x\n")
    _, made = prepared(titles=titles)
    assert made.items["title"].to_list() == ["Seven", None, "Nine"]


def test_rows_sorted_by_time_are_a_row_order_of_their_papers(prepared):
    # Twenty rows of one user and one time: numpy's quicksort leaves the first and the last two where they are.
    content = "".join(f"10,{item},5,3\n" for item in range(100, 120))
    plain, sorted_ = (
        prepared(content, papers=["pfedrec", "fedem"], **more) for more in ({}, {"sorted_rows": ["fedem"]})
    )
    assert plain[1].interactions.row_orders == {}
    assert sorted_[1].interactions.row_orders["fedem"].tolist() == [0, *range(17, 0, -1), 18, 19]
    assert sorted_[1].interactions.missing_row_orders == ()
    # Other papers' splits stay as they were, and what is prepared is prepared anew.
    assert sorted_[1].interactions.content_hash() == plain[1].interactions.content_hash()
    assert sorted_[0].recipe() != plain[0].recipe()


def test_a_papers_own_row_order_is_kept_beside_ours(prepared, tmp_path):
    order = copy.deepcopy(entry("other.csv")["interactions"])
    shuffled = [5, 3, 0, 2, 4, 1]
    lines = ROWS.splitlines()
    (tmp_path / "other.csv").write_text("".join(f"{lines[place]}\n" for place in shuffled))
    _, made = prepared(row_orders={"pfedrec": order})
    expected = [shuffled.index(row) for row in made.interactions.row.tolist()]
    assert made.interactions.row_orders["pfedrec"].tolist() == expected
    (tmp_path / "other.csv").write_text("".join(f"{line}\n" for line in lines[:-1]))
    with pytest.raises(
        DataError,
        match="must have the same rows in another order, but has 5 rows instead of 6, and lacks 1 of those",
    ):
        prepared(row_orders={"pfedrec": order})
    (tmp_path / "other.csv").write_text("".join(f"u{line}\n" for line in lines))
    with pytest.raises(DataError, match="one file's ids are text and the other's integers"):
        prepared(row_orders={"pfedrec": order})


def test_what_is_written_is_read_back(prepared, tmp_path):
    dataset, made = prepared()
    write_prepared(made, dataset, tmp_path, tmp_path / "out")
    again = read_interactions_file(tmp_path / "out/interactions.parquet")
    assert again.content_hash() == made.interactions.content_hash()
    assert (again.users, again.items, again.timed) == (3, 3, True)
    items, _ = read_table(tmp_path / "out/items.parquet")
    assert pl.DataFrame(pl.from_arrow(items)).equals(made.items)


def test_the_same_input_gives_the_same_bytes(prepared, tmp_path):
    for name in ("first", "second"):
        dataset, made = prepared()
        write_prepared(made, dataset, tmp_path, tmp_path / name)
    for file in ("interactions", "users", "items"):
        first, second = ((tmp_path / name / f"{file}.parquet").read_bytes() for name in ("first", "second"))
        assert first == second
