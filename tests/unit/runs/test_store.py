"""Packed runs: what tables read of them comes back, adding is safe, and damage is told."""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

import fedrec
from fedrec.config.methods import load_methods
from fedrec.errors import ResultError, StorageError
from fedrec.files.atomic import canonical_json
from fedrec.files.checked_json import write_checked_json
from fedrec.files.parquet import read_table, write_table
from fedrec.plan.runs import RunId
from fedrec.runs import store as module
from fedrec.runs.record import AUDIT_FILE, RunRecord
from fedrec.runs.sampling_counts import SamplingCounts
from fedrec.runs.store import Changes, RunStore, packed_run, unpacked_run
from tests.conftest import ROOT
from tests.made_runs import write_rows, write_run

METHODS = load_methods(ROOT / "config/methods.yaml")
RANKS = (1, 2.5, 20, 99)


def run_of(seed, dataset="ml-100k", method="fedmf"):
    return RunId("pfedclr", dataset, "clean", method, seed)


@pytest.fixture
def record(tmp_path):
    return write_run(tmp_path / "results", run_of(0), METHODS, final=0.123456789, ranks=RANKS, whole=True)


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store")


same_frame = partial(assert_frame_equal, check_row_order=False, check_column_order=False)


def complaint(store, file, expected):
    """What is said of a damaged file; nothing where no byte was changed that says anything."""
    try:
        assert list(store.every_run()) == expected
    except StorageError as error:
        return str(error) if file in str(error) else None
    return None


def bytes_of(store):
    return {path.name: path.read_bytes() for path in sorted(store.folder.rglob("*.parquet"))}


def test_what_tables_read_of_a_run_comes_back(record, store, tmp_path):
    store.add([packed_run(record)])
    (stored,) = store.every_run()
    back = unpacked_run(stored, tmp_path / "again")

    assert back.id == record.id
    assert back.settings == record.settings
    assert back.metric("hr@10") == record.metric("hr@10")
    for catalogue in (False, True):
        assert back.user_ranks(catalogue=catalogue).rank.tolist() == list(RANKS)
    assert back.user_ranks().user.tolist() == [0, 1, 2, 3]
    assert back.timing["local_seconds"].to_list() == record.timing["local_seconds"].to_list()
    kept, whole = (one.curve["test_hr@10"].to_numpy() for one in (back, record))
    assert np.abs(kept - whole).max() <= 0.5e-4 + 1e-9
    assert np.abs(kept - whole).max() > 0, "curves are rounded"


def test_a_stored_run_opens_like_its_folder(record, store, tmp_path):
    store.add([packed_run(record)])
    unpacked = unpacked_run(packed_run(record), tmp_path / "again")
    path = store.folder / record.id.folder
    for opened in (fedrec.open_run(path), fedrec.open_run(path / "run.json")):
        assert opened.id == record.id
        assert opened.folder == path
        assert opened.settings == record.settings
        for table in ("curve", "ranks", "timing", "metrics", "settings_frame"):
            same_frame(getattr(opened, table), getattr(unpacked, table))
        assert opened.user_ranks().rank.tolist() == list(RANKS)
        assert opened.metric_of("exact_hr@10") == record.metric_of("exact_hr@10")
        opened.check(with_model=False)
    assert not path.exists()
    assert sorted(file.suffix for file in store.folder.rglob("*") if file.is_file()) == [".parquet"] * 2


