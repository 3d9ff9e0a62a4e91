"""docs/python.md, executed on small trained runs."""

import re

import numpy as np
import pytest

from fedrec.data.split import read_split
from fedrec.runs.store import RunStore, packed_run
from tests.conftest import ROOT
from tests.federations import planted_blocks
from tests.given_scores import ranks_by_hand, write_ids
from tests.trained_runs import finished, shared_results

PAGE = (ROOT / "docs/python.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = shared_results(tmp_path_factory, "page on python", planted_blocks, users=12, items=60)
    for seed in (0, 1):
        finished(folder, "fedmf", "clean", "rounds=2", seed=seed)
    finished(folder, "popularity", "published", "rounds=2")
    write_ids(folder / "data/made", read_split(folder / "data/made/clean"))
    return folder


def own_table():
    """A csv with enough items for two lists of candidates, and times on both sides of a cut."""
    rows = (f"c-{user},p-{9 * user + row},{row}" for user in range(40) for row in range(9))
    return "\n".join(["customer,product,time", *rows])


def test_the_lines_of_the_page_run(results, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").symlink_to(ROOT / "config")
    (tmp_path / "shop.csv").write_text(own_table(), encoding="utf-8")
    lines = "\n".join(line[4:] for line in PAGE.splitlines() if line.startswith("    "))
    run = finished(results, "fedmf", "clean", "rounds=2")
    store = RunStore(tmp_path / "store")
    store.add([packed_run(run)])
    lines = re.sub(r'"results/runs/[^"*]+"', repr(str(run.folder)), lines)
    lines = re.sub(r'"results/reference/runs/[^"]+"', repr(str(store.folder / run.id.folder)), lines)
    lines = lines.replace('"results/reference"', repr(str(store.folder)))
    lines = lines.replace('"results/data/demo"', f'"{results}/data/made"')
    lines = lines.replace('"results', f'"{results}')
    names = {}
    with pytest.warns(UserWarning, match="2 seeds of a method"):
        exec(lines, names)
    assert names["runs"].height == 3 * 3
    assert names["stored"].settings == run.settings
    assert names["reference"].height == 3
    assert names["clean"]["seed"].to_list() == [0, 1]
    assert (names["shop"].users, names["shop"].items) == (40, 360)
    assert names["found"].trials.height == 3
    assert names["table"].height == 4 * 2
    printed = capsys.readouterr().out
    assert "test_hr@10" in printed
    assert str(run.scores([0, 1], [0, 1, 2])) in printed
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    split = read_split(results / "data/made/clean")
    counts = np.bincount(split.pairs_of(0)[1], minlength=split.items) + np.zeros((split.users, 1))
    counted = ranks_by_hand(results / "data/made/clean", counts)["test_rank_in_catalogue"]
    assert names["theirs"].user_ranks(catalogue=True).rank.tolist() == counted
    assert "randomisation_holm" in printed
    # All runs, those that the page trained among them, told apart by their paths.
    files = list(results.glob("runs/**/curve.parquet"))
    assert len(files) > 3
    assert names["curves"]["path"].n_unique() == len(files)


def test_the_table_of_the_page_names_what_a_run_has(results):
    run = finished(results, "fedmf", "clean", "rounds=2")
    named = re.findall(r"^\| `run\.(\w+)", PAGE, re.M)
    assert {
        "settings", "curve", "ranks", "timing", "metrics", "exact_metrics", "scores", "recommend", "plot",
        "summary",
    } == set(named)  # fmt: skip
    assert all(hasattr(run, name) for name in (*named, "settings_frame"))
    assert run.scores([0, 3], [1, 2, 5]).shape == (2, 3)
