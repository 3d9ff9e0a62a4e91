"""The tables and the figure of the audit, from runs made by hand and from small trained ones."""

import csv
import re
from dataclasses import asdict

import pytest

from fedrec.audit.differences import difference_rows
from fedrec.audit.protocols import step_rows
from fedrec.audit.significance import ALPHA
from fedrec.audit.uploads import attack_uploads
from fedrec.config.protocol import full_name, short_name
from fedrec.errors import ResultError
from fedrec.plan.protocol_steps import protocol_steps, runs_of_step, steps
from fedrec.plan.runs import RunId
from fedrec.reporting.figures import ranks as ranks_figure
from fedrec.reporting.tables.audit.protocols import step_tables
from fedrec.reporting.tables.audit.significance import significance_tables
from fedrec.reporting.tables.audit.uploads import upload_rows, upload_tables
from fedrec.runs.record import RunRecord
from tests.federations import METHODS, uniform_noise
from tests.made_project import build_target
from tests.made_runs import SPLIT, write_run
from tests.trained_runs import finished, shared_results


def csv_rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def body(table):
    """The cells of a table in markdown, without rules and padding."""
    lines = [line for line in table.markdown().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


# Steps

TEST_HR = {
    # By the kind of run: popularity, FedMF and PFedCLR. The round of the best validation is 0.1 below.
    "published": (0.30, 0.60, 0.90),
    "only-pool": (0.30, 0.58, 0.40),
    "upto-lists": (0.30, 0.56, 0.38),
    "only-order": (0.20, 0.50, 0.80),
    "clean": (0.35, 0.50, 0.35),
}
NAMES = ("popularity", "fedmf", "pfedclr")


def made_ladder(results, protocols, seeds=(0,), switches=("pool", "round", "order"), **more):
    """A ladder and all its runs."""
    told = {"dataset": "ml-100k", "paper": "pfedclr", "rounds": 15} | more
    ladder = protocol_steps(METHODS, NAMES, switches=switches, distinct_pairs=True, **told)
    for step in steps(ladder, protocols):
        for place, runs in enumerate(runs_of_step(ladder, METHODS, step, seeds).values()):
            for run in runs:
                value = TEST_HR[short_name(step.protocol)][place] + 0.01 * run.seed
                lower = value if step.protocol == "clean" else value - 0.1
                values = {"best_test": value, "best_validation": lower}
                write_run(results, run, METHODS, final_at=values, rounds=2)
    return ladder


def test_a_row_per_step_and_method_with_its_rank(tmp_path, protocols):
    ladder = made_ladder(tmp_path, protocols)
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, (0,))
    found = {(row["step"], row["title"]): row for row in rows}
    assert len(found) == len(rows) == 7 * 3
    row = found["published", "PFedCLR"]
    assert (row["hr@10"], row["ndcg@10"], row["rank"], row["protocol"]) == (
        0.90,
        0.45,
        1,
        "published-pfedclr",
    )
    assert row["runs"] == ["runs/pfedclr/ml-100k/published-pfedclr/pfedclr@rounds-15/seed0"]
    assert (row["dataset"], row["paper"], row["method"]) == ("ml-100k", "pfedclr", "pfedclr[rounds=15]")
    assert (row["split_hash"], row["rounds"], row["seeds"]) == (SPLIT, 15, "0")
    # The rule for the round reads published runs, at another round.
    row = found["only-round", "PFedCLR"]
    assert (row["hr@10"], short_name(row["protocol"]), row["round_rule"]) == (
        pytest.approx(0.80),
        "published",
        "best_validation",
    )
    row = found["upto-round", "PFedCLR"]
    assert (row["hr@10"], short_name(row["protocol"]), row["rank"]) == (pytest.approx(0.28), "upto-lists", 2)
    # Equal numbers share the better rank.
    ranks = {title: found["clean", title]["rank"] for title in ("popularity", "FedMF", "PFedCLR")}
    assert ranks == {"FedMF": 1, "popularity": 2, "PFedCLR": 2}


def test_numbers_are_means_over_seeds(tmp_path, protocols):
    ladder = made_ladder(tmp_path, protocols, seeds=(0, 1, 2))
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, (0, 1, 2))
    row = next(row for row in rows if (row["step"], row["title"]) == ("published", "FedMF"))
    assert (row["hr@10"], row["seeds"]) == (pytest.approx(0.61), "0 1 2")


