import csv
import io

import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.reporting.comparison import comparison_rows, comparison_table
from fedrec.reporting.dataset_statistics import statistics_rows, statistics_tables
from fedrec.reporting.tables import Column, Table, csv_text, write_forms
from tests.conftest import entry

TABLE = Table(
    "Caption_1 & more.",
    [
        Column("name", "name", align="left"),
        Column("share", "share, %", "{:.1f}"),
        Column("count", "n", "{:,}"),
    ],
    [{"name": "a|b", "share": 12.345, "count": 1234567}, {"name": "c_d", "share": None, "count": 0}],
    notes=["50 % of it"],
)


def test_markdown():
    assert TABLE.markdown() == (
        "Caption_1 & more.\n\n"
        "| name | share, % |         n |\n"
        "| ---- | -------: | --------: |\n"
        "| a\\|b |     12.3 | 1,234,567 |\n"
        "| c_d  |        – |         0 |\n"
        "\n- 50 % of it\n"
    )


def test_latex():
    assert TABLE.latex() == "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\caption{Caption\_1 \& more.}",
            r"\begin{tabular}{lrr}",
            r"\toprule",
            r"name & share, \% & n \\",
            r"\midrule",
            r"a|b & 12.3 & 1,234,567 \\",
            r"c\_d & -- & 0 \\",
            r"\bottomrule",
            r"\end{tabular}",
            r"\par 50 \% of it",
            r"\end{table}",
            "",
        ]
    )


def test_csv_keeps_everything():
    assert csv_text([{"a": 1, "b": None}, {"a": "x,y", "b": 0.25, "c": 2}]) == 'a,b,c\n1,,\n"x,y",0.25,2\n'


def test_three_files_are_written(tmp_path):
    write_forms(tmp_path / "table.v1", [{"a": 1}], [TABLE, TABLE])
    assert {path.name for path in tmp_path.iterdir()} == {"table.v1.csv", "table.v1.md", "table.v1.tex"}


def described(name, users=10, items=20, interactions=50, **splits):
    return {
        "dataset": name,
        "users": users,
        "items": items,
        "interactions": interactions,
        "sparsity_percent": 100 * (1 - interactions / users / items),
        "repeated_pairs": 3,
        "tied_last_users": 4,
        "content": "c" * 64,
        "splits": splits,
    }


SPLIT = {
    "users": 8,
    "dropped_users": 2,
    "cold_test_users": 2,
    "test_in_train_users": 4,
    "seed": 0,
    "content": "d" * 64,
}


@pytest.fixture
def three(write_catalogue):
    printed = {
        "table": "Table 3",
        "users": 10,
        "items": 20,
        "interactions": 50,
        "sparsity": 75.0,
        "note": "Odd.",
    }
    return load_catalogue(
        write_catalogue(
            alpha=entry("alpha.csv", published={"pfedrec": printed}),
            beta=entry("beta.csv", published={"pfedrec": printed}, note="A note."),
            gamma=entry("gamma.csv", papers=["pfedrec", "fedrap"]),
        )
    )


def test_statistics_say_what_matches_and_what_does_not(three):
    splits = {"published-pfedrec": SPLIT, "clean": SPLIT | {"cold_test_users": 0}}
    rows = statistics_rows(
        three,
        {"alpha": described("alpha", **splits), "gamma": described("gamma", interactions=51)},
        {"beta": "no network"},
    )
    alpha, beta, gamma, gamma_again = rows
    assert alpha["match"] == "exact"
    assert alpha["tied_last_percent"] == 40.0
    assert (alpha["cold_test_percent_published"], alpha["cold_test_percent_clean"]) == (25.0, 0.0)
    assert (alpha["known_test_percent_published"], alpha["dropped_users_clean"]) == (50.0, 2)
    assert (beta["match"], beta["unavailable"], beta["users"], beta["users_published"]) == (
        "not available", "no network", None, 10,
    )  # fmt: skip
    assert (gamma["match"], gamma_again["paper"]) == ("nothing printed", "fedrap")
    off = described("alpha", users=11)
    (row,) = statistics_rows(three, {"alpha": off}, {})
    assert row["match"] == "users: 11, printed 10 (+1); sparsity: 77.27, printed 75.00"


