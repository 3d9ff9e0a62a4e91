import copy

import pytest
import yaml

from fedrec.config.catalogue import ENCODINGS, TableFormat, load_catalogue
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT, entry

NAMES = {
    "filmtrust", "ml-100k", "ml-1m", "hetrec2011", "lastfm-2k-a", "lastfm-2k-b", "lastfm-2k-c", "amazon-video-a",
    "amazon-video-b", "tafeng", "qb-article-a", "qb-article-b", "douban-book", "demo",
}  # fmt: skip
PARTS = {f"ml-1m-{size}-{number}" for size in ("500u", "1000u", "1000i") for number in (1, 2, 3)}


def refused(path):
    with pytest.raises(ConfigurationError) as error:
        load_catalogue(path)
    return str(error.value)


def test_the_catalogue_has_every_dataset_of_the_papers(catalogue):
    assert set(catalogue) == NAMES | PARTS
    users = {paper for dataset in catalogue.values() for paper in dataset.papers}
    assert users == {"pfedclr", "pfedrec", "fedem", "plgc", "fedrap"}


def test_every_paper_prints_its_own_datasets(catalogue):
    printed = {name: set(dataset.published) for name, dataset in catalogue.items()}
    assert all(printed[name] == set(catalogue[name].papers) for name in NAMES - {"demo"})


def test_two_papers_print_the_counts_of_a_filter_that_they_do_not_apply(catalogue):
    used, printed = catalogue["lastfm-2k-c"], catalogue["lastfm-2k-a"]
    assert (
        used.published["pfedclr"].users == used.published["fedem"].users == printed.published["pfedrec"].users
    )
    assert used.size.users < printed.published["pfedrec"].users


def test_parts_are_of_one_file_and_no_whole_datasets(catalogue):
    assert set(catalogue.whole()) == NAMES
    for name in PARTS:
        assert catalogue[name].files() == catalogue["ml-1m"].files()
        assert (catalogue[name].papers, set(catalogue[name].published)) == (("fedrap",), {"fedrap"})
    assert len({catalogue[name].recipe() for name in PARTS}) == 9


def test_a_slice_is_in_the_recipe_only_where_there_is_one(write_catalogue):
    part = {"of": "items", "first": 0, "count": 2}
    sliced = entry("alpha.csv", filter={"min_rows": 1, "slice": part})
    whole, part = load_catalogue(write_catalogue(alpha=entry("alpha.csv"), beta=sliced)).values()
    assert whole.recipe().endswith(',1,"file"]')
    assert part.recipe().endswith(',1,"file",{"count":2,"first":0,"of":"items"}]')


def test_the_mirror_is_always_the_first_source(catalogue):
    for file in catalogue.raw_files().values():
        assert (file.sources[0].kind, file.sources[0].location) == ("mirror", file.path)


def test_packages_come_after_official_addresses(catalogue):
    for file in catalogue.raw_files().values():
        kinds = [source.kind for source in file.sources]
        assert kinds == sorted(kinds, key=["mirror", "url", "package"].index)


def test_our_own_entries_state_what_others_may_leave_out():
    entries = yaml.safe_load((ROOT / "config/datasets.yaml").read_text(encoding="utf-8"))
    for name, stated in entries.items():
        assert {"title", "citation", "licence", "papers", "filter", "time", "published"} <= set(stated), name
        tables = [stated["interactions"]] if "interactions" in stated else []
        tables += stated.get("row_orders", {}).values()
        assert all(file["format"]["ids"] in ("integer", "text") for file in tables), name
        for file in [*tables, *([stated["titles"]] if "titles" in stated else [])]:
            assert {"path", "sources", "format"} <= set(file), name
            assert ("sha256" in file) != ("unverified" in file), name


def test_a_dataset_of_ones_own_needs_a_path_and_its_columns(write_catalogue):
    columns = {"user": "who", "item": "what"}
    file = {"path": "mine/rows.csv", "format": {"columns": columns}}
    mine = load_catalogue(write_catalogue(mine={"interactions": file}))["mine"]
    assert (mine.title, mine.licence, mine.papers, mine.min_rows) == ("mine", "", (), 1)
    assert mine.time == "first_appearance"
    assert (mine.interactions.path, mine.interactions.sha256) == ("mine/rows.csv", None)
    assert mine.interactions.accepted_sha256() == {None}
    assert mine.interactions.format == TableFormat(",", columns, header=True)
    counted = {"path": "rows.csv", "format": {"columns": {"user": 0, "item": 1, "time": 2}}}
    other = load_catalogue(write_catalogue(mine={"interactions": counted}))["mine"]
    assert other.time == "file"
    assert not other.interactions.format.header


@pytest.mark.parametrize("path", ["/home/me/rows.csv", "../home/me/rows.csv", "../../home/me/rows.csv"])
def test_a_file_may_lie_outside_the_project(write_catalogue, path):
    file = {"path": path, "format": {"columns": {"user": 0, "item": 1}}}
    found = load_catalogue(write_catalogue(mine={"interactions": file}))["mine"].interactions
    assert (found.path, found.written) == ("home/me/rows.csv", path)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_an_encoding_goes_with_interactions_and_titles(write_catalogue, encoding):
    made = entry("alpha.csv", titles=copy.deepcopy(entry("titles.csv")["interactions"]))
    made["titles"]["format"]["columns"] = {"item": 0, "title": 1}
    for file in ("interactions", "titles"):
        made[file]["format"]["encoding"] = encoding
    assert [file.format.encoding for file in load_catalogue(write_catalogue(alpha=made))["alpha"].files()] == [
        encoding, encoding,
    ]  # fmt: skip


