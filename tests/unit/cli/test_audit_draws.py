"""`fedrec audit draws`, by the recipe of docs/audit.md: a foreign loop is wrapped, its log written and audited."""

import json
import re

import numpy as np
import polars as pl
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from fedrec.audit.drawn_negatives import DRAW_VERDICTS
from fedrec.cli.main import main
from fedrec.data.split import TRAIN, write_split
from fedrec.files.parquet import write_table
from tests.conftest import ROOT
from tests.drawing_loops import LEAKS, SOUND, drawn, made_split, pool_of

PAGE = (ROOT / "docs/audit.md").read_text(encoding="utf-8").partition("## Auditing another training loop")[2]
ROUNDS = 4
FIRST_USER, FIRST_ITEM = 1000, 500
"""Original ids: the numbers of fedrec, and so much."""


@pytest.fixture(scope="module")
def split():
    return made_split()


@pytest.fixture(scope="module")
def data(split, tmp_path_factory):
    """A folder as `fedrec prepare` and `fedrec split` leave it, as far as the audit reads it."""
    folder = tmp_path_factory.mktemp("data") / "made"
    write_split(split, folder / "clean")
    for what, count, first in (("user", split.users, FIRST_USER), ("item", split.items, FIRST_ITEM)):
        frame = pl.DataFrame(
            {
                what: np.arange(count, dtype=np.int32),
                "original_id": [str(first + number) for number in range(count)],
            }
        )
        write_table(folder / f"{what}s.parquet", frame.to_arrow(), {"dataset": "made"})
    return folder


@pytest.fixture
def logged_dataset():
    """The class that the page prints."""
    (block,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.M | re.S)
    names = {}
    exec(block, names)
    return names["LoggedDataset"]


def foreign_round(split, rule, round_):
    """Samples of one round as a foreign loop makes them: training rows with label 1, and ten negatives of each user."""
    user, item = split.pairs_of(TRAIN)
    may = pool_of(split, rule)
    negative = [
        part.reshape(split.users, -1)[:, 10 * round_ : 10 * round_ + 10].ravel()
        for part in drawn(may, 10 * ROUNDS)
    ]
    users = np.concatenate((user, negative[0])) + FIRST_USER
    items = np.concatenate((item, negative[1])) + FIRST_ITEM
    labels = np.repeat([1.0, 0.0], [len(user), len(negative[0])])
    return TensorDataset(*map(torch.from_numpy, (users, items, labels)))


def logged(split, rule, path, logged_dataset):
    """The log of a foreign loop of some rounds, and how many samples it trained on."""
    path.write_text("user,item,round\n")
    seen = 0
    for round_ in range(ROUNDS):
        for user, _, _ in DataLoader(
            logged_dataset(foreign_round(split, rule, round_), path, round_), batch_size=64
        ):
            seen += len(user)
    return seen


@pytest.mark.parametrize(("rule", "verdict"), [(LEAKS, "leaks"), (SOUND, "sound")])
def test_the_recipe_of_the_page_writes_a_log_that_the_command_reads(
    split, data, tmp_path, logged_dataset, capsys, rule, verdict
):
    log = tmp_path / "negatives.csv"
    assert logged(split, rule, log, logged_dataset) == ROUNDS * (
        len(split.pairs_of(TRAIN)[0]) + 10 * split.users
    )
    (line,) = re.findall(r"^fedrec (audit draws .*)$", PAGE, re.M)
    words = line.replace("negatives.csv", str(log)).replace("results/data/ml-100k", str(data)).split()
    assert main(words) == 0
    told, _, values = capsys.readouterr().out.rpartition("\n\n")
    assert told.startswith(
        "4,800 negatives that 120 users of made drew in 4 rounds, against the split clean."
    )
    assert f"\nVerdict: {verdict}: {DRAW_VERDICTS[verdict]}\n" in told
    assert json.loads(values)["verdict"] == verdict
    (row,) = re.findall(r"^held out, test .*$", told, re.M)
    assert (row.split()[4] == "0") == (verdict == "leaks")


def test_values_alone_are_printed_or_written(split, data, tmp_path, capsys):
    log = tmp_path / "negatives.csv"
    user, item = drawn(pool_of(split, LEAKS), 40)
    pl.DataFrame({"user": user, "item": item}).write_csv(log)
    given = ["audit", "draws", str(log), "--data", str(data), "--ids", "fedrec"]
    assert main([*given, "--json"]) == 0
    printed = capsys.readouterr().out
    assert main([*given, "--json", "--out", str(tmp_path / "audit.json")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "audit.json").read_text() == printed
    assert json.loads(printed)["by_others"] is True
    assert main([*given, "--json", "--sampler", "uniform"]) == 0
    assert json.loads(capsys.readouterr().out)["by_others"] is False


def test_a_wrong_log_or_split_is_an_error_of_one_line(data, tmp_path, capsys):
    log = tmp_path / "negatives.csv"
    log.write_text("user,item\n0,1\n")
    assert main(["audit", "draws", str(log), "--data", str(data)]) == 1
    assert "1 of 1 draws name users that made does not have" in capsys.readouterr().err
    assert (
        main(["audit", "draws", str(log), "--data", str(data), "--ids", "fedrec", "--protocol", "neutral"])
        == 1
    )
    assert f"fedrec split --data {data} --protocol neutral" in capsys.readouterr().err


def test_an_audit_of_neither_run_nor_log_says_what_to_name(capsys):
    with pytest.raises(SystemExit):
        main(["audit"])
    assert (
        "give a finished run, --run FOLDER, or a log of negative samples: fedrec audit draws FILE"
        in capsys.readouterr().err
    )


def test_the_page_explains_every_verdict_in_the_order_that_counts():
    table = re.findall(r"^\| `([a-z ]+)` \|", PAGE, re.M)
    assert set(table) == set(DRAW_VERDICTS)
    order = ", ".join(f"`{verdict}`" for verdict in DRAW_VERDICTS)
    assert f"comes first in this order: {order}." in " ".join(PAGE.split())
