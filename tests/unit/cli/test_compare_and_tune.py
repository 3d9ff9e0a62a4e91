"""`fedrec compare` and `fedrec tune`: what they print, and wrong words. docs/tutorial.md executes both."""

import polars as pl
import pytest

from fedrec.cli.compare import _table_text
from fedrec.cli.main import main
from tests.conftest import ROOT
from tests.federations import planted_blocks
from tests.trained_runs import shared_results


@pytest.fixture
def data(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("FEDREC_METHODS", str(ROOT / "config/methods.yaml"))
    return (
        shared_results(tmp_path_factory, "compared by a command", planted_blocks, users=12, items=60)
        / "data/made"
    )


def test_a_comparison_trains_what_lacks_and_says_its_cost_first(data, tmp_path, capsys):
    words = [
        "compare",
        "popularity",
        "draw-counter",
        "--data",
        str(data),
        "--seeds",
        "1",
        "--out",
        str(tmp_path / "t.csv"),
    ]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert printed.err.splitlines()[0] == f"2 runs: about a core-minute, in {data.parents[1] / 'runs'}."
    table = pl.read_csv(tmp_path / "t.csv")
    best, other = table.filter(pl.col("metric") == "hr@10").to_dicts()
    lines = [line for line in printed.out.splitlines() if line.startswith(other["method"])]
    assert f"{other['difference']:+.4f}" in lines[0]
    assert other["against"] == best["method"]
    assert "A test over seeds needs 6" in printed.out
    assert main(words) == 0
    assert capsys.readouterr().err == f"2 runs, of which 2 are finished, in {data.parents[1] / 'runs'}.\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["compare", "popularity", "popularity"], "are both popularity"),
        (["compare", "ease", "ease[penalty=300]"], "two of the methods are ease"),
        (["compare", "popularity", "--seeds", "0"], "Give 1 or more"),
        (["compare", "popularty"], "Did you mean 'popularity'"),
        (
            ["compare", "popularity", "--out", "nowhere/table.csv"],
            "cannot write a file there. Give the path of a file in an existing folder.",
        ),
        (["tune", "--method", "ease", "--range", "penalty"], "not a range;"),
        (
            ["tune", "--method", "ease", "--range", "penalty=1,2", "--range", "penalty=3"],
            "is given twice. Give each setting once.",
        ),
        (
            ["tune", "--method", "ease", "--range", "penalty=log:1"],
            "are not bounds. Give the lowest and the highest value.",
        ),
        (["tune", "--method", "fedmf", "--range", "d=8,x"], "is not of type integer"),
        (["tune", "--method", "fedmf", "--range", "optimiser=adam,sdg"], "is not allowed"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_trained(data, capsys, words, said):
    assert main([*words, "--data", str(data)]) == 1
    printed = capsys.readouterr()
    assert said in printed.err
    assert (printed.out, "round 1" in printed.err) == ("", False)


def test_the_head_of_a_table_stands_apart_from_its_metric_whose_title_may_be_longer_than_any_method():
    empty = dict.fromkeys(("value", "difference", "diverged"))
    text = _table_text([{"method": "mf", "metric": "exact_ndcg@10", "seeds": 3, **empty}])
    head, row = text.splitlines()
    assert head.startswith("exact NDCG@10  seeds  validation")
    assert row.index("3") == head.index("seeds") + 4