def test_steps_are_compared_by_the_seeds_that_a_method_has_at_all_of_them(tmp_path, protocols):
    seeds = (0, 1, 2)
    ladder = made_ladder(tmp_path, protocols, seeds=seeds)
    every = [
        run
        for step in steps(ladder, protocols)
        for runs in runs_of_step(ladder, METHODS, step, seeds).values()
        for run in runs
    ]
    lacks = {
        run for run in every if "fedmf" in run.method and short_name(run.protocol) == "only-pool" and run.seed
    }
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, seeds, set(every) - lacks)

    assert {row["seeds"] for row in rows if row["title"] == "FedMF"} == {"0"}
    assert {row["seeds"] for row in rows if row["title"] == "PFedCLR"} == {"0 1 2"}
    few = [row for row in rows if (row["title"], row["step"]) != ("FedMF", "only-order")]
    notes = step_tables(few)[0].notes
    assert "Methods have different seeds: FedMF: seeds 0; popularity, PFedCLR: seeds 0, 1, 2." in notes
    assert "A dash: FedMF has no run under that protocol." in notes


def test_a_table_of_steps_looks_like_this(tmp_path, protocols):
    rows = step_rows(tmp_path, [made_ladder(tmp_path, protocols)], METHODS, protocols, (0,))
    hr, ndcg = step_tables(rows)
    assert body(hr) == [
        ["method", "published", "only pool", "only round", "only order", "up to pool", "up to round", "clean"],
        ["FedMF", "<u>0.6000</u>", "**0.5800**", "<u>0.5000</u>", "<u>0.5000</u>", "**0.5800**", "**0.4600**",
         "**0.5000**"],
        ["popularity", "0.3000", "0.3000", "0.2000", "0.2000", "0.3000", "0.2000", "<u>0.3500</u>"],
        ["PFedCLR", "**0.9000**", "<u>0.4000</u>", "**0.8000**", "**0.8000**", "<u>0.4000</u>",
         "<u>0.2800</u>", "<u>0.3500</u>"],
    ]  # fmt: skip
    assert hr.caption.startswith(
        "Audit of protocols on ml-100k: test HR@10, settings of pfedclr, 15 rounds. “only” changes one switch "
        "of the published protocol to its clean value; “up to” changes this switch and all before it. "
    )
    assert hr.caption.endswith("Seeds 0; splits 5p1175p1; code c0dec0de.")
    assert hr.notes == []
    assert "test NDCG@10" in ndcg.caption
    assert body(ndcg)[1][1] == "<u>0.3000</u>"


def test_steps_that_change_nothing_are_noted(tmp_path, protocols):
    ladder = made_ladder(tmp_path, protocols, switches=("pool", "repeats", "round", "order"))
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, (0,))
    (note,) = step_tables(rows)[0].notes
    assert note == "only repeats: this switch changes nothing here, so no run is needed."


def test_a_method_is_one_row_even_where_its_runs_are_spelt_otherwise(tmp_path, protocols):
    """They are no change of the paper that clean runs of FedRecon are shared with."""
    told, size = {"dataset": "ml-100k", "paper": "fedrap", "rounds": 100}, "[batch_size=256]"
    ladder = protocol_steps(METHODS, [f"fedrecon{size}"], switches=["pool"], distinct_pairs=True, **told)
    spelled = set()
    for step in steps(ladder, protocols):
        for run in runs_of_step(ladder, METHODS, step, (0,))[f"fedrecon{size}[rounds=100]"]:
            spelled.add(run.method)
            write_run(tmp_path, run, METHODS)
    assert spelled == {"fedrecon", f"fedrecon{size}[rounds=100]"}
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, (0,))
    assert len(body(step_tables(rows)[0])) == 2


