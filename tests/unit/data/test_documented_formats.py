"""Datasets whose files are not here: small files of their documented form, read by their own entries."""

import pytest

from fedrec.data.prepare import prepare


@pytest.fixture
def raw(tmp_path):
    def write(file, lines):
        path = tmp_path / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes("".join(f"{line}\r\n" for line in lines).encode(file.format.encoding))

    write.folder = tmp_path
    return write


def test_hetrec2011(catalogue, raw):
    dataset = catalogue["hetrec2011"]
    ratings = [(75, movie, 3.5, 1_162_160_236_000 + movie) for movie in range(1, 13)]
    ratings += [(78, movie, 4, 1_162_160_236_000) for movie in range(1, 10)]  # nine rows: filtered out
    raw(
        dataset.interactions,
        ["userID\tmovieID\trating\ttimestamp", *("\t".join(map(str, r)) for r in ratings)],
    )
    raw(
        dataset.titles,
        ["id\ttitle\timdbID\tspanishTitle", "1\tToy story\t0114709\tToy story", "2\tÉté\t0\t?"],
    )
    made = prepare(dataset, raw.folder)
    assert (made.interactions.users, made.interactions.items, len(made.interactions)) == (1, 12, 12)
    assert made.interactions.timed
    assert made.interactions.time[0] == 1_162_160_236
    assert made.items["title"].to_list()[:3] == ["Toy story", "Été", None]


@pytest.mark.parametrize(("name", "users"), [("qb-article-a", 3), ("qb-article-b", 1)])
def test_qb_article(catalogue, raw, name, users):
    dataset = catalogue[name]
    # Twelve clicks of user 7; two of user 8; user 9 looked at eleven articles and clicked one.
    rows = [(7, item, 1) for item in range(12)] + [(8, item, 1) for item in (20, 3)]
    rows += [(9, item, int(item == 4)) for item in range(30, 41)] + [(9, 4, 1)]
    header = "user_id,item_id,click,gender,age,click_count,like,comment,read_percentage"
    raw(dataset.interactions, [header, *(f"{u},{i},{c},1,,3,0,0,97" for u, i, c in rows)])
    made = prepare(dataset, raw.folder)
    assert made.interactions.users == users
    assert not made.interactions.timed
    # The time of a row is where its item first stood in the file, not clicked rows included.
    first = {item: row for row, (_, item, _) in reversed(list(enumerate(rows)))}
    original = made.items["original_id"].cast(int).to_numpy()
    assert made.interactions.time.tolist() == [
        first[item] for item in original[made.interactions.item].tolist()
    ]
