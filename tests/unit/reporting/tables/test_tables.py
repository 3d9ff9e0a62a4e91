import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json, with_checksum, write_checked_json
from fedrec.plan.runs import RunId
from fedrec.reporting.tables.comparison import comparison
from fedrec.reporting.tables.statistics import statistics_rows, statistics_tables
from fedrec.reporting.tables.table import (
    Chapter,
    ReportColumn,
    ReportTable,
    csv_text,
    read_shown,
    write_forms,
)
from fedrec.runs.record import RunRecord
from tests.conftest import entry
from tests.federations import METHODS
from tests.made_project import build_target
from tests.made_runs import write_run

TABLE = ReportTable(
    "Caption_1 & more.",
    [
        ReportColumn("name", "name", align="left"),
        ReportColumn("share", "share, %", "{:.1f}"),
        ReportColumn("count", "n", "{:,}"),
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


def test_a_row_may_spell_its_numbers_its_own_way_and_changes_keep_their_signs():
    row = {"name": "x", "ours": 12345.6, "change": 0.5, "form": "{:,.2f}"}
    columns = (
        ReportColumn("name", "name", align="left"),
        ReportColumn("ours", "ours"),
        ReportColumn("change", "change", "{:+}"),
    )
    assert [column.spelled(row) for column in columns] == ["x", "12,345.60", "+0.50"]


def test_csv_keeps_everything():
    assert csv_text([{"a": 1, "b": None}, {"a": "x,y", "b": 0.25, "c": 2}]) == 'a,b,c\n1,,\n"x,y",0.25,2\n'


def test_four_files_are_written(tmp_path):
    write_forms(tmp_path / "table.v1", [{"a": 1}], [TABLE, TABLE])
    assert {path.name for path in tmp_path.iterdir()} == {
        f"table.v1.{form}" for form in ("csv", "md", "tex", "json")
    }


def test_lists_are_blank_separated_in_csv_and_the_runs_of_a_row_are_always_a_column(tmp_path):
    write_forms(tmp_path / "with", [{"a": 1, "runs": ["x/y", "z"]}], [TABLE])
    assert (tmp_path / "with.csv").read_text() == "a,runs\n1,x/y z\n"
    write_forms(tmp_path / "without", [{"a": 1}], [TABLE])
    assert (tmp_path / "without.csv").read_text() == "a,runs\n1,\n"


def test_the_json_gives_back_the_tables_with_typed_values(tmp_path):
    rows = [
        {
            "name": "a",
            "share": np.float64(0.1),
            "count": np.int64(3),
            "hidden": 7,
            "count_mark": " b",
            "runs": ["r"],
        },
        {"name": "1e5", "share": float("nan"), "count": 2, "unranked": True},
    ]
    chapter = Chapter("Title", "Read it so.", order=3)
    table = replace(TABLE, rows=rows, part="ml-100k", folds=True)
    write_forms(tmp_path / "table", rows, [TABLE], chapter, on_page=[table])
    shown = read_shown(tmp_path / "table.json")
    assert shown.chapter == replace(chapter, counts=[], finding=[])
    (found,) = shown.tables
    assert (found.part, found.folds, found.caption, found.notes) == (
        "ml-100k",
        True,
        TABLE.caption,
        TABLE.notes,
    )
    assert list(found.columns) == list(TABLE.columns)
    # Text that looks like a number stays text, a number that is none is missing, what is not shown is left out.
    assert found.rows == [
        {"name": "a", "share": 0.1, "count": 3, "count_mark": " b", "runs": ["r"]},
        {"name": "1e5", "share": None, "count": 2, "unranked": True},
    ]
    assert found.markdown() == replace(table, rows=[rows[0], rows[1] | {"share": None}]).markdown()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file. Build it"),
        ("{", "the file is damaged"),
        ("{}", "the file is damaged"),
        ('{"chapter": null, "tables": []}', "the file is damaged: it has no checksum"),
        (
            json.dumps(with_checksum({"chapter": None, "tables": []}) | {"tables": [1]}),
            "its content does not match its checksum",
        ),
        (json.dumps(with_checksum({"chapter": None, "tables": [{}]})), "the file is damaged"),
    ],
)
def test_a_missing_or_half_json_is_an_error(tmp_path, content, message):
    path = tmp_path / "table.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(ResultError, match=f"table.json: .*{message}"):
        read_shown(path)


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