def test_the_figure_shows_how_ranks_move(tmp_path, protocols):
    ladders = [
        made_ladder(tmp_path, protocols),
        made_ladder(tmp_path, protocols, dataset="filmtrust"),
    ]
    shown = ranks_figure.rows_drawn(step_rows(tmp_path, ladders, METHODS, protocols, (0,)))
    figure = ranks_figure.rank_figure(shown)
    left, right = figure.axes
    assert (left.get_title(), right.get_title()) == ("ml-100k", "filmtrust")
    lines = {line.get_label(): (line.get_xdata(), line.get_ydata()) for line in left.lines}
    assert {name: list(y) for name, (_, y) in lines.items()} == {
        "popularity": [3, 3, 3, 2], "FedMF": [2, 1, 1, 1], "PFedCLR": [1, 2, 2, 2],
    }  # fmt: skip
    assert all(list(x) == [0, 1, 2, 3] for x, _ in lines.values())
    ticks = [tick.get_text() for tick in left.get_xticklabels()]
    assert ticks == ["published", "up to pool", "up to round", "clean"]
    # Names stand at both ends, those of one rank below each other; the best is at the top.
    ends = [(text.get_ha(), text.get_position()[1], text.get_text()) for text in left.texts]
    assert sorted(ends) == [
        ("left", 1, "FedMF"), ("left", 2, "popularity"), ("left", 3, "PFedCLR"),
        ("right", 1, "PFedCLR"), ("right", 2, "FedMF"), ("right", 3, "popularity"),
    ]  # fmt: skip
    low, high = left.get_ylim()
    assert low > 3 > 1 > high


def test_steps_are_written_in_all_forms(tmp_path, protocols):
    ladder = made_ladder(tmp_path, protocols)
    of_steps = (runs_of_step(ladder, METHODS, step, [0]).values() for step in steps(ladder, protocols))
    runs = {run for groups in of_steps for group in groups for run in group}
    told = {"steps": [asdict(ladder)], "seeds": [0], "runs": runs}
    build_target(tmp_path, "protocols", "steps", **told)
    build_target(tmp_path, "ranks", "ranks", **told)
    assert len(csv_rows(tmp_path / "tables/steps.csv")) == 7 * 3
    drawn = csv_rows(tmp_path / "figures/ranks.csv")
    assert {row["step"] for row in drawn} == {"published", "upto-pool", "upto-round", "clean"}
    said = (tmp_path / "figures/ranks.txt").read_text()
    assert "Seeds 0; splits 5p1175p1; code c0dec0de." in said
    assert said.split("\n")[1] in (tmp_path / "tables/steps.md").read_text()
    for path in ("tables/steps.tex", "figures/ranks.pdf", "figures/ranks.png"):
        assert (tmp_path / path).stat().st_size > 500


def test_a_run_of_a_step_that_is_not_there_is_named(tmp_path, protocols):
    ladder = made_ladder(tmp_path, protocols)
    (
        tmp_path / RunId("pfedclr", "ml-100k", "only-pool-pfedclr", "fedmf[rounds=15]", 0).folder / "run.json"
    ).unlink()
    with pytest.raises(
        ResultError, match=r"only-pool-pfedclr/fedmf@rounds-15/seed0/run.json: this run is not finished"
    ):
        step_rows(tmp_path, [ladder], METHODS, protocols, (0,))


def test_a_method_without_runs_at_a_step_is_left_out_there_and_of_the_figure(tmp_path, protocols):
    ladder = made_ladder(tmp_path, protocols)
    (step,) = (step for step in steps(ladder, protocols) if step.name == "upto-pool")
    every = {
        run
        for one in steps(ladder, protocols)
        for group in runs_of_step(ladder, METHODS, one, [0]).values()
        for run in group
    }
    gone = runs_of_step(ladder, METHODS, step, [0])[ladder.methods[0]]
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, (0,), every - set(gone))
    left = {row["step"] for row in rows if row["method"] == ladder.methods[0]}

    assert "upto-pool" not in left
    assert "clean" in left
    assert ladder.methods[0] not in {row["method"] for row in ranks_figure.rows_drawn(rows)}
    assert ladder.methods[1] in {row["method"] for row in ranks_figure.rows_drawn(rows)}


def test_a_method_that_is_not_drawn_moves_no_other(tmp_path, protocols):
    rows = step_rows(tmp_path, [made_ladder(tmp_path, protocols)], METHODS, protocols, (0,))
    (best,) = (row["method"] for row in rows if (row["step"], row["rank"]) == ("clean", 1))
    drawn = ranks_figure.rows_drawn(
        [row for row in rows if (row["step"], row["method"]) != ("upto-pool", best)]
    )

    assert best not in {row["method"] for row in drawn}
    for step in ("published", "upto-pool", "clean"):
        assert min(row["rank"] for row in drawn if row["step"] == step) == 1


# Exposure


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    sizes = {"users": 15, "items": 60, "per_user": 8, "candidates": 25}
    return shared_results(tmp_path_factory, "audited", uniform_noise, **sizes)


