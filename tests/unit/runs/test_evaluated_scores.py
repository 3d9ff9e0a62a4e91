"""Scores of other systems: ranked as fedrec ranks its own, or refused with words that say what to do."""

import re
import shlex
import shutil
import textwrap
from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import fedrec
from fedrec.cli.main import main
from fedrec.data.split import read_split, write_split
from fedrec.errors import ConfigurationError, FedrecError, ResultError, SplitError
from fedrec.evaluation.metrics import METRICS
from fedrec.files.checked_json import read_checked_json
from fedrec.runs.record import REPORTED
from tests.conftest import ROOT
from tests.federations import planted_blocks, split_of
from tests.given_scores import long_form, metrics_by_hand, original_ids, ranks_by_hand, write_ids
from tests.once import once_for_all_workers
from tests.trained_runs import PAPER, finished, made_results

USERS, ITEMS = 12, 60
PUBLISHED = f"published-{PAPER}"
SAMPLED = ["user", "validation_rank", "test_rank"]
EXACT = [*SAMPLED, "validation_rank_in_catalogue", "test_rank_in_catalogue"]


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """Results with runs of fedrec on a dataset that has ids of its own; nobody may change them."""

    def build(root):
        made_results(root, planted_blocks, users=USERS, items=ITEMS)
        write_ids(root / "data/made", planted_blocks(users=USERS, items=ITEMS))
        for protocol in ("clean", "published"):
            finished(root, "popularity", protocol)
            finished(root, "fedmf", protocol, "rounds=2")
        finished(root, "ease", "clean")

    return once_for_all_workers(tmp_path_factory, "scored elsewhere", build)


@pytest.fixture
def data(shared):
    return shared / "data/made"


@pytest.fixture
def evaluate(data, tmp_path):
    def evaluated(scores, protocol="clean", **options):
        options = {"name": "theirs", "out": tmp_path / "evaluated"} | options
        return fedrec.evaluate(scores, options.pop("data", data), protocol, **options)

    return evaluated


def scores_of(run):
    """What a run of fedrec ranks all items by, for all users in their order."""
    return run.scores(run.clients.user.tolist(), np.arange(ITEMS))


def some_scores(seed=0):
    return np.random.default_rng(seed).integers(0, 25, (USERS, ITEMS)).astype(float)


def frame_of(data, scores=None):
    return long_form(data, np.arange(USERS), some_scores() if scores is None else scores)


def written(form, path, data, scores):
    """The same scores in one of the forms that fedrec reads."""
    frame = frame_of(data, scores)
    match form:
        case "parquet":
            frame.write_parquet(path / "s.parquet")
        case "csv":
            frame.write_csv(path / "s.csv")
        case "npy":
            np.save(path / "s.npy", scores)
        case "arrow":
            return frame.to_arrow()
        case _:
            return scores
    return path / f"s.{form}"


def last_ranks(run, columns):
    return run.ranks.filter(pl.col("at") == "last").sort("user").select(columns)


@pytest.mark.parametrize(
    ("form", "method", "protocol"),
    [
        *((form, "popularity", "clean") for form in ("parquet", "csv", "npy", "arrow", "matrix")),
        ("parquet", "popularity", "published"),
        ("parquet", "ease", "clean"),
        ("csv", "fedmf[rounds=2]", "clean"),
        ("npy", "fedmf[rounds=2]", "published"),
    ],
)
def test_scores_of_a_run_of_fedrec_give_the_ranks_that_the_run_kept(
    shared, evaluate, tmp_path, form, method, protocol
):
    run = finished(shared, method.partition("[")[0], protocol, *(["rounds=2"] if "[" in method else []))
    theirs = evaluate(written(form, tmp_path, shared / "data/made", scores_of(run)), run.protocol)
    assert last_ranks(theirs, EXACT).equals(last_ranks(run, EXACT))
    at_last = (run.summary["metrics"]["last"], theirs.summary["metrics"]["last"])
    assert at_last[0] == at_last[1]


@pytest.mark.parametrize("protocol", ["clean", PUBLISHED])
def test_ranks_and_metrics_are_those_counted_by_hand(data, evaluate, protocol):
    scores = some_scores()
    run, counted = evaluate(scores, protocol), ranks_by_hand(data / protocol, scores)
    assert last_ranks(run, list(counted)).to_dict(as_series=False) == counted
    # Some are equal to others, so that the rule for them is at work.
    assert len({*map(tuple, scores)}) == USERS
    for part in ("validation", "test"):
        for name, value in metrics_by_hand(counted[f"{part}_rank"]).items():
            assert run.metric(name, part) == pytest.approx(value)
        for name, value in metrics_by_hand(counted[f"{part}_rank_in_catalogue"]).items():
            assert run.summary["exact_metrics"][part][name] == pytest.approx(value)
    assert run.exact_metrics["exact_hr@10"] == metrics_by_hand(counted["test_rank_in_catalogue"])["hr@10"]


