"""From finished runs to the papers' tables: layout, marks, gains, print beside ours, what is missing."""

import csv
import re
from dataclasses import replace

import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.config.methods import load_methods
from fedrec.config.papers import Artefact, Line, load_papers
from fedrec.config.printed import printed_for
from fedrec.data.interactions import write_interactions
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.artefact_status import artefact_status, list_artefacts
from fedrec.plan.cost import START_SECONDS, seconds_of, size_of
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import artefact_runs_of
from fedrec.reporting.tables.metrics import metric_rows, metric_tables
from tests.conftest import ROOT
from tests.made_data import made_interactions
from tests.made_project import build_artefact, project_with
from tests.made_runs import made, write_run
from tests.planned_runs import finish

METHODS = load_methods(ROOT / "config/methods.yaml")
PAPERS = load_papers(ROOT / "config/papers")
CATALOGUE = load_catalogue(ROOT / "config/datasets.yaml")
GOLDEN = ROOT / "tests/unit/reporting/golden"


def table(results, artefact, form="md"):
    return (results / f"tables/{artefact.target}.{form}").read_text()


def rows(results, artefact):
    return list(csv.DictReader(table(results, artefact, "csv").splitlines()))


def described(results, dataset, users, items):
    counts = {"dataset": dataset, "users": users, "items": items}
    write_checked_json(results / "data" / dataset / "statistics.json", counts)


def only(artefact, *datasets):
    """The artefact on these datasets alone."""
    return Artefact(**(vars(artefact) | {"datasets": datasets}))


@pytest.mark.parametrize("form", ["md", "tex"])
def test_a_table_of_metrics_looks_like_this(tmp_path, form):
    """The whole layout against a file: run with new numbers, it is to be read before it is replaced."""
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"], seeds=[0, 1])
    build_artefact(tmp_path, one, seeds=(0, 1))
    assert table(tmp_path, one, form) == (GOLDEN / f"pfedclr_table3.{form}").read_text()