def test_the_table_of_exposure(small):
    runs = [
        finished(small, method, kind)
        for method in ("popularity", "draw-counter[rounds=3]", "mf[rounds=2][d=4]")
        for kind in ("published", "only-pool", "clean")
    ]
    build_target(small, "exposure", "exposure", [run.id for run in runs])
    rows = {
        (short_name(row["protocol"]), row["title"]): row for row in csv_rows(small / "tables/exposure.csv")
    }
    assert len(rows) == 9
    for kind, leaks in (("published", True), ("only-pool", False), ("clean", False)):
        for title in ("draw-counter", "MF[d=4]"):
            row = rows[kind, title]
            assert (float(row["test_held_out_never"]) == 1) == leaks
            assert float(row["test_candidates_mean"]) > 0
        assert float(rows[kind, "draw-counter"]["score_follows_draws"]) == pytest.approx(-1)
        # What draws nothing has no draws, rather than none.
        assert rows[kind, "popularity"]["draws_per_client"] == ""
    # What becomes of hits is told of published runs alone.
    counted = rows["published", "draw-counter"]
    assert int(counted["vanished"]) <= int(counted["hits"]) <= 15
    assert float(counted["vanished_share"]) == int(counted["vanished"]) / int(counted["hits"])
    assert rows["published", "popularity"]["vanished"] == "0"
    assert {rows[kind, "draw-counter"]["hits"] for kind in ("only-pool", "clean")} == {""}
    text = (small / "tables/exposure.md").read_text()
    assert text.startswith("Exposure on made: how often a client drew its test item")
    assert re.search(r"^\| popularity +\| published +\| +– \| +– \|", text, flags=re.MULTILINE)
    assert (small / "tables/exposure.tex").is_file()
    assert "No share of hits" not in text

    without = [run.id for run in runs if (run.id.method[:2], short_name(run.protocol)) != ("mf", "only-pool")]
    build_target(small, "exposure", "without", without)
    text = (small / "tables/without.md").read_text()
    assert "No share of hits that vanish, for lack of audited only-pool runs: MF[d=4]." in text
    run, exposed = (rows[kind, "draw-counter"]["runs"] for kind in ("published", "only-pool"))
    assert (run, counted["runs_against"]) == (
        "runs/fedem/made/published-fedem/draw-counter@rounds-3/seed0", exposed,
    )  # fmt: skip


def test_seeds_find_their_own_exposed_run(small):
    told = [
        finished(small, "draw-counter", kind, "rounds=3", seed=seed).id
        for kind, seed in (("published", 0), ("published", 1), ("only-pool", 1))
    ]
    build_target(small, "exposure", "seeds", told)
    rows = csv_rows(small / "tables/seeds.csv")
    hits = {(short_name(row["protocol"]), row["seeds"]): row["hits"] for row in rows}
    assert hits["published", "0"] == ""
    assert hits["published", "1"] != ""


def test_runs_drawn_by_seed_stand_in_their_order(small, monkeypatch):
    """Of four runs of two methods and seeds, three are drawn together."""
    monkeypatch.setattr("fedrec.reporting.tables.audit.exposure._AT_ONCE", 3)
    told = [
        finished(small, method, "clean", seed=seed).id
        for method in ("draw-counter[rounds=3]", "mf[rounds=2][d=4]")
        for seed in (0, 1)
    ]
    build_target(small, "exposure", "ordered", told)
    rows = csv_rows(small / "tables/ordered.csv")
    assert [row["runs"] for row in rows] == [run.folder for run in sorted(told)]
    draws = {(row["method"], row["seeds"]): row["test_candidates_mean"] for row in rows}
    assert len(set(draws.values())) == 4


# Differences

HIT, MISS = [1] * 40, [30] * 40


def compared(results, ranks, kind="clean", seeds=(0,)):
    """Runs with these ranks, by method, the same for every seed."""
    return [
        write_run(
            results,
            RunId("pfedclr", "ml-100k", full_name(kind, "pfedclr"), method, seed),
            METHODS,
            ranks=found,
        )
        for method, found in ranks.items()
        for seed in seeds
    ]