@pytest.mark.parametrize(("protocol", "rank"), [("clean", 1 + 15 / 2), (PUBLISHED, 1 + 15)])
def test_equal_scores_are_ranked_as_the_protocol_says(evaluate, protocol, rank):
    assert evaluate(np.zeros((USERS, ITEMS)), protocol).user_ranks().rank.tolist() == [rank] * USERS


def test_scores_are_compared_in_the_numbers_of_the_file(data, evaluate):
    """In single precision all of these are equal."""
    scores = 1 + np.arange(ITEMS) * 1e-12 + np.zeros((USERS, 1))
    run, counted = evaluate(scores), ranks_by_hand(data / "clean", scores)
    assert run.user_ranks().rank.tolist() == counted["test_rank"]
    assert all(rank == int(rank) for rank in counted["test_rank"])


def pairs_needed(data, protocol="clean"):
    """Held-out items and candidates by user, in fedrec's numbers."""
    split = read_split(data / protocol)
    lists = split.candidates
    pairs = {(int(u), int(i)) for part in (1, 2) for u, i in zip(*split.pairs_of(part), strict=True)}
    for items in (lists.validation, lists.test):
        pairs |= {(int(user), int(item)) for user, row in zip(lists.user, items, strict=True) for item in row}
    return pairs


def only(frame, data, pairs):
    """The rows of a frame of original ids that belong to pairs in fedrec's numbers."""
    users, items = original_ids(data)
    wanted = pl.DataFrame(
        [(users[u], items[i]) for u, i in sorted(pairs)], schema=["user", "item"], orient="row"
    )
    return frame.join(wanted, on=["user", "item"], how="semi")


def trained(data, protocol="clean"):
    return {
        (int(user), int(item)) for user, item in zip(*read_split(data / protocol).pairs_of(0), strict=True)
    }


def test_scores_of_candidates_alone_give_no_exact_ranks(data, evaluate):
    run = evaluate(only(frame_of(data), data, pairs_needed(data)))
    counted = ranks_by_hand(data / "clean", some_scores())
    assert run.ranks.columns == ["at", *SAMPLED]
    assert last_ranks(run, SAMPLED[1:]).to_dict(as_series=False) == {
        name: counted[name] for name in SAMPLED[1:]
    }
    assert (run.exact_metrics, run.summary["elsewhere"]["scores"]) == ({}, "held-out items and candidates")
    assert "exact_metrics" not in run.summary
    with pytest.raises(ResultError, match=r"Another system trained it, and fedrec has only its scores\."):
        run.metric_of("exact_hr@10")


def test_no_rank_depends_on_scores_of_training_items(data, evaluate, tmp_path):
    """Libraries leave them out, or hide them by infinite scores."""
    scores, counted = some_scores(), ranks_by_hand(data / "clean", some_scores())
    every = {(user, item) for user in range(USERS) for item in range(ITEMS)}
    hidden = scores.copy()
    hidden[tuple(np.array(sorted(trained(data))).T)] = -np.inf
    without = only(frame_of(data), data, every - trained(data))
    assert without.height < USERS * ITEMS
    for place, given in enumerate((without, hidden, frame_of(data, hidden))):
        run = evaluate(given, out=tmp_path / str(place))
        assert last_ranks(run, list(counted)).to_dict(as_series=False) == counted


def test_an_item_that_is_held_out_and_trained_on_is_ranked_all_the_same(tmp_path):
    """Published protocols keep repeated rows."""
    rows = [(user, item, time) for user in range(4) for time, item in enumerate((user, 7, 8, 9, 7))]
    split = split_of(rows, 40, PUBLISHED, candidates=5)
    assert set(zip(*split.pairs_of(2), strict=True)) <= set(zip(*split.pairs_of(0), strict=True))
    write_split(split, tmp_path / PUBLISHED)
    scores = np.random.default_rng(3).normal(size=(4, 40))
    run = fedrec.evaluate(scores, tmp_path, PUBLISHED, name="theirs", out=tmp_path / "out", ids="fedrec")
    counted = ranks_by_hand(tmp_path / PUBLISHED, scores)
    assert last_ranks(run, list(counted)).to_dict(as_series=False) == counted
    own = pl.DataFrame({"user": [0] * 39, "item": sorted({*range(40)} - {7}), "score": [0.0] * 39})
    with pytest.raises(FedrecError, match="user 0 has none of 1 item: 7"):
        fedrec.evaluate(
            pl.concat([own, *(own.with_columns(user=pl.lit(user, pl.Int64)) for user in (1, 2, 3))]),
            tmp_path, PUBLISHED, name="theirs", out=tmp_path / "other", ids="fedrec",
        )  # fmt: skip


