"""Finished runs opened again: frames, scores and hashes, and clear words where something is missing."""

import json
import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
import torch

import fedrec
from fedrec.data.split import read_split
from fedrec.errors import ConfigurationError, FedrecError, ResultError, StorageError
from fedrec.evaluation.metrics import METRICS, metrics_of
from fedrec.evaluation.scoring import candidate_ranks
from fedrec.files.checked_json import read_checked_json, with_checksum, write_checked_json
from fedrec.files.parquet import read_table
from fedrec.plan.runs import RunId
from fedrec.runs import record
from fedrec.runs.record import REPORTED, RunRecord
from tests.federations import METHODS, planted_blocks
from tests.given_scores import write_ids
from tests.made_runs import write_run
from tests.once import once_for_all_workers
from tests.trained_runs import finished, made_results

USERS, ITEMS = 12, 60


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Results with three small runs, which nobody may change."""

    def build(root):
        made_results(root, planted_blocks, users=USERS, items=ITEMS)
        write_ids(root / "data/made", planted_blocks(users=USERS, items=ITEMS))
        finished(root, "fedmf", "clean", "rounds=3")
        finished(root, "fedmf", "published", "rounds=3")
        finished(root, "popularity", "clean", seed=1)

    return once_for_all_workers(tmp_path_factory, "recorded", build)


@pytest.fixture
def folder(shared):
    return finished(shared, "fedmf", "clean", "rounds=3").folder


@pytest.fixture
def damaged(folder, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(folder, tmp_path / "run")


@pytest.mark.parametrize(
    ("large", "said", "written"),
    [
        (11, {}, False),
        (12, {}, True),
        (11, {"model": "kept on request"}, True),
        (11, {"record": ["abundance"]}, True),
        (12, {"model": "not kept"}, False),
    ],
)
def test_a_large_model_is_written_where_it_was_requested(tmp_path, monkeypatch, large, said, written):
    """The model has 12 bytes. An older file of it does not stay beside another run."""
    monkeypatch.setattr(record, "LARGE_MODEL", large)
    (tmp_path / "state.safetensors").write_bytes(b"older")
    table = pa.table({"x": [1.0]})
    RunRecord.write(
        tmp_path, {}, curve=table, timing=table, ranks=table, tensors={"Q": torch.zeros(3)}, summary=said,
    )  # fmt: skip
    assert (tmp_path / "state.safetensors").exists() == written
    assert json.loads((tmp_path / "run.json").read_text()).get("model_bytes") == (None if written else 12)


def test_importing_fedrec_is_light():
    heavy = ["polars", "torch", "numpy", "snakemake"]
    code = f"import sys, fedrec; print([name for name in {heavy} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_a_run_opens_by_its_folder_or_its_file(folder):
    one, other = fedrec.open_run(folder), fedrec.open_run(str(folder / "run.json"))
    assert one == other == RunRecord(folder)
    assert one.settings["rounds"] == 3
    assert one.summary["method"] == "fedmf[rounds=3]"


def test_frames_are_what_the_files_hold(folder):
    run = fedrec.open_run(folder)
    assert run.curve["round"].to_list() == [1, 2, 3]
    assert run.timing["clients"].to_list() == [USERS] * 3
    assert run.ranks.shape == (len(REPORTED) * USERS, 6)
    assert set(run.settings_frame["setting"]) == set(run.settings)
    (rounds,) = run.settings_frame.filter(pl.col("setting") == "rounds").rows()
    assert rounds == ("rounds", "3", "user")
    assert run.metrics.shape == (len(REPORTED) * 2, 4 + len(METRICS))
    reported = run.metrics.filter(pl.col("reported"), pl.col("part") == "test")
    assert reported["at"].to_list() == ["best_validation"]
    assert reported["hr@10"].item() == run.metric("hr@10") == run.metric_of("hr@10")
    round_ = reported["round"].item()
    assert run.curve.filter(pl.col("round") == round_)["test_hr@10"].item() == run.metric("hr@10")
    assert run.metric("hr@10", "validation", "last") == run.curve["validation_hr@10"][-1]


def test_ranks_of_users_come_by_rule_and_by_list(folder):
    run = fedrec.open_run(folder)
    at = run.ranks.filter(pl.col("at") == "last").sort("user")
    last = run.user_ranks("last")
    assert (last.user.tolist(), last.rank.tolist()) == (at["user"].to_list(), at["test_rank"].to_list())
    whole = run.user_ranks("last", catalogue=True)
    assert whole.rank.tolist() == at["test_rank_in_catalogue"].to_list()
    some = run.metric_of("exact_ndcg@10", users=[0, 3])
    ranks = run.user_ranks(catalogue=True)
    assert some == metrics_of(ranks.rank[[0, 3]])["ndcg@10"]
    assert np.isnan(run.metric_of("hr@10", users=[]))


def test_an_exact_metric_is_of_ranks_among_all_items_and_needs_them(tmp_path):
    named = RunId("pfedclr", "ml-100k", "clean", "fedmf", 0)
    made = partial(write_run, run=named, methods=METHODS, ranks=(1, 2, 3, 4), exact=(1, 11, 12, 30))
    run, without = made(tmp_path / "with"), made(tmp_path / "without", has_exact=False)

    assert run.metric_of("exact_hr@10") == run.exact_metrics["exact_hr@10"] == 0.25
    assert run.metric_of("exact_hr@20") == 0.75
    assert run.metric_of("exact_hr@20", users=[0, 3]) == 0.5
    assert run.metric_of("hr@10", users=[0, 3]) == 1.0
    assert run.ranks_of("exact_ndcg@10").rank.tolist() == [1, 11, 12, 30]
    assert (run.has_exact_ranks, without.has_exact_ranks, without.exact_metrics) == (True, False, {})
    with pytest.raises(ResultError, match=r"its exact ranks were not kept\."):
        without.metric_of("exact_hr@10")


def test_scores_are_those_that_ranks_were_made_of(folder):
    run = fedrec.open_run(folder)
    users = run.clients.user.tolist()
    held_out = run.clients.held_out["test"].unsqueeze(1)
    items = np.concatenate((held_out.numpy(), run.clients.candidates["test"].numpy()), axis=1)
    scores = run.scores(users, items)
    assert scores.shape == items.shape
    above = (scores[:, 1:] > scores[:, :1]).sum(1)
    equal = (scores[:, 1:] == scores[:, :1]).sum(1)
    expected = candidate_ranks(run.learner, run.clients, "test").numpy()
    assert (1 + above + equal / 2).tolist() == expected.tolist() == run.user_ranks("last").rank.tolist()


def test_one_list_of_items_serves_all_users_in_any_order(folder):
    run = fedrec.open_run(folder)
    both = run.scores([5, 2], [0, 7, 59])
    assert both.shape == (2, 3)
    assert run.scores([2], [7])[0, 0] == both[1, 1]


@pytest.mark.parametrize(
    ("users", "items", "message"),
    [([0, 99], [0], "no user 99"), ([-1], [0], "no user -1"), ([0], [60], "no item 60"), ([0], [-1], "no item -1")],
)  # fmt: skip
def test_who_or_what_is_not_in_the_split_has_no_scores(folder, users, items, message):
    with pytest.raises(ResultError, match=message):
        fedrec.open_run(folder).scores(users, items)


def test_own_ids_stand_for_the_numbers(folder, shared):
    data = shared / "data/made"
    users, items = (
        pl.read_parquet(data / f"{name}s.parquet")["original_id"].to_list() for name in ("user", "item")
    )
    run = fedrec.open_run(folder)
    own = run.scores([users[5], users[2]], [items[0], items[7]], ids="original")
    assert own.tolist() == run.scores([5, 2], [0, 7]).tolist()


def test_what_is_recommended_are_the_best_items_that_a_user_did_not_train_on(folder, shared):
    data = shared / "data/made"
    split = read_split(data / "clean")
    run = fedrec.open_run(folder)
    user, item = split.pairs_of(0)
    every = run.scores([3], range(split.items))[0]
    every[item[user == 3]] = -np.inf
    found = run.recommend(3, 7, ids="fedrec")
    assert found["score"].to_list() == sorted(every, reverse=True)[:7]
    assert every[found["item"].to_numpy()].tolist() == found["score"].to_list()
    ids = [pl.read_parquet(data / f"{name}s.parquet")["original_id"] for name in ("user", "item")]
    own = run.recommend(ids[0][3], 7)
    assert own["item"].to_list() == ids[1][found["item"]].to_list()
    seen = int((user == 3).sum())
    assert run.recommend(3, 1000, ids="fedrec").height == split.items - seen


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (lambda run: run.scores(["u-1"], [0]), 'ids="original"'),
        (lambda run: run.scores([0.5], [0]), "are not numbers of the split."),
        (lambda run: run.scores(0, [0]), "Give a list: \\[0\\]"),
        (lambda run: run.scores([0, 1], [[0], [1], [2]]), r"items: their shape is \(3, 1\), .* or one row for each user\.$"),
        (lambda run: run.scores([0, 1], [[0, 1], [2]]), "one length"),
        (lambda run: run.recommend("nobody"), "no user nobody"),
        (lambda run: run.recommend(0, 0, ids="fedrec"), "k=0"),
        (lambda run: run.recommend(0, ids="fedrc"), "Did you mean 'fedrec'"),
        (lambda run: run.plot(["test_ndgc@10"]), "Did you mean 'test_ndcg@10'"),
    ],
)  # fmt: skip
def test_what_cannot_be_scored_recommended_or_drawn_says_why(folder, asked, message):
    with pytest.raises(FedrecError, match=message):
        asked(fedrec.open_run(folder))


def test_a_plot_shows_the_curve(folder):
    run = fedrec.open_run(folder)
    (axes,) = run.plot(["validation_hr@10", "test_hr@10"]).axes
    validation, test, _ = axes.lines
    assert [*validation.get_ydata()] == run.curve["validation_hr@10"].to_list()
    assert [*test.get_ydata()] == run.curve["test_hr@10"].to_list()


def test_a_clean_run_says_whose_settings_it_also_is(shared, folder):
    other = finished(shared, "popularity", "clean", seed=1)
    assert len(other.summary["also_settings_of"]) > 0
    assert "fedem" not in other.summary["also_settings_of"]
    published = finished(shared, "fedmf", "published", "rounds=3")
    assert published.summary["also_settings_of"] == []
    # It decides nothing, so that it is no part of what the files carry.
    assert "also_settings_of" not in read_table(folder / "curve.parquet")[1]


def test_results_are_one_frame(shared):
    frame = fedrec.results(shared, settings=["d", "rounds"])
    assert len(frame) == 3 * len(REPORTED)
    assert {"paper", "dataset", "protocol", "method", "seed", "at", "round", "test_ndcg@20"} <= set(
        frame.columns
    )
    assert {"seconds", "device", "split", "code", "folder"} <= set(frame.columns)
    best = frame.filter(pl.col("reported"), pl.col("protocol") == "clean").sort("method")
    assert best["method"].to_list() == ["fedmf[rounds=3]", "popularity"]
    # A method without a setting has no value of it; numbers are numbers, in their order.
    assert best["d"].to_list() == [16, None]
    assert best["rounds"].to_list()[0] == 3
    run = fedrec.open_run(best["folder"][0])
    assert best["test_hr@10"][0] == run.metric("hr@10")
    published = frame.filter(pl.col("protocol") == "published-fedem", pl.col("reported"))
    assert published["at"].to_list() == [fedrec.open_run(published["folder"][0]).round_rule]


def test_a_setting_that_is_a_text_somewhere_is_a_text_in_every_run(shared):
    frame = fedrec.results(shared, settings=["optimiser", "clients"])
    fedmf = frame.filter(pl.col("method") == "fedmf[rounds=3]")
    assert fedmf["optimiser"].unique().to_list() == ["adam"]
    # null, of a setting that may be a number
    assert fedmf["clients"].unique().to_list() == [None]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("rat", "Did you mean 'rate'?"),
        ("lr", "Did you mean 'rate'?"),
        ("temperature", "settings: no run has a setting '"),
    ],
)
def test_a_setting_that_no_run_has_is_refused(shared, name, hint):
    with pytest.raises(ConfigurationError, match=re.escape(f"no run has a setting '{name}'.")) as caught:
        fedrec.results(shared, settings=["d", name])
    assert hint in str(caught.value)


def test_a_folder_without_runs_has_no_rows_but_columns(tmp_path):
    frame = fedrec.results(tmp_path, settings=["d"])
    assert frame.is_empty()
    assert {"paper", "method", "protocol", "reported", "folder", "d"} <= set(frame.columns)


def test_a_folder_that_is_not_there_is_reported_missing(tmp_path):
    with pytest.raises(ResultError, match=r"nowhere: no such folder\. Give the folder of a finished run"):
        fedrec.open_run(tmp_path / "nowhere")
    with pytest.raises(ResultError, match=r"nowhere: no such folder\. Give a folder of results\."):
        fedrec.results(tmp_path / "nowhere")


def test_a_path_typed_with_brackets_gets_its_spelling(tmp_path):
    typed = tmp_path / "runs/fedem/made/clean/fedmf[rounds=20]/seed0"
    with pytest.raises(ResultError, match=r"made/clean/fedmf@rounds-20/seed0"):
        fedrec.open_run(typed)
    with pytest.raises(ResultError, match=r"without brackets: .*/fedmf@rounds-20/seed0"):
        _ = RunRecord(typed).summary
    with pytest.raises(ResultError, match="without brackets"):
        fedrec.open_run(tmp_path / "fedmf[rounds=20")


def test_what_is_no_run_gets_a_hint(damaged, tmp_path):
    with pytest.raises(ResultError, match=rf"not finished. Did you mean .*{damaged.name}\?"):
        fedrec.open_run(damaged.parent)
    (tmp_path / "by hand").mkdir()
    with pytest.raises(ResultError, match="repeat the `fedrec train` that writes it"):
        fedrec.open_run(tmp_path / "by hand")


def test_a_run_knows_its_split_wherever_it_lies(folder, shared, tmp_path):
    said = read_checked_json(folder / "run.json")
    own = tmp_path / "elsewhere"
    shutil.copytree(folder, own)
    data = Path(os.path.relpath(shared / "data" / said["dataset"], own))
    write_checked_json(own / "run.json", said | {"data": str(data)})
    assert RunRecord(own).split.content_hash() == said["split"]


def test_an_unfinished_run_is_reported_as_such(damaged):
    planned = damaged.parent / "runs/pfedclr/made/clean/fedmf/seed0"
    planned.mkdir(parents=True)
    with pytest.raises(ResultError, match=r"run.json: this run is not finished. Build it with: snakemake"):
        fedrec.open_run(planned)
    (damaged / "run.json").unlink()
    with pytest.raises(ResultError, match="not finished"):
        _ = RunRecord(damaged).curve


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"dataset": "made"', "the file is damaged: Expecting"),
        ("[" * 100_000, "the file is damaged: it is nested too deeply"),
        ("[]", "the file is damaged: it has no checksum"),
        ('{"dataset": "made"}', "the file is damaged: it has no checksum"),
        (
            json.dumps(with_checksum({"dataset": "made"})),
            "'method' is missing. Another version of fedrec wrote it",
        ),
    ],
)
def test_a_damaged_or_foreign_summary_is_refused(damaged, text, said):
    (damaged / "run.json").write_text(text)
    with pytest.raises(ResultError, match=rf"run.json: {said}.* repeat its `fedrec train` with --force"):
        fedrec.open_run(damaged)
    with pytest.raises(ResultError, match=r"run\.json"):
        fedrec.results(damaged)


def test_a_run_of_another_version_is_reported_as_such(damaged):
    said = read_checked_json(damaged / "run.json")
    write_checked_json(damaged / "run.json", said | {"code": {"method": "a", "engine": "b"}})
    with pytest.raises(
        ResultError, match=r"its code is named differently.* Another version of fedrec wrote it"
    ):
        fedrec.open_run(damaged)


def test_a_damaged_table_is_refused(damaged):
    (damaged / "ranks.parquet").write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=r"ranks.parquet: cannot be read"):
        _ = fedrec.open_run(damaged).ranks


def test_a_changed_number_of_a_summary_is_noticed(damaged):
    path = damaged / "run.json"
    text = path.read_text()
    assert text.count('"rounds": 3,') == 1
    path.write_text(text.replace('"rounds": 3,', '"rounds": 4,'))
    with pytest.raises(ResultError, match=r"run\.json: the file is damaged: its content does not match"):
        fedrec.open_run(damaged)


@pytest.mark.parametrize("file", ["curve.parquet", "timing.parquet", "ranks.parquet", "state.safetensors"])
def test_a_file_of_another_run_is_noticed(shared, damaged, file):
    other = finished(shared, "fedmf", "published", "rounds=3").folder
    shutil.copyfile(other / file, damaged / file)
    with pytest.raises(StorageError, match=f"{file}: is another file than the one written here."):
        fedrec.open_run(damaged).check()


def test_the_summary_of_another_run_is_noticed_where_the_folder_says_whose_it_is(shared, folder, tmp_path):
    planned = shutil.copytree(folder, tmp_path / Path(*folder.parts[-6:]))
    assert fedrec.open_run(planned).protocol == "clean"
    other = finished(shared, "fedmf", "published", "rounds=3").folder
    shutil.copyfile(other / "run.json", planned / "run.json")
    with pytest.raises(ResultError, match="is the record of another run, runs/fedem/made/published-fedem"):
        fedrec.open_run(planned)


def test_a_record_without_its_model_or_split_says_what_is_missing(damaged, shared):
    run = fedrec.open_run(damaged)
    with pytest.raises(
        ResultError, match=r"its split is not in .*made/clean. Give the dataset's folder, with its splits"
    ):
        run.scores([0], [0])
    run = fedrec.open_run(damaged, data=shared / "data/made")
    assert run.scores([0], [0]).shape == (1, 1)
    (damaged / "state.safetensors").unlink()
    with pytest.raises(ResultError, match=r"the model of this run was not kept\."):
        fedrec.open_run(damaged, data=shared / "data/made").scores([0], [0])


def test_a_run_on_another_split_has_no_scores(damaged, shared):
    said = read_checked_json(damaged / "run.json")
    write_checked_json(damaged / "run.json", said | {"split": "0" * 64})
    with pytest.raises(ResultError, match="was trained on another split"):
        fedrec.open_run(damaged, data=shared / "data/made").scores([0], [0])


@pytest.mark.parametrize("place", ["data/made", "data/made/clean"])
def test_the_folder_of_a_dataset_is_no_run(shared, place):
    with pytest.raises(
        ResultError, match=r"this is the folder of a dataset or of a split, not of a run\. Give the folder of"
    ):
        _ = fedrec.open_run(shared / place)
