"""Small files of documented forms: of datasets whose files are not here, and of one's own as docs/datasets.md says."""

import re

import pytest

from fedrec.config.catalogue import ENCODINGS, load_catalogue
from fedrec.data.archives import ALWAYS_ALLOWED_BYTES, MAX_INFLATION, MAX_MEMBER_BYTES
from fedrec.data.lines import LONGEST_LINE
from fedrec.data.prepare import prepare
from tests.conftest import ROOT

PAGE = (ROOT / "docs/datasets.md").read_text(encoding="utf-8")


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


def test_the_shortest_entry_is_enough(tmp_path):
    (shortest,) = re.findall(r"^```yaml\n(mydata:\n.*?)^```$", PAGE, re.M | re.S)
    assert len(shortest.splitlines()) == 4
    (tmp_path / "datasets.yaml").write_text(shortest)
    (tmp_path / "mydata.csv").write_text("time,user,item\n3,Zoë,b-1\n1,Zoë,a-1\n2,Al,a-1\n", encoding="utf-8")
    made = prepare(load_catalogue(tmp_path / "datasets.yaml")["mydata"], tmp_path / "raw", tmp_path)
    assert made.users["original_id"].to_list() == ["Al", "Zoë"]
    assert made.items["original_id"].to_list() == ["a-1", "b-1"]
    assert made.interactions.timed
    assert made.interactions.time.tolist() == [3, 1, 2]


def test_the_page_states_the_limits_as_they_are():
    for limit in (
        f"{LONGEST_LINE:,} characters",
        f"{MAX_MEMBER_BYTES // 1024**3} GiB",
        f"{ALWAYS_ALLOWED_BYTES // 1024**2} MiB",
        f"{MAX_INFLATION} times",
        *(f"`{encoding}`" for encoding in ENCODINGS),
    ):
        assert limit in PAGE, limit