def test_scores_of_users_who_take_no_part_are_not_read(tmp_path):
    rows = [(user, (user + item) % 30, item) for user in range(5) for item in range(2 if user == 2 else 6)]
    split = split_of(rows, 30, candidates=5)
    assert split.dropped.tolist() == [2]
    write_split(split, tmp_path / "clean")
    scores = np.random.default_rng(3).normal(size=(5, 30))
    scores[2] = np.nan
    frame = pl.DataFrame(
        {"user": np.repeat(np.arange(5), 30), "item": np.tile(np.arange(30), 5), "score": scores.ravel()}
    )
    for place, given in enumerate((scores, frame, frame.filter(pl.col("user") != 2))):
        run = fedrec.evaluate(
            given, tmp_path, "clean", name="theirs", out=tmp_path / str(place), ids="fedrec"
        )
        assert run.user_ranks().user.tolist() == [0, 1, 3, 4]
        assert run.user_ranks().rank.tolist() == ranks_by_hand(tmp_path / "clean", scores)["test_rank"]


def test_the_record_is_a_finished_run_that_says_where_its_scores_came_from(data, evaluate, tmp_path):
    path = written("csv", tmp_path, data, some_scores())
    run = fedrec.open_run(evaluate(path).folder)
    source = run.summary["elsewhere"]
    assert {key: source[key] for key in ("name", "file", "ids", "fedrec")} == {
        "name": "theirs", "file": str(path), "ids": "original", "fedrec": fedrec.__version__,
    }  # fmt: skip
    assert len(source["sha256"]) == 64
    assert "fedrec did not train it" in source["trained_by"]
    assert source["date"].startswith("20")
    assert run.summary["split"] == read_split(data / "clean").content_hash()
    assert (run.id.paper, run.id.method, run.has_model, run.proofs) == ("own", "theirs", False, None)
    assert run.metrics.height == 2 * len(REPORTED)
    assert set(METRICS) < set(run.metrics.columns)
    assert (run.curve.height, run.timing.height, run.ranks.height) == (1, 0, USERS * len(REPORTED))
    assert run.curve["test_hr@10"].item() == run.metric("hr@10")
    run.check(with_model=False)
    assert fedrec.results(run.folder)["method"].to_list() == ["theirs"] * len(REPORTED)
    with pytest.raises(ResultError, match="the model of this run was not kept\\. Another system trained it"):
        run.scores([0], [0])