def test_a_store_is_a_frame_of_its_runs(record, store, tmp_path):
    other = write_run(tmp_path / "results", run_of(1, "filmtrust"), METHODS)
    store.add(packed_run(one) for one in (record, other))
    frame, expected = (fedrec.results(folder, ["d"]) for folder in (store.folder, tmp_path / "results"))
    assert frame["folder"].to_list() == [
        str(store.folder / one.id.folder) for one in (other, record) for _ in range(len(expected) // 2)
    ]
    same_frame(frame.drop("folder"), expected.drop("folder"))


def test_the_inside_of_a_store_is_read_by_the_paths_its_runs_would_have(record, store, monkeypatch):
    (store.folder / "tables").mkdir(parents=True)
    store.add([packed_run(record)])
    whole = fedrec.results(store.folder)
    for inside in ("runs", "runs/pfedclr", record.id.folder):
        same_frame(fedrec.results(store.folder / inside), whole)
    for inside in ("tables", "runs/ml-100k"):
        with pytest.raises(ResultError, match=f"{inside}: contains no packed run of .* Give {store.folder}"):
            fedrec.results(store.folder / inside)
    monkeypatch.chdir(store.folder / "tables")
    with pytest.raises(ResultError, match="contains no packed run of"):
        fedrec.results(".")
    monkeypatch.chdir(store.folder)
    assert len(fedrec.results("runs")) == len(whole)


def test_users_of_a_prepared_dataset_are_no_store(tmp_path):
    (tmp_path / "clean").mkdir()
    (tmp_path / "users.parquet").touch()
    assert fedrec.results(tmp_path / "clean").is_empty()


def test_opening_one_stored_run_decodes_no_other(record, store, tmp_path, monkeypatch):
    others = [write_run(tmp_path / "results", run_of(seed), METHODS) for seed in (1, 2, 3)]
    store.add(packed_run(one) for one in (record, *others))
    decoded = []
    monkeypatch.setattr(
        module.json, "loads", lambda text, loads=json.loads: decoded.append(text) or loads(text)
    )
    assert store.record(record.id.folder).id == record.id
    texts = [text for text in decoded if isinstance(text, str)]
    assert texts == [canonical_json(packed_run(record).summary), "{}"]


@pytest.mark.parametrize(
    ("ask", "what"),
    [
        (lambda run: run.scores([0], [1]), "its model"),
        (lambda run: run.tensors, "its model"),
        (lambda run: run.learner, "its model"),
        (lambda run: run.user_ranks("last"), "the ranks of the round 'last'"),
        (lambda run: run.user_ranks(catalogue=True), "its exact ranks"),
    ],
)
def test_a_stored_run_refuses_what_is_not_kept(record, store, ask, what):
    store.add([packed_run(record).without_exact_ranks()])
    run = store.record(record.id.folder)
    assert not run.has_model
    with pytest.raises(ResultError, match=f"the store does not have {what}. Train the run") as refused:
        ask(run)
    assert f"snakemake --cores 2 'results/{record.id.folder}/run.json'" in str(refused.value)


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("runs/pfedclr/ml-100k/clean/fedm/seed0", "Did you mean 'runs/pfedclr/ml-100k/clean/fedmf/seed0'?"),
        ("runs/pfedclr/ml-100k/clean/fedmf[d=8]/seed0", "Write the method in folders without brackets"),
        ("runs/pfedclr/filmtrust/clean/fedmf/seed0", ""),
    ],
)
def test_a_run_that_is_not_stored_is_named_with_the_nearest(record, store, name, advice):
    store.add([packed_run(record)])
    with pytest.raises(ResultError) as refused:
        fedrec.open_run(store.folder / name)
    assert str(refused.value).startswith(f"{store.folder}: there is no run '{name}' in this store.")
    assert advice in str(refused.value)


def test_a_path_in_no_store_is_refused_as_before(tmp_path):
    with pytest.raises(ResultError, match="no such folder"):
        fedrec.open_run(tmp_path / "runs/pfedclr/ml-100k/clean/fedmf/seed0")


@pytest.mark.parametrize(
    ("values", "whole"),
    [
        ([0.0, 0.69314, 1.0], True),
        ([12.5, 400_000.25], True),
        ([0.5, float("nan")], False),
        ([0.5, float("inf")], False),
        ([-0.25, 0.5], False),
        ([0.5, 1e30], False),
        ([], True),
    ],
)
def test_curves_come_back_whatever_they_hold(values, whole):
    """A training that diverges has losses that are no numbers; others are whole numbers of small parts."""
    text = module._column(np.array(values))
    assert text.startswith(b"%") == whole
    assert np.allclose(module._numbers(text), values, rtol=1e-6, atol=0.5e-4, equal_nan=True)


def test_ranks_among_all_items_may_be_left_out(record, store, tmp_path):
    store.add([packed_run(record).without_exact_ranks()])
    (stored,) = store.every_run()

    assert unpacked_run(stored, tmp_path / "again").ranks.columns == ["at", "user", "test_rank"]