def test_differences_tell_who_may_be_best_and_who_is_above_popularity(tmp_path):
    rows = difference_rows(
        compared(
            tmp_path,
            {
                "popularity": [1] * 5 + MISS[5:],
                "pfedclr": HIT,
                "fedem": [30, *HIT[1:]],
                "fedmf": [1] * 20 + MISS[20:],
                "fedrap": [1] * 4 + MISS[4:],
            },
        ),
        METHODS,
    )
    by_method = {row["method"]: row for row in rows if row["metric"] == "hr@10"}
    assert list(by_method) == ["pfedclr", "fedem", "fedmf", "popularity", "fedrap"]
    assert by_method["fedmf"]["best_difference"] == pytest.approx(-0.5)
    assert by_method["fedmf"]["reference_difference"] == pytest.approx(15 / 40)
    assert (by_method["fedmf"]["best"], by_method["fedmf"]["reference"]) == ("pfedclr", "popularity")
    # One user less cannot be told from chance.
    assert by_method["fedem"]["best_randomisation"] == 1
    assert all(
        by_method[name]["reference_randomisation_holm"] < ALPHA for name in ("pfedclr", "fedem", "fedmf")
    )
    assert by_method["fedrap"]["reference_randomisation_holm"] > ALPHA
    assert "best_difference" not in by_method["pfedclr"]
    assert "reference_difference" not in by_method["popularity"]


def test_without_popularity_there_is_no_difference_to_it(tmp_path):
    rows = difference_rows(compared(tmp_path, {"fedem": HIT, "fedmf": MISS}), METHODS)
    assert not any("reference_difference" in row for row in rows)


def test_corrected_values_are_those_of_the_table_alone(tmp_path):
    """A second dataset or protocol does not count as more comparisons of the first."""
    ranks = {"popularity": MISS, "fedmf": [1] * 6 + MISS[6:], "fedem": [1] * 7 + MISS[7:]}
    clean = compared(tmp_path, ranks)
    alone = difference_rows(clean, METHODS)
    both = difference_rows([*clean, *compared(tmp_path, ranks, "published")], METHODS)
    assert [row for row in both if row["protocol"] == "clean"] == alone
    row = next(row for row in alone if row["method"] == "fedmf")
    # Two comparisons with popularity: the larger p stays, the smaller is doubled unless that is larger.
    assert row["reference_randomisation"] == pytest.approx(2 / 2**6)
    assert row["reference_randomisation_holm"] == pytest.approx(2 / 2**6)
    first = next(row for row in alone if row["method"] == "fedem")
    assert first["reference_randomisation_holm"] == pytest.approx(2 * 2 / 2**7)


def test_the_settings_of_two_papers_are_two_methods_and_not_two_seeds(tmp_path):
    run = RunId("fedem", "ml-100k", "clean", "fedmf", 0)
    runs = [*compared(tmp_path, {"fedmf": HIT}), write_run(tmp_path, run, METHODS, ranks=MISS)]
    found = {row["paper"]: row["value"] for row in difference_rows(runs, METHODS) if row["metric"] == "hr@10"}
    assert found == {"pfedclr": 1.0, "fedem": 0.0}


def test_runs_on_other_users_cannot_be_compared(tmp_path):
    runs = compared(tmp_path, {"fedmf": HIT, "fedem": HIT[1:]})
    with pytest.raises(
        ResultError, match=r"fedem/seed0: has other users than .*fedmf/seed0.* the same split"
    ):
        difference_rows(runs, METHODS)


def test_few_seeds_are_said_to_be_few(tmp_path):
    ranks = {"fedmf": HIT, "fedem": MISS}
    runs = compared(tmp_path, ranks)
    rows = difference_rows(runs, METHODS)
    table = significance_tables(rows)[0]
    assert table.notes[0].startswith(
        "The tests are over users and say nothing about other seeds: a paired test over seeds needs 6 seeds"
    )
    assert not any("best_over_seeds" in row for row in rows)
    many = compared(tmp_path, ranks, seeds=range(6))
    rows = difference_rows(many, METHODS)
    table = significance_tables(rows)[0]
    assert table.notes == ["Tests over the 6 seeds are in the csv."]
    row = next(row for row in rows if row["method"] == "fedem")
    assert (row["best_over_seeds"], row["seeds"]) == (2 / 2**6, "0 1 2 3 4 5")