def test_it_lies_below_the_results_where_no_folder_is_named(data, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    run = fedrec.evaluate(some_scores(), data, "clean", name="theirs")
    assert run.folder.as_posix() == "results/evaluated/made/clean/theirs"
    assert run.split.content_hash() == run.summary["split"]


def test_the_same_scores_may_be_evaluated_again(evaluate):
    first, again = (evaluate(some_scores()).folder / name for name in ("ranks.parquet", "ranks.parquet"))
    before = first.read_bytes()
    evaluate(some_scores())
    assert again.read_bytes() == before


@pytest.mark.parametrize(
    ("options", "seed", "said"),
    [({}, 1, "scores"), ({"name": "others"}, 0, "method"), ({"protocol": PUBLISHED}, 0, "protocol, split")],
)
def test_a_record_of_something_else_is_not_lost(evaluate, options, seed, said):
    folder = evaluate(some_scores()).folder
    before = read_checked_json(folder / "run.json")
    with pytest.raises(
        ResultError,
        match=rf"{folder}: contains the record of theirs on made, which differs in {said}\. Give another "
        "folder",
    ):
        evaluate(some_scores(seed), **options)
    assert read_checked_json(folder / "run.json") == before


def test_a_folder_of_a_run_of_other_files_or_of_damage_is_refused(shared, evaluate, tmp_path):
    copied = shutil.copytree(
        finished(shared, "ease", "clean").folder, tmp_path / "ease", ignore=shutil.ignore_patterns("lock")
    )
    (tmp_path / "file").write_text("")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/notes.txt").write_text("")
    damaged = evaluate(some_scores(), out=tmp_path / "damaged").folder
    (damaged / "run.json").write_text("{}")
    for folder, said in {
        copied: "contains the record of ease on made, which differs in method, code, scores",
        tmp_path / "file": "is a file, not a folder",
        tmp_path / "notes": r"contains other files, for example notes\.txt",
        damaged: r"the file is damaged: .* Or delete it",
    }.items():
        with pytest.raises(ResultError, match=said):
            evaluate(some_scores(), out=folder)


def test_a_write_that_was_killed_is_no_hindrance(evaluate):
    folder = evaluate(some_scores()).folder
    (folder / "run.json").unlink()
    assert evaluate(some_scores(1)).folder == folder


def changed(**columns):
    return lambda frame: frame.with_columns(**columns)


def first_row(name, value):
    """A frame whose first row has another value."""
    return lambda frame: frame.with_columns(
        pl.when(pl.int_range(pl.len()) == 0)
        .then(pl.lit(value, frame[name].dtype))
        .otherwise(name)
        .alias(name)
    )


FRAMES = {
    "no column item.*Unknown column 'itm'. Did you mean 'item'": lambda frame: frame.rename({"item": "itm"}),
    "Unknown column 'rating'. .*and no others": changed(rating=pl.lit(1)),
    "its columns are user, item. It has no column score": lambda frame: frame.drop("score"),
    "1 user of 12 in the split has no scores: u-3. Score every user": lambda frame: frame.filter(pl.col("user") != "u-3"),
    "4 users of 12 in the split have no scores: u-0, u-1, u-10 and 1 more": lambda frame: frame.filter(~pl.col("user").str.contains("u-[01]")),
    "1 user has no score of some items.*user u-4 has none of 1 item: ": lambda frame: frame.sort("user", "item").filter(
        ~((pl.col("user") == "u-4") & (pl.col("item") == NEITHER[4]))
    ),
    "12 users have no score of some held-out items or candidates; user u-0 has none of": lambda frame: frame.filter(
        pl.col("item").cast(int) > 980
    ),
    "1 pair of user and item has several scores: user u-": lambda frame: pl.concat([frame, frame[:1]]),
    "720 pairs of user and item have several scores: .* and 717 more": lambda frame: pl.concat([frame, frame]),
    "scores are not a number, or infinite: .* and .* more. Write finite": changed(score=pl.lit(float("nan"))),
    r"1 user of the file is not in made: u-99. Use these ids only: column original_id of users.parquet and items.parquet in ": first_row("user", "u-99"),
    "1 item of the file is not in made: 5. If they are the numbers of the split, add --ids fedrec": first_row("item", "5"),
    r"1 item of the file is not in made: 970.0. They look like fractions: write whole numbers. Use these ids only": first_row("item", "970.0"),
    "1 user of the file is not in made: an empty id": first_row("user", None),
    "the table is empty. Write a row for each user and item": lambda frame: frame[:0],
    "its column score has the type": changed(score=pl.col("score").cast(str)),
}  # fmt: skip
NEITHER = {}
"""An original id of an item that a user neither trained on nor is ranked among."""


@pytest.fixture
def neither(data):
    unread = {*pairs_needed(data), *trained(data)}
    NEITHER[4] = original_ids(data)[1][next(item for item in range(ITEMS) if (4, item) not in unread)]


@pytest.mark.usefixtures("neither")
@pytest.mark.parametrize("said", FRAMES)
def test_frames_that_cannot_be_ranked_are_refused(data, evaluate, tmp_path, said):
    frame = FRAMES[said](frame_of(data).sort("user", "item"))
    with pytest.raises(FedrecError, match=f"^scores: .*{said}"):
        evaluate(frame)
    frame.write_parquet(path := tmp_path / "s.parquet")
    with pytest.raises(FedrecError, match=f"^{path}: .*{said}"):
        evaluate(path)
    assert not (tmp_path / "evaluated").exists()


@pytest.mark.parametrize(
    ("column", "text", "said"),
    [
        ("score", "much", "cannot be read .*much.*scores as numbers"),
        ("score", "", "1 score is not a number, or infinite: user u-"),
        ("score", "inf", "1 score is not a number, or infinite"),
        ("user", "u-99", "1 user of the file is not in made: u-99"),
    ],
)
def test_a_csv_is_refused_where_it_is_wrong(data, evaluate, tmp_path, column, text, said):
    needed = only(frame_of(data), data, pairs_needed(data)).with_columns(pl.col("score").cast(str))
    first_row(column, text)(needed).write_csv(path := tmp_path / "s.csv")
    with pytest.raises(FedrecError, match=f"^{path}: {said}"):
        evaluate(path)


@pytest.mark.parametrize(
    ("scores", "said"),
    [
        (np.zeros((ITEMS, USERS)), r"its shape is \(60, 12\), but made has 12 users and 60 items\. If it is transposed, write"),
        (np.zeros((USERS, ITEMS - 1)), r"its shape is \(12, 59\).*Write a row for each user of users\.parquet"),
        (np.zeros(USERS), r"its shape is \(12,\)"),
        (np.zeros((USERS, ITEMS), complex), "its numbers have the type complex128. Write real numbers"),
        (np.full((USERS, ITEMS), np.nan), r"scores are not a number, or infinite: user u-0, item \d+; .*and \d+ more"),
        (np.full((USERS, ITEMS), -np.inf), "scores are not a number, or infinite"),
        ([[1.0]], "fedrec cannot read an object of type list. Give the path of a file, a numpy matrix, or a polars"),
    ],
)  # fmt: skip
def test_matrices_that_cannot_be_ranked_are_refused(evaluate, scores, said):
    with pytest.raises(FedrecError, match=f"^scores: .*{said}"):
        evaluate(scores)


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("s.parquett", (r"the file type '\.parquett' is unknown\. Did you mean '\.parquet'\? Write scores as \.parquet or "
        r"\.csv")),
        ("s", ("the file name has no extension. Write scores as .parquet or .csv with the columns user, item and score, or as .npy with a row for "
        "each user.")),
        ("absent.csv", "no such file"),
        ("broken.npy", r"is not a numpy matrix \(.*\)\. Write it with numpy.save."),
        ("broken.parquet", "cannot be read"),
        ("broken.csv", "cannot be read .*Empty CSV"),
    ],
)  # fmt: skip
def test_a_file_that_is_none_of_scores_is_refused(evaluate, tmp_path, file, said):
    if "absent" not in file:
        (tmp_path / file).write_text("")
    with pytest.raises(FedrecError, match=f"^{tmp_path / file}: {said}"):
        evaluate(tmp_path / file)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        (
            {"name": "fedmf"},
            ConfigurationError,
            "--name fedmf: fedrec has a method with this name. Choose another",
        ),
        (
            {"name": "EASE"},
            ConfigurationError,
            "--name EASE: fedrec has a method with this name. Choose another",
        ),
        ({"name": "a/b"}, ConfigurationError, "--name a/b: not a valid name for a folder."),
        ({"ids": "orignal"}, ConfigurationError, "--ids orignal: .* Did you mean 'original'"),
        ({"protocol": "claen"}, SplitError, "--protocol claen: .* Did you mean 'clean'"),
        ({"data": "absent"}, SplitError, "--data absent: no such folder"),
    ],
)
def test_what_is_requested_must_be_known(evaluate, options, error, said):
    with pytest.raises(error, match=said):
        evaluate(some_scores(), **options)