@pytest.mark.parametrize("first", ["with", "without"])
def test_ranks_among_all_items_stay_with_their_run(record, store, first):
    whole = packed_run(record)
    ways = {"with": whole, "without": whole.without_exact_ranks()}
    store.add([ways.pop(first)])
    (other,) = ways.values()

    assert store.add([other]) == Changes(
        **{"same" if first == "with" else "replaced": (record.id.folder,)}, hr_change={}
    )
    assert store.runs_on("ml-100k") == {whole.name: whole}


def test_ranks_among_all_items_are_none_of_another_run_of_that_name(record, store, tmp_path):
    store.add([packed_run(record)])
    other = packed_run(
        write_run(tmp_path / "other", run_of(0), METHODS, ranks=(7, 8, 9, 10), has_exact=False)
    )

    assert store.add([other]).replaced == (other.name,)
    assert not store.runs_on("ml-100k")[other.name].has_exact_ranks


def test_adding_the_same_again_changes_no_byte(record, store, tmp_path):
    write_rows(tmp_path / "results/data", "ml-100k", "clean", [3, 5])
    for what in ("added", "same"):
        changes = store.add([packed_run(record)])
        store.add_data(tmp_path / "results")
        assert changes == Changes(**{what: (record.id.folder,)})
        if what == "added":
            before = bytes_of(store)
    assert bytes_of(store) == before


def test_the_order_in_which_runs_are_added_changes_no_byte(tmp_path):
    runs = [
        packed_run(write_run(tmp_path / "results", run_of(seed), METHODS, final=0.1 * seed))
        for seed in range(3)
    ]
    one, other = RunStore(tmp_path / "one"), RunStore(tmp_path / "other")
    one.add(runs)
    for run in reversed(runs):
        other.add([run])

    assert bytes_of(one) == bytes_of(other)


def test_a_newer_run_takes_the_place_of_an_older_one_unless_that_is_kept(record, store, tmp_path):
    store.add([packed_run(record)])
    other = packed_run(write_run(tmp_path / "other", run_of(0), METHODS, final=0.9))

    assert store.add([other], keeps=[other.name]) == Changes(rejected=(other.name,))
    assert store.runs_on("ml-100k")[other.name] == packed_run(record)
    assert store.add([other]).replaced == (other.name,)
    assert store.runs_on("ml-100k") == {other.name: other}


def test_of_a_run_trained_again_it_is_reported_how_far_it_is_from_before(record, store, tmp_path):
    first = packed_run(record)
    store.add([first])
    rule = first.summary["protocol"]["round_rule"]

    of_other_code = replace(first, summary={**first.summary, "code": "other"})
    assert store.add([of_other_code]).hr_change == {first.name: None}
    other = packed_run(write_run(tmp_path / "other", run_of(0), METHODS, final=0.9))
    (apart,) = store.add([other]).hr_change.values()
    hits = [run.summary["metrics"][rule]["test"]["hr@10"] for run in (first, other)]
    assert apart == pytest.approx(abs(hits[0] - hits[1]))
    # Other settings make it another run of the same name, with which nothing is to be compared.
    changed = {**first.summary, "settings": {**first.summary["settings"], "rate": 7}}
    assert store.add([replace(first, summary=changed)]).hr_change == {}


def test_what_the_audit_found_stays_with_its_run(record, store, tmp_path):
    found = {"exposure": {"draws_per_client": 3.0}}
    store.add([packed_run(record, found)])

    assert store.add([packed_run(record)]) == Changes(same=(record.id.folder,))
    (stored,) = store.every_run()
    assert unpacked_run(stored, tmp_path / "again").audit == found
    other = write_run(tmp_path / "other", run_of(0), METHODS, final=0.9)
    store.add([packed_run(other)])
    assert store.runs_on("ml-100k")[record.id.folder].audit == {}


def test_an_audit_that_lies_beside_a_run_is_packed_with_it(record):
    write_checked_json(record.folder / AUDIT_FILE, {"uploads": {}})

    assert packed_run(RunRecord(record.folder)).audit == {"uploads": {}}


