"""One run beside others on the same users, in rows and as `fedrec evaluate` prints it."""

from functools import partial

import numpy as np
import pytest

import fedrec
from fedrec.audit.pairing import interval_rows, paired_rows
from fedrec.audit.significance import bootstrap_interval, compare, holm
from fedrec.cli.main import main
from fedrec.errors import ComparisonError
from fedrec.evaluation.metrics import per_user
from fedrec.plan.runs import RunId
from fedrec.runs.exact import sampled_name
from fedrec.runs.store import RunStore, packed_run
from tests.federations import METHODS, planted_blocks
from tests.given_scores import long_form, write_ids
from tests.made_runs import write_run
from tests.once import once_for_all_workers
from tests.trained_runs import finished, made_results

USERS, ITEMS = 12, 60
METRICS = ["hr@10", "ndcg@10", "exact_hr@10", "exact_ndcg@10"]


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    def build(root):
        made_results(root, planted_blocks, users=USERS, items=ITEMS)
        write_ids(root / "data/made", planted_blocks(users=USERS, items=ITEMS))
        finished(root, "popularity", "clean")
        finished(root, "ease", "clean")
        finished(root, "popularity", "published")

    return once_for_all_workers(tmp_path_factory, "paired", build)


@pytest.fixture
def others(shared):
    return [finished(shared, method, "clean") for method in ("popularity", "ease")]


@pytest.fixture
def scores(shared, tmp_path):
    """A file of scores with original ids, in no order."""
    path = tmp_path / "scores.parquet"
    values = np.random.default_rng(2).normal(size=(USERS, ITEMS))
    long_form(shared / "data/made", np.arange(USERS), values).write_parquet(path)
    return path


@pytest.fixture
def theirs(shared, scores, tmp_path):
    return fedrec.evaluate(scores, shared / "data/made", "clean", name="theirs", out=tmp_path / "theirs")


def values(run, metric):
    return per_user(run.ranks_of(metric).rank, sampled_name(metric))


def test_each_metric_has_its_interval_over_users(theirs):
    rows = interval_rows(theirs)
    assert [row["metric"] for row in rows] == METRICS
    for row in rows:
        assert row["value"] == pytest.approx(theirs.metric_of(row["metric"]))
        assert (row["low"], row["high"]) == bootstrap_interval(values(theirs, row["metric"]))


def test_differences_are_of_the_same_users_and_p_is_corrected_over_the_runs(theirs, others):
    frame = fedrec.paired(theirs, others)
    assert frame["metric"].to_list() == [metric for metric in METRICS for _ in others]
    assert frame["against"].to_list() == ["popularity", "ease"] * len(METRICS)
    for row in frame.to_dicts():
        (other,) = (other for other in others if str(other.folder) == row["folder"])
        difference = (values(theirs, row["metric"]) - values(other, row["metric"])).mean()
        assert row["difference"] == pytest.approx(difference) == row["value"] - row["value_against"]
        assert row["users"] == USERS
    rows = frame.filter(frame["metric"] == "exact_ndcg@10").to_dicts()
    results = [compare(*(values(run, "exact_ndcg@10") for run in (theirs, other))) for other in others]
    assert [(row["low"], row["high"]) for row in rows] == [(result.low, result.high) for result in results]
    for test in ("randomisation", "wilcoxon"):
        assert [row[f"{test}_holm"] for row in rows] == holm([getattr(result, test) for result in results])
    assert any(row["randomisation_holm"] > row["randomisation"] for row in frame.to_dicts())


def test_exact_metrics_are_compared_where_both_have_them(tmp_path):
    named = RunId("pfedclr", "made", "clean", "fedmf", 0)
    made = partial(write_run, run=named, methods=METHODS, ranks=[3] * USERS)
    one, other = made(tmp_path / "one", exact=[9] * USERS), made(tmp_path / "other", has_exact=False)
    assert {row["metric"] for row in paired_rows(one, [one])} == set(METRICS)
    assert {row["metric"] for row in paired_rows(one, [other])} == {"hr@10", "ndcg@10"}


def test_a_run_on_another_split_or_without_numbers_is_refused(shared, theirs, tmp_path):
    apart = finished(shared, "popularity", "published")
    with pytest.raises(
        ComparisonError, match=f"{apart.folder}: is a run on made under published-fedem, and not on"
    ):
        paired_rows(theirs, [apart])
    named = RunId("pfedclr", "made", "clean", "fedmf", 0)
    diverged = write_run(tmp_path, named, METHODS, diverged=1)
    with pytest.raises(ComparisonError, match="diverged before its reported round"):
        paired_rows(diverged, [diverged])


def evaluated(shared, scores, out, *more):
    return main(
        ["evaluate", "--scores", str(scores), "--data", str(shared / "data/made"), "--protocol", "clean",
         "--name", "theirs", "--out", str(out), *map(str, more)]
    )  # fmt: skip


def test_the_command_prints_metrics_differences_and_what_it_cannot_know(
    shared, others, scores, tmp_path, capsys
):
    capsys.readouterr()
    assert evaluated(shared, scores, tmp_path / "out", "--against", *(other.folder for other in others)) == 0
    printed = capsys.readouterr().out
    run = fedrec.open_run(tmp_path / "out")
    metrics, paired = printed.split("\n\n")[:2]
    assert metrics.startswith("theirs on made, clean: test metrics of 12 users\n")
    row = interval_rows(run)[0]
    assert f"HR@10             {row['value']:.4f}  [{row['low']:.4f}, {row['high']:.4f}]" in metrics
    for other in others:
        assert paired.count(f"{other.id.method}, seed 0") == len(METRICS)
        for metric in METRICS:
            assert f"{run.metric_of(metric) - other.metric_of(metric):+.4f} [" in paired
    assert paired.count("\n") == 1 + len(METRICS) * len(others)
    assert (
        "fedrec did not train this system, so it cannot check its training data. Only the split's rows "
        "of part `train` may be used for training."
    ) in printed
    assert "fedrec does not know how you chose these scores." in printed
    assert printed.endswith(f"Wrote {tmp_path / 'out'}\n")


def test_the_command_compares_with_stored_runs(shared, others, scores, tmp_path, capsys):
    store = RunStore(tmp_path / "store")
    store.add([packed_run(others[1])])
    capsys.readouterr()
    assert evaluated(shared, scores, tmp_path / "out", "--against", store.folder / others[1].id.folder) == 0
    assert "ease, seed 0" in capsys.readouterr().out


def test_the_command_prints_what_is_wrong(shared, scores, tmp_path, capsys):
    capsys.readouterr()
    assert evaluated(shared, tmp_path / "absent.csv", tmp_path / "out") == 1
    assert (
        capsys.readouterr().err == f"fedrec: {tmp_path}/absent.csv: no such file. Give the file of scores.\n"
    )
    assert evaluated(shared, scores, tmp_path / "out", "--ids", "fedrec") == 1
    assert "12 users of the file are not in made: u-0, u-1, u-10 and 9 more" in capsys.readouterr().err
    assert evaluated(shared, scores, tmp_path / "out", "--against", tmp_path / "absent") == 1
    assert "no such folder" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