def test_a_dataset_of_ones_own_has_a_row_without_a_paper(write_catalogue):
    file = {"path": "mine.csv", "format": {"columns": {"user": 0, "item": 1}}}
    catalogue = load_catalogue(write_catalogue(mine={"interactions": file}))
    rows = statistics_rows(catalogue, {"mine": described("mine", clean=SPLIT)}, {})
    assert [(row["dataset"], row["paper"], row["match"]) for row in rows] == [
        ("mine", None, "nothing printed")
    ]
    counts, splits = statistics_tables(rows, "f" * 64)
    assert [row["users"] for row in counts.rows] == [10]
    assert [(row["split_users_clean"], row["split_users_published"]) for row in splits.rows] == [(8, None)]
    (missing,) = statistics_rows(catalogue, {}, {"mine": "not there"})
    assert statistics_tables([missing], "f" * 64)[0].notes == ["mine: not there"]


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


def test_statistics_that_nobody_prints_stand_beside_nothing(three):
    rows = statistics_rows(three, {"gamma": described("gamma")}, {})
    counts, _ = statistics_tables(rows, "f" * 64)
    assert [column.key for column in counts.columns] == [
        "dataset", "title", "users", "items", "interactions", "sparsity",
    ]  # fmt: skip
    assert "paper" not in counts.caption


def run(results, method, protocol, seed, hits):
    id_ = RunId("pfedclr", "ml-100k", protocol, method, seed)
    return write_run(results, id_, METHODS, final_at=dict.fromkeys(("best_validation", "best_test"), hits))


def test_comparisons_are_means_over_seeds_with_protocols_side_by_side(tmp_path):
    runs = [
        run(tmp_path, "fedmf", "published-pfedclr", 0, 0.5),
        run(tmp_path, "fedmf", "clean", 0, 0.4),
        run(tmp_path, "fedmf", "clean", 1, 0.6),
        run(tmp_path, "mf", "clean", 0, 0.7),
    ]
    rows, (table, *_) = comparison(runs, METHODS)
    assert [(row["method"], row["protocol"], row["hr@10"], row["seeds"]) for row in rows] == [
        ("fedmf", "published-pfedclr", 0.5, "0"),
        ("fedmf", "clean", 0.5, "0 1"),
        ("mf", "clean", 0.7, "0"),
    ]
    assert rows[1]["hr@10_sd"] == pytest.approx(0.1414, abs=1e-4)
    assert rows[1]["runs"] == [f"runs/pfedclr/ml-100k/clean/fedmf/seed{seed}" for seed in (0, 1)]
    lines = table.markdown().splitlines()
    assert [line.split()[1] for line in lines[4:]] == ["MF", "FedMF"]
    assert "0.5000" in lines[5]
    # The runs have two users, of whom one is a hit.
    assert [(row["hr@10_low"], row["hr@10_high"]) for row in rows] == [(0.0, 1.0)] * 3
    assert "| 0.5000 [0.00, 1.00] |" in lines[5]
    assert "2 users" in table.caption
    assert (
        "4 runs. Seeds of each number: published: 1; clean: 1 to 2. Numbers of several seeds are means."
        in table.caption
    )
    assert [(row["kind"], row["rounds"], row["own_rounds"]) for row in table.rows] == [
        ("centralised", 100, 100), ("server's table", 100, 100),
    ]  # fmt: skip
    assert table.notes == []
    # A row has the runs of both protocols.
    assert [len(row["runs"]) for row in table.rows] == [1, 3]


def test_a_comparison_is_built_with_titles_intervals_and_rounds(tmp_path):
    methods = {"popularity": (1, 20, 20), "fedmf[rounds=10]": (1, 1, 1), "pfedclr[rounds=5]": (20, 20, 20)}
    runs = [
        write_run(tmp_path, RunId("pfedclr", "ml-100k", protocol, method, 0), METHODS, ranks=ranks)
        for method, ranks in methods.items()
        for protocol in ("published-pfedclr", "clean")
    ]
    build_target(tmp_path, "comparison", "ml-100k_comparison", [one.id for one in runs])
    rows = list(csv.DictReader(io.StringIO((tmp_path / "tables/ml-100k_comparison.csv").read_text())))
    assert len(rows) == len(runs)
    assert {row["runs"] for row in rows} == {one.id.folder for one in runs}
    # How many rounds most were given is in the caption; the other method says it itself.
    assert {row["title"] for row in rows} in (
        {"popularity", "FedMF", "PFedCLR[rounds=5]"}, {"popularity", "FedMF[rounds=10]", "PFedCLR"},
    )  # fmt: skip
    shown, exact = read_shown(tmp_path / "tables/ml-100k_comparison.json").tables
    assert all(len(row["runs"]) == 2 for row in shown.rows)
    assert {row["hr@10_clean_mark"] for row in shown.rows} >= {" [1.00, 1.00]", " [0.00, 0.00]"}
    assert all(len(row["hr@10_clean_runs"]) == 1 for row in shown.rows)
    assert shown.notes == [
        "4 of 6 numbers are after 5 to 10 rounds, where the papers train 100. So they do not reproduce a paper, "
        "and more rounds may change the order of methods."
    ]
    # In made runs both ranks are the same.
    assert {row["exact_hr@10_clean_mark"] for row in exact.rows} >= {" [1.000, 1.000]", " [0.000, 0.000]"}
    assert {row["exact_hr@10"] for row in rows} == {"1.0", "0.0", str(1 / 3)}