@pytest.mark.parametrize("file", ["runs/ml-100k.parquet", "users.parquet"])
def test_damage_is_reported_with_the_file(record, store, file):
    store.add([packed_run(record)])
    path = store.folder / file
    whole = path.read_bytes()
    told = 0
    for place in (*range(0, len(whole), 151), len(whole) // 2):
        damaged = bytearray(whole)
        damaged[place] ^= 255
        for content in (bytes(damaged), whole[:place]):
            path.write_bytes(content)
            told += bool(complaint(store, path.name, [packed_run(record)]))
    assert told > len(whole) // 151, "every cut, and most changes"


def test_users_that_are_missing_are_reported(record, store, tmp_path):
    store.add([packed_run(record)])
    other = RunStore(tmp_path / "other")
    other.add([replace(packed_run(record), users=b"|u1\x07")])
    (store.folder / "users.parquet").write_bytes((other.folder / "users.parquet").read_bytes())

    with pytest.raises(StorageError, match="does not have the users of runs/pfedclr/ml-100k"):
        list(store.every_run())


def test_the_shape_of_a_split_comes_back_without_its_items(record, store, tmp_path):
    results, again = tmp_path / "results", tmp_path / "again"
    write_rows(results / "data", "ml-100k", "clean", [3, 5], items=50)
    write_checked_json(results / "data/ml-100k/statistics.json", {"dataset": "ml-100k", "users": 2})
    store.add([packed_run(record)])
    store.add_data(results)
    copy = RunStore(tmp_path / "copy")
    copy.add(store.every_run())
    copy.add_data_of(store)
    copy.unpack_data(again)

    from fedrec.reporting.artefact_runs import read_statistics, split_sizes

    table, _ = read_table(again / "data/ml-100k/clean/split.parquet")
    assert table.column_names == ["user", "part"]
    assert np.bincount(table["user"].to_numpy()).tolist() == [3, 5]
    assert split_sizes(record, again / "data") == (2, 50)
    assert copy.datasets_with_statistics() == ["ml-100k"]
    assert read_statistics(again / "data/ml-100k/statistics.json")["users"] == 2


def test_a_split_is_described_once_and_again_where_runs_are_of_another(record, store, tmp_path):
    """Its file is not even read where its shape is there: rows of another length change nothing."""
    results, again = tmp_path / "results", tmp_path / "again"

    def datasets_with_statistics(run, rows, split):
        write_rows(results / "data", "ml-100k", "clean", rows, split=split)
        store.add([replace(packed_run(run), summary={**packed_run(run).summary, "split": split})])
        store.add_data(results)
        store.unpack_data(again)
        user = read_table(again / "data/ml-100k/clean/split.parquet")[0]["user"].to_numpy()
        return np.bincount(user).tolist()

    assert datasets_with_statistics(record, [3, 5], "a" * 64) == [3, 5]
    assert datasets_with_statistics(record, [4, 6], "a" * 64) == [3, 5]
    assert datasets_with_statistics(record, [4, 6], "b" * 64) == [4, 6]


@pytest.mark.parametrize(("protocol", "kept"), [("published-pfedclr", True), ("clean", False)])
def test_of_a_pool_without_held_out_items_the_counts_come_back_and_no_item(store, tmp_path, protocol, kept):
    rng = np.random.default_rng(1)
    user = np.repeat(np.arange(6, dtype=np.int32), 5)
    # Few items, so that users have some twice, and test items in training.
    split = {"user": user, "item": rng.integers(0, 7, len(user)).astype(np.int32)}
    part = np.array(["train", "train", "train", "validation", "test"] * 6)
    results = tmp_path / "results"
    write_rows(results / "data", "ml-100k", protocol, [3] * 6, items=7)
    path = results / "data/ml-100k" / protocol / "split.parquet"
    _, about = read_table(path)
    about.pop("content")
    write_table(path, pa.table({**split, "part": pa.array(part).dictionary_encode()}), about)
    record = write_run(results, replace(run_of(0), protocol=protocol), METHODS, whole=True)
    store.add([packed_run(record)])
    store.add_data(results)
    store.unpack_data(tmp_path / "again")

    shape, _ = read_table(tmp_path / "again/data/ml-100k" / protocol / "split.parquet")
    assert shape.column_names == ["user", "part", *(["pool", "seen"] if kept else [])]
    if kept:
        wanted = SamplingCounts.of_split(user, split["item"], part, 7)
        found = SamplingCounts.of_shape(*(shape[name].to_numpy() for name in ("user", "pool", "seen")))
        assert 0 < wanted.seen.sum() < 6
        for name in ("rows", "pool", "seen"):
            assert getattr(found, name).tolist() == getattr(wanted, name).tolist()