def test_a_missing_key_is_reported_once(write_catalogue):
    said = refused(write_catalogue(mine={"interactions": {"sources": []}}))
    assert len(said.splitlines()) == 2
    assert said.count("key 'path' is missing") == said.count("key 'format' is missing") == 1


def test_an_unknown_dataset_is_named_with_the_nearest(catalogue):
    with pytest.raises(ConfigurationError, match=r"unknown dataset 'ml-10m'\. Did you mean 'ml-1m'\?"):
        catalogue["ml-10m"]
    assert "ml-10m" not in catalogue


def test_an_unknown_raw_file_is_named(catalogue):
    with pytest.raises(
        ConfigurationError,
        match=r"datasets\.yaml has no raw file 'filmtrust/rating\.txt'\.",
    ):
        catalogue.raw_file("filmtrust/rating.txt")


def test_descriptions_do_not_touch_recipes(write_catalogue):
    plain = load_catalogue(write_catalogue(alpha=entry("alpha.csv")))["alpha"]
    titled = load_catalogue(write_catalogue(alpha=entry("alpha.csv", title="Another", licence="x")))["alpha"]
    filtered = load_catalogue(write_catalogue(alpha=entry("alpha.csv", filter={"min_rows": 2})))["alpha"]
    assert plain.recipe() == titled.recipe() != filtered.recipe()
    assert plain.description() != titled.description()


def changed(change):
    made = copy.deepcopy(entry("alpha.csv"))
    change(made)
    return made


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda e: e.pop("interactions"),
            "give 'interactions' (files to read) or 'synthetic'",
        ),
        (
            lambda e: e.update(synthetic={"seed": 1, "users": 1, "items": 1, "tastes": 1}),
            "give 'interactions' (files to read) or 'synthetic'",
        ),
        (
            lambda e: e["interactions"].update(sha256="0" * 64),
            "'unverified' gives the reason for a missing 'sha256'. Remove one of them.",
        ),
        (lambda e: e["interactions"]["format"]["columns"].pop("time"), "'file' needs a time column"),
        (
            lambda e: e["interactions"]["format"].update(separator="::", quoted=True),
            "separator of one character",
        ),
        (lambda e: e["interactions"]["format"].update(separator="\n"), "no line end, no double quote"),
        (lambda e: e["interactions"]["format"].update(encoding="latin1"), "Did you mean 'latin-1'?"),
        (
            lambda e: e["interactions"].pop("path"),
            "alpha.interactions: key 'path' is missing. Add it. Expected: where the file lies",
        ),
        (
            lambda e: e["interactions"]["format"]["columns"].update(user="uid"),
            "'uid' must be the position of a column from 0",
        ),
        (
            lambda e: e["interactions"]["format"].update(header=True),
            "the name of a column, because the file has a header line.",
        ),
        (
            lambda e: e["interactions"]["format"]["columns"].update(time=[3, 4, 5]),
            "time: ymd needs a list [year, month, day], every other format one column.",
        ),
        (
            lambda e: e["interactions"]["format"].update(time="ymd"),
            "time: ymd needs a list [year, month, day], every other format one column.",
        ),
        (
            lambda e: e["interactions"].update(sources=[{"member": "x"}]),
            "exactly one of mirror, url and package",
        ),
        (lambda e: e["interactions"].update(sources=[{"package": "x==1"}]), "a package needs 'member'"),
        (lambda e: e["interactions"].update(path="a/../alpha.csv"), "does not match"),
        (lambda e: e["interactions"].update(sha256="123"), "64 hex digits"),
        (lambda e: e["filter"].update(slice={"of": "user", "first": 0, "count": 1}), "Did you mean 'users'?"),
        (lambda e: e["filter"].update(slice={"of": "users", "first": 0}), "'count' is missing"),
        (lambda e: e["filter"].update(slice={"of": "users", "first": -1, "count": 1}), "from 0"),
        (lambda e: e.update(row_orders={"fedem": e["interactions"]}), "Add it to papers, or remove it here."),
        (lambda e: e.update(sorted_rows=["fedem"]), "Remove 'fedem' here"),
        (lambda e: e.update(sorted_rows=["pfedrec"], time="first_appearance"), "and the file needs times."),
    ],
)
def test_an_impossible_entry_is_refused(write_catalogue, change, said):
    assert said in refused(write_catalogue(alpha=changed(change)))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {},
            "give 'tastes' (a small dataset with taste groups) or 'interactions'",
        ),
        (
            {"tastes": 3, "interactions": 90},
            "give 'tastes' (a small dataset with taste groups) or 'interactions'",
        ),
        ({"interactions": 20}, "items: give at least 30"),
        ({"interactons": 90}, "Did you mean 'interactions'?"),
    ],
)
def test_an_impossible_made_dataset_is_refused(write_catalogue, more, said):
    made = {"synthetic": {"seed": 1, "users": 3, "items": 300} | more}
    answer = refused(write_catalogue(alpha=made))
    assert said in answer
    assert "alpha" in answer


def test_two_datasets_must_agree_about_a_shared_file(write_catalogue):
    other = changed(lambda e: e["interactions"].update(sources=[{"url": "https://example.org/alpha.csv"}]))
    said = refused(write_catalogue(alpha=entry("alpha.csv"), beta=other))
    assert "beta: another entry describes alpha.csv differently." in said