def test_a_comparison_is_in_the_order_of_validation_and_has_no_column_without_runs(tmp_path):
    """FedMF is better on test, MF on validation: who takes the first line has not chosen on test."""
    runs = [
        write_run(tmp_path, RunId("pfedclr", "ml-100k", "clean", name, 0), METHODS, final=final)
        for name, final in (("fedmf", 0.8), ("mf", 0.4))
    ]
    path = runs[1].folder / "run.json"
    summary = read_checked_json(path)
    for of_rule in summary["metrics"].values():
        of_rule["validation"]["hr@10"] = 0.9
    write_checked_json(path, summary)
    _, (table, exact) = comparison([RunRecord(run.folder) for run in runs], METHODS)
    assert [row["method"] for row in table.rows] == [row["method"] for row in exact.rows] == ["MF", "FedMF"]
    assert table.rows[0]["validation_hr@10_clean"] == 0.9 > table.rows[1]["validation_hr@10_clean"]
    assert not [column.heading for column in table.columns if "published" in column.heading]


def test_exact_metrics_stand_beside_sampled_ones_where_all_runs_of_a_line_have_them(tmp_path):
    def made(method, protocol, seed=0, **more):
        return write_run(tmp_path, RunId("pfedclr", "ml-100k", protocol, method, seed), METHODS, **more)

    found = {"ranks": (1, 2, 3, 4), "exact": (1, 4, 11, 21)}
    runs = [
        made("fedmf", "published-pfedclr", **found, has_exact=False),
        made("fedmf", "clean", **found),
        made("fedmf", "neutral", **found),
        made("mf", "clean", **found),
        made("mf", "clean", 1, **found, has_exact=False),
    ]
    rows, (sampled, exact) = comparison(runs, METHODS)
    by_line = {(row["method"], row["protocol"]): row for row in rows}

    assert by_line["fedmf", "clean"]["exact_hr@10"] == 0.5
    assert by_line["fedmf", "clean"]["exact_hr@20"] == 0.75
    assert by_line["fedmf", "clean"]["exact_hr@10_low"] < 0.5 < by_line["fedmf", "clean"]["exact_hr@10_high"]
    for line in (("fedmf", "published-pfedclr"), ("mf", "clean"), ("fedmf", "neutral")):
        assert "exact_hr@10" not in by_line[line], line
    headings = [[column.heading for column in table.columns] for table in (sampled, exact)]
    assert [
        [name for name in names if "HR@10" in name] for names in headings
    ] == [
        ["validation HR@10, clean", "HR@10, published", "HR@10, clean", "HR@10, neutral"],
        ["exact HR@10, published", "exact HR@10, clean"],
    ]  # fmt: skip
    assert {"exact MRR@10, clean", "exact NDCG@20, clean"} <= set(headings[1])
    assert exact.notes == [
        "2 of 4 runs have no exact metrics: they stored no ranks among all items.",
        "There are no exact metrics under neutral: clients draw neither held-out items nor candidates as "
        "negatives there, and so both stand out among all items.",
    ]
    shown = {row["method"]: row for row in exact.rows}
    assert (shown["FedMF"]["exact_hr@10_clean"], shown["MF"]["exact_hr@10_clean"]) == (0.5, None)

    rows, tables = comparison([runs[0]], METHODS)
    assert len(tables) == 1
    assert tables[0].notes[-1] == ("1 of 1 runs have no exact metrics: they stored no ranks among all items.")