def test_the_table_of_differences(tmp_path):
    runs = compared(tmp_path, {"popularity": MISS, "fedmf": HIT})
    build_target(tmp_path, "significance", "differences", [run.id for run in runs])
    text = (tmp_path / "tables/differences.md").read_text()
    assert text.count("Differences on ml-100k under the clean protocol: test ") == 3
    assert re.search(r"^\| FedMF +\| +\*\*1\.0000\*\* \|", text, flags=re.MULTILINE)
    assert "[-1.0000, -1.0000]" in text
    assert "Seeds 0; splits 5p1175p1; code c0dec0de." in text
    rows = csv_rows(tmp_path / "tables/differences.csv")
    assert [(row["method"], row["metric"]) for row in rows] == [
        ("fedmf", "hr@10"), ("popularity", "hr@10"), ("fedmf", "ndcg@10"), ("popularity", "ndcg@10"),
        ("fedmf", "exact_hr@10"), ("popularity", "exact_hr@10"),
    ]  # fmt: skip
    assert {row["users"] for row in rows} == {"40"}
    best, other = (f"runs/pfedclr/ml-100k/clean/{method}/seed0" for method in ("fedmf", "popularity"))
    assert [(row["runs"], row["runs_against"], row["runs_reference"]) for row in rows[:2]] == [
        (best, "", other), (other, best, ""),
    ]  # fmt: skip


def test_differences_of_an_exact_metric_need_the_ranks_of_all_runs_of_a_table(tmp_path):
    runs = compared(tmp_path, {"popularity": MISS, "fedmf": HIT})
    write_run(tmp_path, runs[0].id, METHODS, ranks=MISS, exact=HIT)
    rows = {(row["method"], row["metric"]): row["value"] for row in difference_rows(runs, METHODS)}
    assert [rows["popularity", metric] for metric in ("hr@10", "exact_hr@10")] == [0.0, 1.0]

    write_run(tmp_path, runs[0].id, METHODS, ranks=MISS, has_exact=False)
    again = [RunRecord(run.folder) for run in runs]
    assert {row["metric"] for row in difference_rows(again, METHODS)} == {"hr@10", "ndcg@10"}
    build_target(tmp_path, "significance", "differences", [run.id for run in again])
    assert (
        "1 of 2 runs have no exact metrics: they stored no ranks among all items."
        in (tmp_path / "tables/differences.md").read_text()
    )


# Uploads


@pytest.fixture(scope="module")
def watched(small):
    """FedMF with and without noise, of two seeds, and PFedRec."""
    quick = ("rounds=2", "d=4", "local_epochs=1", "participation=1")
    return [
        finished(small, method, "clean", *changes, *quick, seed=seed, record=("traffic",))
        for method, *changes in (["fedmf"], ["fedmf", "ldp=0.5"], ["colr"])
        for seed in ((0, 1) if method == "fedmf" else (0,))
    ]


def test_uploads_are_attacked_and_noise_has_its_cost(small, watched):
    build_target(small, "uploads", "uploads", [run.id for run in watched])
    rows = csv_rows(small / "tables/uploads.csv")
    found = {(row["title"], row["seeds"]): row for row in rows}
    assert len(found) == len(rows) == 5
    plain, noised = (
        "FedMF[d=4][local_epochs=1][participation=1]",
        "FedMF[d=4][ldp=0.5][local_epochs=1][participation=1]",
    )
    told = {(run.summary["method"], run.summary["seed"]): run for run in watched}
    for seed in ("0", "1"):
        row = found[noised, seed]
        # Noise is compared with the run of the same seed.
        change = float(row["hr@10"]) - float(found[plain, seed]["hr@10"])
        assert float(row["utility_change"]) == pytest.approx(change, abs=1e-12)
        assert row["runs_against"] == found[plain, seed]["runs"]
        assert (found[plain, seed]["utility_change"], found[plain, seed]["runs_against"]) == ("", "")
        assert float(row["direction_auc"]) < float(found[plain, seed]["direction_auc"])
        assert float(row["chance"]) == pytest.approx(6 / 60)
        assert row["clients"] == "15"
    assert found[plain, "0"]["hr@10"] != found[plain, "1"]["hr@10"]
    row = next(row for row in rows if row["method"].startswith("colr"))
    assert (row["table"], row["utility_change"]) == ("A", "")
    opened = told[row["method"], 0]
    expected = attack_uploads(opened.tensors, opened.clients)["A"]["norm"]["auc"]
    assert float(row["norm_auc"]) == pytest.approx(expected)
    text = (small / "tables/uploads.md").read_text()
    assert text.startswith(
        "What uploads reveal on made, clean protocol, settings of fedem: how well a server"
    )
    assert "Seeds 0, 1;" in text


def test_uploads_have_a_table_per_dataset_and_protocol(watched):
    (row,) = upload_rows(watched[:1], METHODS)
    other = row | {"protocol": "published-fedem"}
    first, second = upload_tables([row, other])
    assert "made, clean protocol" in first.caption
    assert "made, published protocol" in second.caption
    assert len(first.rows) == len(second.rows) == 1