def test_a_count_that_is_not_printed_cannot_differ(write_catalogue):
    printed = {"pfedrec": {"table": "Table 7", "users": 10, "sparsity": 75.0}}
    catalogue = load_catalogue(write_catalogue(alpha=entry("alpha.csv", published=printed)))
    (row,) = statistics_rows(catalogue, {"alpha": described("alpha")}, {})
    assert (row["match"], row["users_published"], row["items_published"]) == ("exact", 10, None)
    (row,) = statistics_rows(catalogue, {"alpha": described("alpha", items=25)}, {})
    assert row["match"] == "sparsity: 80.00, printed 75.00"


def test_statistics_tables_show_each_dataset_once_per_printed_row(three):
    rows = statistics_rows(
        three,
        {
            "alpha": described("alpha", **{"published-pfedrec": SPLIT, "clean": SPLIT}),
            "gamma": described("gamma"),
        },
        {"beta": "no network"},
    )
    counts, splits = statistics_tables(rows, "f" * 64)
    assert [row["dataset"] for row in counts.rows] == ["alpha", "beta", "gamma"]
    assert counts.notes == [
        "alpha, pfedrec: Odd.",
        "beta, pfedrec: no network",
        "beta: A note.",
        "beta, pfedrec: Odd.",
    ]
    assert [row["dataset"] for row in splits.rows] == ["alpha"]
    for table in (counts, splits):
        assert "Code ffffffffffff" in table.caption
        assert "| alpha" in table.markdown()
    parsed = list(csv.DictReader(io.StringIO(csv_text(rows))))
    assert parsed[0]["split_hash_clean"] == "d" * 64


def run(method, protocol, seed, hits):
    metrics = {"test": {"hr@10": hits, "ndcg@10": hits / 2}}
    return {
        "dataset": "alpha",
        "method": method,
        "paper": "pfedclr",
        "protocol": {"name": protocol, "round_rule": "best_validation"},
        "seed": seed,
        "settings": {"rounds": 100},
        "rounds": {"best_validation": 7},
        "metrics": {"best_validation": metrics},
        "measured": {"seconds_per_round": 0.5, "device": "cpu"},
        "split": "s" * 64,
        "code": {"method": "m", "engine": "e"},
    }


def test_comparisons_are_means_over_seeds_with_protocols_side_by_side():
    runs = [
        run("fedmf", "published-pfedclr", 0, 0.5),
        run("fedmf", "clean", 0, 0.4),
        run("fedmf", "clean", 1, 0.6),
        run("mf", "clean", 0, 0.7),
    ]
    rows = comparison_rows(runs)
    assert [(row["method"], row["protocol"], row["hr@10"], row["seeds"]) for row in rows] == [
        ("fedmf", "published-pfedclr", 0.5, "0"),
        ("fedmf", "clean", 0.5, "0 1"),
        ("mf", "clean", 0.7, "0"),
    ]
    assert rows[1]["hr@10_sd"] == pytest.approx(0.1414, abs=1e-4)
    lines = comparison_table(rows, "alpha", {"mf": "MF", "fedmf": "FedMF"}).markdown().splitlines()
    assert [line.split()[1] for line in lines[4:]] == ["MF", "FedMF"]
    assert "0.5000" in lines[5]


def test_a_variant_is_a_method_of_its_own_in_a_comparison():
    name = "fedmf[d=8,rate=0.1]"
    rows = comparison_rows([run("fedmf", "clean", 0, 0.4), run(name, "clean", 0, 0.5)])
    table = comparison_table(rows, "alpha", {"fedmf": "FedMF", name: "FedMF[d=8,rate=0.1]"})
    assert [row["method"] for row in table.rows] == ["FedMF[d=8,rate=0.1]", "FedMF"]
    assert [row["method"] for row in csv.DictReader(io.StringIO(csv_text(rows)))] == ["fedmf", name]