def test_a_comparison_has_a_table_over_seeds_of_the_protocol(tmp_path):
    def made(protocol, seed, ranks, **more):
        run = RunId("pfedclr", "ml-100k", protocol, "fedmf", seed)
        return write_run(tmp_path, run, METHODS, ranks=ranks, exact=(11,) * len(ranks), **more)

    runs = [
        made("clean", 0, (1, 1, 20, 20)),
        made("clean", 1, (1, 1, 1, 1)),
        # A user less: what all have is compared.
        made("clean-1", 0, (1, 20, 20)),
        made("neutral", 0, (1, 1, 1, 1)),
        made("temporal", 0, (1, 20)),
    ]
    rows, (sampled, exact, seeds) = comparison(runs, METHODS)
    (row,) = (row for row in rows if row.get("protocol_seeds"))
    (shown,) = seeds.rows

    assert (row["protocol"], row["protocol_seeds"], row["runs_in_all"], row["users"]) == ("clean-*", 2, 3, 3)
    # Of three users: (2/3 + 1) / 2 under clean, 1/3 under clean-1.
    assert row["hr@10"] == pytest.approx((5 / 6 + 1 / 3) / 2)
    assert row["exact_hr@10"] == row["exact_hr@10_high"] == 0.0
    assert shown["hr@10_mark"] == f" [{row['hr@10_low']:.3f}, {row['hr@10_high']:.3f}]"
    assert not any("clean-1" in column.key for column in sampled.columns)
    # Other users than of the two protocols are counted in captions, fewer of a split at one time.
    for table in (sampled, exact):
        assert "ml-100k, 4 users, 2 under temporal: " in table.caption
    assert "Seeds of each number: clean: 2; neutral: 1; temporal: 1. Numbers" in sampled.caption
    assert "clean-1" not in sampled.caption

    alone, tables = comparison(runs[:2], METHODS)
    assert [table.part for table in tables] == ["", "exact"]
    assert not any("protocol_seeds" in row for row in alone)


def test_a_variant_is_a_method_of_its_own_in_a_comparison(tmp_path):
    name = "fedmf[d=8][rate=0.1]"
    runs = [run(tmp_path, "fedmf", "clean", 0, 0.4), run(tmp_path, name, "clean", 0, 0.5)]
    rows, (table, *_) = comparison(runs, METHODS)
    assert [row["method"] for row in table.rows] == ["FedMF[d=8][rate=0.1]", "FedMF"]
    assert [row["method"] for row in csv.DictReader(io.StringIO(csv_text(rows)))] == ["fedmf", name]


def test_statistics_are_built_of_all_datasets_or_of_one_paper(tmp_path):
    for name in ("ml-100k", "filmtrust"):
        path = tmp_path / f"data/{name}/statistics.json"
        write_checked_json(path, described(name))
    reads = [f"data/{name}/statistics.json" for name in ("ml-100k", "filmtrust")]
    build_target(tmp_path, "statistics", "all", reads=reads, unavailable={"ml-1m": "no network"})
    build_target(tmp_path, "statistics", "own", reads=reads, unavailable={}, paper="pfedclr")
    every, own = (
        list(csv.DictReader(io.StringIO((tmp_path / f"tables/{name}.csv").read_text())))
        for name in ("all", "own")
    )
    assert {row["dataset"] for row in every} == {"ml-100k", "filmtrust", "ml-1m"}
    assert {row["paper"] for row in own} == {"pfedclr"}
    parts = [table.part for table in read_shown(tmp_path / "tables/all.json").tables]
    assert parts == ["counts", "splits"]


def test_the_legend_says_whose_spread_it_is_and_that_what_diverged_takes_no_part():
    columns = [
        ReportColumn("name", "name", align="left"),
        ReportColumn("hr_printed", "printed", "{:.2f}", ranked=True),
        ReportColumn("hr", "ours", "{:.2f}", ranked=True),
    ]
    one, other = {"name": "a", "hr_printed": 0.2, "hr": 0.3}, {"name": "b", "hr_printed": 0.1, "hr": 0.2}
    best = "The best of a column is bold, the second best underlined."

    def legend(**more):
        return list(ReportTable("", columns, [one | more, other]).legend())

    assert legend() == [best]
    assert legend(hr_printed_sd=0.1) == [
        best,
        "After a printed number, ± is the deviation that the paper prints.",
    ]
    assert legend(hr_sd=0.1, hr_printed_sd=0.1)[1] == "± is the standard deviation over seeds."
    assert legend(hr_mark="†") == [best, "A number of a diverged run is never marked as best."]