def test_original_ids_need_their_files(data, evaluate, tmp_path):
    copied = shutil.copytree(data, tmp_path / "made")
    more = replace(read_split(data / "clean"), users=USERS + 1)
    write_ids(copied, more)
    with pytest.raises(FedrecError, match=r"users\.parquet: has 13 users, but the split has 12"):
        evaluate(frame_of(data), data=copied)
    (copied / "users.parquet").unlink()
    with pytest.raises(FedrecError, match=r"users\.parquet: no such file\. .*and add --ids fedrec"):
        evaluate(frame_of(data), data=copied)
    assert evaluate(some_scores(), data=copied, ids="fedrec").metric("hr@10") >= 0


def test_the_commands_and_lines_of_the_page_run(shared, monkeypatch, tmp_path, capsys):
    """docs/scores.md, on a made dataset in place of demo, and with runs of its own to compare with."""
    page = (ROOT / "docs/scores.md").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    data = shutil.copytree(shared / "data/made", tmp_path / "results/data/demo")
    frame_of(data).write_parquet("scores.parquet")
    first, second = re.findall(r"^    (fedrec evaluate (?:\\\n|.)*)$", page, re.M)
    runs = [finished(shared, method, "clean").folder for method in ("popularity", "ease")]
    named = re.findall(r"results/runs/\S+", second)
    for command in (first, second):
        for there, run in zip(named, runs, strict=True):
            command = command.replace(there, shlex.quote(str(run)))
        assert main(shlex.split(command.replace("\\\n", ""))[1:]) == 0
        assert "Wrote results/evaluated/made/clean/my-system" in capsys.readouterr().out
    (lines,) = [block for block in re.findall(r"(?m)(?:^    .*\n)+", page) if block.startswith("    import ")]
    names = {}
    exec(textwrap.dedent(lines), names)
    assert names["train"].height == len(trained(data))
    assert names["train"]["user_id"].unique().sort().to_list() == sorted(original_ids(data)[0])