def test_a_mean_has_the_rounds_and_devices_of_all_its_runs(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"], seeds=[0, 1])
    other = next((tmp_path / "runs").rglob("seed1")) / "run.json"
    said = read_checked_json(other)
    rounds = {**said["rounds"], **dict.fromkeys(said["rounds"], 7)}
    write_checked_json(
        other, {**said, "rounds": rounds, "measured": {**said["measured"], "device": "NVIDIA H200"}}
    )
    build_artefact(tmp_path, one, seeds=(0, 1))
    (row,) = {
        (row["seeds"], row["round"].split()[1], row["device"])
        for row in rows(tmp_path, one)
        if row["device"].endswith("H200")
    }
    assert row[:2] == ("0 1", "7")
    assert row[2].count("; ") == 1


def test_print_stands_beside_ours_with_the_difference(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    found = {(row["line"], row["protocol"], row["metric"]): row for row in rows(tmp_path, one)}
    row = found["PFedCLR", "published-pfedclr", "hr@10"]
    ours = 0.3 + 0.02 * 9
    reached = ours * (1 - 0.8**10)
    assert float(row["printed"]) == 0.9989
    assert float(row["value"]) == pytest.approx(reached)
    assert float(row["difference"]) == pytest.approx(reached - 0.9989)
    assert (row["run"], row["settings_of"], row["at"], row["split_hash"][:5]) == (
        "pfedclr", "pfedclr", "best_test", "5p117",
    )  # fmt: skip
    # What is printed was measured under the paper's own protocol alone.
    assert not found["PFedCLR", "clean", "hr@10"]["difference"]


def test_a_number_that_was_taken_over_from_another_paper_is_no_number_to_be_missed(tmp_path):
    one = only(PAPERS["plgc"].artefacts["table2"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    found = {
        (row["line"], row["metric"]): row for row in rows(tmp_path, one) if "published" in row["protocol"]
    }
    assert (found["FedRAP", "hr@10"]["printed_of"], found["FedRAP", "hr@10"]["difference"]) == ("FedRAP", "")
    assert found["PFedRec", "hr@10"]["printed_of"] == "PFedRec"
    # FedNCF's HR@10 is FedRAP's, its NDCG@10 is PLGC's own.
    assert (found["FedNCF", "hr@10"]["printed_of"], found["FedNCF", "ndcg@10"]["printed_of"]) == (
        "FedRAP",
        "",
    )
    assert found["FedNCF", "ndcg@10"]["difference"]
    shown = table(tmp_path, one)
    assert "0.9709 (FedRAP)" in shown
    assert (
        "A printed number with a name behind it (FedRAP, PFedRec) equals that paper's to the last digit"
        in shown
    )


def test_what_counting_gives_stands_below_methods_with_own_item_tables(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    # Two users of one and two rows draw 400 and 800 times from 49 items: every candidate. All rows of the
    # made split are of one item, which therefore stands in training: rank 1.
    assert "is expected to reach HR@10 1.0000, NDCG@10 1.0000 under published-pfedclr" in table(tmp_path, one)
    shared = replace(one, lines=tuple(line for line in one.lines if line.run == "fedmf"))
    build_artefact(tmp_path, shared)
    assert "is expected to reach" not in table(tmp_path, shared)


def test_a_gain_is_over_the_best_federated_baseline(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    (gain,) = [
        row
        for row in rows(tmp_path, one)
        if row["line"].startswith("gain") and (row["protocol"], row["metric"]) == ("clean", "hr@10")
    ]
    # FedRAP, the line before, is the best of the others: 0.46 against 0.48.
    assert float(gain["value"]) == pytest.approx(100 * (0.48 - 0.46) / 0.46)
    assert float(gain["printed"]) > 0


def test_every_row_names_its_runs_and_a_gain_both_sides(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"], seeds=[0, 1])
    build_artefact(tmp_path, one, seeds=(0, 1))
    found = {(row["line"], row["protocol"], row["metric"]): row for row in rows(tmp_path, one)}
    own = found["PFedCLR", "published-pfedclr", "hr@10"]
    folder = "runs/pfedclr/ml-100k/published-pfedclr/pfedclr"
    assert own["runs"] == f"{folder}/seed0 {folder}/seed1"
    assert all(
        (tmp_path / run / "run.json").is_file() for row in found.values() for run in row["runs"].split()
    )
    (gain,) = [
        row for key, row in found.items() if key[0].startswith("gain") and key[1:] == ("clean", "hr@10")
    ]
    assert gain["runs"] == found["PFedCLR", "clean", "hr@10"]["runs"]
    assert gain["runs_against"] == found["FedRAP", "clean", "hr@10"]["runs"]


def test_a_gain_is_over_the_seeds_that_both_lines_have(tmp_path):
    """The last line alone has a second seed, with which it is another one."""
    one = only(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"], seeds=[0, 1])
    project = project_with(tmp_path, {}, one, seeds=[0, 1])
    subject = artefact_runs_of(project.target(one.target), project)
    own = {index for index, line in enumerate(one.lines) if line.run == "pfedclr"}
    groups = {key: group if key[0] in own else group[:1] for key, group in subject.groups.items()}
    found = metric_rows(replace(subject, groups=groups))
    (mean,) = [
        row for row in found if (row["line"], row["protocol"], row["metric"]) == ("PFedCLR", "clean", "hr@10")
    ]
    (gain,) = [
        row
        for row in found
        if row["line"].startswith("gain") and (row["protocol"], row["metric"]) == ("clean", "hr@10")
    ]
    assert mean["seeds"] == "0 1"
    assert mean["value"] != pytest.approx(0.48)
    assert gain["value"] == pytest.approx(100 * (0.48 - 0.46) / 0.46)
    assert gain["runs"] == ["runs/pfedclr/ml-100k/clean/pfedclr/seed0"]


def test_seconds_are_those_of_the_device_that_most_runs_had(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table7"], "ml-100k")
    records = made(tmp_path, one, METHODS, ["ml-100k"], seeds=[0, 1, 2])
    for record in (group[0] for group in records.values()):
        measured = {**record.summary["measured"], "device": "a slow one", "seconds_per_round": 99.0}
        write_checked_json(record.folder / "run.json", {**record.summary, "measured": measured})
    build_artefact(tmp_path, one, seeds=(0, 1, 2))
    for row in rows(tmp_path, one):
        assert (float(row["seconds"]) < 99, "slow" in row["device"], row["seeds"]) == (True, False, "1 2")


def test_a_table_without_runs_has_the_column_all_the_same(tmp_path):
    one = PAPERS["pfedrec"].artefacts["table4"]
    build_artefact(tmp_path, one)
    assert {row["runs"] for row in rows(tmp_path, one)} == {""}


def test_the_plan_of_a_table_is_kept_beside_it(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    runs = [run for group in made(tmp_path, one, METHODS, ["ml-100k"]).values() for run in group]
    build_artefact(tmp_path, one)
    plan = Target.from_json((tmp_path / "plan/pfedclr_table3.json").read_text())
    assert set(plan.runs) == {run.id for run in runs}


def test_the_mean_of_gains_needs_all_of_them(tmp_path):
    lines = (
        Line(label="a", run="fedmf"), Line(label="b", run="pfedrec"), Line(label="c", run="fedncf"),
        Line(label="g", gain=("a", "b")), Line(label="h", gain=("a", "c")), Line(label="m", mean=("g", "h")),
    )  # fmt: skip
    one = Artefact("pfedclr", "table1", "Gains", "metrics", ("ml-100k",), ("hr@10",), lines, None, {})
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    value = {row["line"]: float(row["value"]) for row in rows(tmp_path, one) if row["protocol"] == "clean"}
    assert value["m"] == pytest.approx((value["g"] + value["h"]) / 2)
    partial = Artefact(**(vars(one) | {"lines": (*lines[:4], lines[5])}))
    build_artefact(tmp_path, partial)
    assert not next(row for row in rows(tmp_path, partial) if row["line"] == "m")["value"]


def test_the_best_is_bold_and_the_second_underlined(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table2"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    sampled, _, _ = table(tmp_path, one).partition("exact metrics")
    lines = {line.split("|")[1].strip(): line for line in sampled.splitlines() if "| w/" in line}
    assert lines["w/ CLR"].count("**") == 2 * 6
    assert lines["w/ CF"].count("<u>") == 6
    assert r"\textbf{" in table(tmp_path, one, "tex")
    assert r"\underline{" in table(tmp_path, one, "tex")


def test_datasets_are_the_rows_of_a_table_of_one_line(tmp_path):
    one = only(PAPERS["fedrap"].artefacts["table7"], "ml-1m-500u-1", "ml-1m-500u-3")
    made(tmp_path, one, METHODS, one.datasets)
    build_artefact(tmp_path, one)
    text = table(tmp_path, one)
    sampled, _, exact = text.partition("exact metrics")
    assert [line.split("|")[1].strip() for line in exact.splitlines() if line.startswith("| ml")] == [
        "ml-1m-500u-1", "ml-1m-500u-3",
    ]  # fmt: skip
    lines = [line for line in sampled.splitlines() if line.startswith("|")]
    assert "dataset" in lines[0]
    assert "HR@10, printed" in lines[0]
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["ml-1m-500u-1", "ml-1m-500u-3"]
    assert "1.0000" in lines[2]
    assert "0.9020" in lines[3]
    # Datasets do not compete.
    assert "**" not in text
    assert "Method FedRAP." in text


def test_a_dataset_that_cannot_be_had_keeps_its_printed_numbers_and_the_reason(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k", "hetrec2011")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one, hetrec2011="no file")
    text = table(tmp_path, one)
    assert "hetrec2011: not available here (no file)" in text
    missing = [row for row in rows(tmp_path, one) if row["dataset"] == "hetrec2011"]
    assert all(not row["value"] for row in missing)
    assert any(row["printed"] for row in missing)


def test_a_run_that_is_not_finished_is_an_error_that_says_how_to_get_it(tmp_path):
    with pytest.raises(ResultError, match=r"not finished. Build it with: snakemake --cores 2 '.*run.json'"):
        build_artefact(tmp_path, only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k"))


def test_inactive_users_are_counted_and_scored_apart(tmp_path):
    counts, data = {0: 20, 1: 29, 2: 30, 3: 5}, tmp_path / "data/ml-100k"
    rows_of_users = [(user, item, 0) for user, count in counts.items() for item in range(count)]
    interactions = replace(made_interactions(rows_of_users, items=30), dataset="ml-100k")
    write_interactions(data / "interactions.parquet", interactions, {})
    count = only(PAPERS["pfedrec"].artefacts["table9"], "ml-100k")
    build_artefact(tmp_path, count)
    (row,) = rows(tmp_path, count)
    assert (row["users"], row["share_of_users"], row["users_printed"]) == ("2.0", "50.0", "199.0")
    metrics = only(PAPERS["pfedrec"].artefacts["table10"], "ml-100k")
    for place, runs in made(tmp_path, metrics, METHODS, ["ml-100k"]).items():
        for one in runs:
            write_run(tmp_path, one.id, METHODS, ranks=(1, 50, 1, 1), final=0.75)
        assert place
    build_artefact(tmp_path, metrics)
    value = {
        row["line"]: float(row["value"])
        for row in rows(tmp_path, metrics)
        if (row["protocol"], row["metric"]) == ("clean", "hr@10")
    }
    assert value["inactive users"] == 0.5
    assert value["all users"] == pytest.approx(0.75 * (1 - 0.8**10))


def test_ranking_in_the_whole_catalogue_comes_from_the_ranks(tmp_path):
    one = only(PAPERS["pfedrec"].artefacts["table8"], "ml-100k")
    for runs in made(tmp_path, one, METHODS, ["ml-100k"]).values():
        write_run(tmp_path, runs[0].id, METHODS, ranks=(1, 11, 12, 13), final=0.9)
    build_artefact(tmp_path, one)
    assert {row["value"] for row in rows(tmp_path, one) if row["metric"] == "hr@10"} == {"0.25"}


def test_that_ranking_has_a_dash_where_its_ranks_were_not_kept(tmp_path):
    one = only(PAPERS["pfedrec"].artefacts["table8"], "ml-100k")
    records = made(tmp_path, one, METHODS, ["ml-100k"], ranks=(1, 11))
    write_run(tmp_path, records[0, "ml-100k", "clean"][0].id, METHODS, has_exact=False)
    build_artefact(tmp_path, one)
    value = {
        (row["line"], row["protocol"]): row["value"]
        for row in rows(tmp_path, one)
        if row["metric"] == "hr@10"
    }
    assert (value.pop(("NCF", "clean")), {*value.values()}) == ("", {"0.5"})
    text = table(tmp_path, one)
    assert "1 of 12 runs have no exact metrics" in text
    assert re.search(r"^\| NCF .*\|\s+–\s+\|", text, flags=re.MULTILINE)
    assert "exact HR@10" not in text, "it is what the table shows anyway"


EXACT_RANKS = (1, 4, 11, 21)


def test_exact_metrics_stand_below_sampled_ones(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"], ranks=(1, 2, 3, 4), exact=EXACT_RANKS)
    build_artefact(tmp_path, one)
    found = {(row["line"], row["protocol"], row["metric"]): row for row in rows(tmp_path, one)}
    values = {key[2]: float(row["value"]) for key, row in found.items() if key[:2] == ("PFedCLR", "clean")}
    assert values["exact_hr@10"] == 0.5
    assert values["exact_hr@20"] == 0.75
    assert values["exact_mrr@10"] == (1 + 1 / 4) / 4
    assert not found["PFedCLR", "clean", "exact_hr@10"]["printed"]
    _, _, exact = table(tmp_path, one).partition("exact metrics of the same runs")
    assert re.search(r"^\| PFedCLR .* 0\.5000", exact, flags=re.MULTILINE)
    assert "exact MRR@10, clean" in exact
    assert "left out of" not in exact


def test_a_run_without_exact_ranks_has_a_dash_and_is_counted(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    records = made(tmp_path, one, METHODS, ["ml-100k"], seeds=(0, 1), exact=(1, 4))
    first = records[0, "ml-100k", "clean"][0].id
    write_run(tmp_path, first, METHODS, has_exact=False)
    build_artefact(tmp_path, one, seeds=(0, 1))
    text = table(tmp_path, one)
    _, _, exact = text.partition("exact metrics of the same runs")
    line = next(line for line in exact.splitlines() if line.startswith("| w/o LDP"))
    assert [cell.strip() for cell in line.split("|")[2:4]] == ["1.0000 ± 0.0000", "–"]
    assert "1 of 8 runs have no exact metrics: they stored no ranks among all items." in exact
    (none,) = [
        row
        for row in rows(tmp_path, one)
        if (row["line"], row["protocol"], row["metric"]) == ("w/o LDP", "clean", "exact_hr@10")
    ]
    assert none["value"] == "", "a mean of one seed would not be that of both"

    for group in records.values():
        for record in group:
            write_run(tmp_path, record.id, METHODS, has_exact=False)
    build_artefact(tmp_path, one, seeds=(0, 1))
    text = table(tmp_path, one)
    assert "8 of 8 runs have no exact metrics" in text
    assert "exact metrics of the same runs" not in text
    assert not [row for row in rows(tmp_path, one) if row["metric"].startswith("exact")]


def test_a_third_protocol_has_a_column_where_there_are_runs(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k", "ml-1m")
    shown = replace(one, options={**one.options, "protocols": ["published", "clean", "neutral", "clean-1"]})
    made(tmp_path, shown, METHODS, ["ml-100k", "ml-1m"])
    project = project_with(tmp_path, {}, shown)
    subject = artefact_runs_of(project.target(shown.target), project)
    groups = {key: group for key, group in subject.groups.items() if key[1:] != ("ml-1m", "neutral")}
    found = metric_rows(replace(subject, groups=groups))
    assert {row["protocol"] for row in found if row["dataset"] == "ml-1m"} == {
        "published-pfedclr", "clean", "clean-1",
    }  # fmt: skip
    first, second = (
        [column.key for column in one.columns] for one in metric_tables(shown, found, "", [], {})
    )
    assert ("hr@10_neutral" in first, "hr@10_neutral" in second) == (True, False)
    assert not any("clean-1" in key for key in first), "another seed is no other protocol"


def test_rates_are_what_we_run_beside_what_is_printed(tmp_path):
    one = PAPERS["pfedrec"].artefacts["table4"]
    build_artefact(tmp_path, one)
    found = {(row["method"], row["dataset"]): row for row in rows(tmp_path, one)}
    row = found["PFedRec", "amazon-video-a"]
    assert (row["rate"], row["rate_printed"], row["source"]) == ("0.01", "0.01", "paper")
    # A plug-in takes its backbone's rates; the paper tuned FedRecon with DualPer anew.
    assert found["FedRecon+DualPer", "amazon-video-a"]["rate"] == "0.1"
    assert found["FedRecon", "amazon-video-a"]["rate"] == "0.05"
    for key, row in found.items():
        assert row["source"] != "paper" or float(row["rate"]) == float(row["rate_printed"]), key


def test_costs_are_what_each_file_says(tmp_path):
    one = PAPERS["pfedclr"].artefacts["table4"]
    build_artefact(tmp_path, one)
    assert all(row["cost"].startswith("O(") for row in rows(tmp_path, one))


def test_space_time_and_effort_stand_beside_print(tmp_path):
    described(tmp_path, "ml-100k", 943, 1682)
    space = only(PAPERS["pfedclr"].artefacts["table6"], "ml-100k")
    build_artefact(tmp_path, space)
    sizes = {row["method"]: row for row in rows(tmp_path, space)}
    for method in ("FedMF", "PFedCLR", "PFedCLR beyond FedMF"):
        ours, printed = (float(sizes[method][key]) for key in ("space_client", "space_client_printed"))
        assert ours == pytest.approx(printed, abs=5e-5)
    assert sizes["PFedCLR beyond FedMF"]["space_server_printed"] == ""
    time = only(PAPERS["pfedclr"].artefacts["table7"], "ml-100k")
    made(tmp_path, time, METHODS, ["ml-100k"], seconds=0.25)
    build_artefact(tmp_path, time)
    assert {row["seconds"] for row in rows(tmp_path, time)} == {"0.25"}
    effort = only(PAPERS["pfedrec"].artefacts["table5"], "ml-100k")
    made(tmp_path, effort, METHODS, ["ml-100k"], seconds=2.0)
    build_artefact(tmp_path, effort)
    row = next(row for row in rows(tmp_path, effort) if row["method"] == "PFedRec")
    # Nine rounds of two seconds to the best validation; one table, one vector, one bias.
    assert (row["parameters"], row["epochs"], row["time_total"]) == (f"{1682 * 32 + 33}.0", "9.0", "18.0")
    assert float(row["parameters_printed"]) == 1682 * 32 + 33


def test_how_far_an_artefact_is_and_what_is_left_to_do(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    project = project_with(tmp_path, {}, one, seeds=[0])
    before = artefact_status(project, one)
    assert (before.built, len(before.runs), before.done) == (False, 4, 0)
    # 100 rounds of PFedCLR on 100,000 rows, four times, and twice noise on the tables of six clients in ten.
    noise = 100 * 0.6 * 943 * 1682 * 16 * 35e-9
    plain = START_SECONDS + 100 * METHODS["pfedclr"].seconds
    assert before.seconds == pytest.approx(4 * plain + 2 * noise)
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)
    built = artefact_status(project, one)
    assert (built.built, built.done, built.seconds) == (True, 0, before.seconds), "runs of other code"
    for run in built.runs:
        finish(project, run)
    after = artefact_status(project, one)
    assert (after.built, after.done, after.seconds) == (True, 4, 0.0)
    text = list_artefacts(project, [one])
    assert (
        "pfedclr_table3   PFedCLR with local differential privacy (metrics): built; 4 of 4 runs done" in text
    )
    assert "pfedclr_fig1     a scheme without data, which fedrec does not build: three frameworks" in text


def test_a_run_costs_by_rounds_epochs_and_rows(tmp_path):
    one = only(PAPERS["pfedclr"].artefacts["table3"], "ml-100k", "ml-1m")
    found = made(tmp_path, one, METHODS, ["ml-100k", "ml-1m"])
    small, large = (seconds_of(found[0, name, "clean"][0].id, METHODS, CATALOGUE) for name in one.datasets)
    of_rows, of_tables = METHODS["pfedclr"].seconds, METHODS["pfedclr"].table_seconds
    few, many = (size_of(CATALOGUE[name]) for name in one.datasets)
    tables = (many.users * many.items) / (few.users * few.items)
    as_long = ((of_rows - of_tables) * 10.00209 + of_tables * tables) / of_rows
    assert large - START_SECONDS == pytest.approx(as_long * (small - START_SECONDS))


def test_only_the_numbers_of_its_own_table_decide_an_artefact():
    one = PAPERS["pfedclr"].artefacts["table3"]
    assert len(printed_for(one)) == len(set(map(str, printed_for(one)))) > 10
    assert {tuple(row[:2]) for row in printed_for(one)} == {("pfedclr", "Table 3")}


def test_what_decides_comes_first_whatever_other_protocols_there_are():
    about = {"line": "FedMF", "dataset": "ml-100k", "of_lines": False, "value": 0.5, "printed": 0.4}
    rows = [
        about | {"metric": metric, "protocol": protocol, "difference": 0.1}
        for metric in ("hr@10", "ndcg@10")
        for protocol in ("published-pfedclr", "clean", "neutral")
    ]
    (shown,) = metric_tables(PAPERS["pfedclr"].artefacts["table1"], rows, "", [], {})
    assert [column.heading for column in shown.columns] == [
        "method",
        *(
            f"{metric}, {side}"
            for metric in ("HR@10", "NDCG@10")
            for side in ("printed", "published", "clean")
        ),
        "HR@10, published minus printed",
        "HR@10, neutral",
        "NDCG@10, published minus printed",
        "NDCG@10, neutral",
    ]
