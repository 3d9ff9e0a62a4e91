"""The leaderboard of made runs: what it shows, compares and says, and what it does not."""

import re
import shutil
from dataclasses import replace

import pytest
import yaml

from fedrec.cli.main import main
from fedrec.config.claims import NOT_COUNTED
from fedrec.config.protocol import short_name
from fedrec.errors import ResultError
from fedrec.files.checked_json import write_checked_json
from fedrec.plan.leaderboard import LEADERBOARD, leaderboard_lines, runs_of_lines
from fedrec.plan.workspace import Stored
from fedrec.reporting.build import build
from fedrec.reporting.tables.leaderboard import leaderboard_tables
from fedrec.reporting.tables.leaderboard_rows import BY_SEARCH, leaderboard_rows
from fedrec.reporting.tables.leaderboard_text import answers, not_counted_notes
from fedrec.reporting.tables.table import RUNS, read_shown
from fedrec.runs.record import AUDIT_FILE, RunRecord
from tests.made_runs import write_rows, write_run
from tests.projects import Made, configuration

USERS = 60
GOOD, FAIR, POOR = [1] * USERS, [1, 1, 20] * (USERS // 3), [20, 20, 4] * (USERS // 3)
SEARCHED = ("mf", "ease", "fedmf", "pfedclr", "fedmf+plgc")
RANKS = {"mf": FAIR, "ease": POOR, "fedmf": POOR, "pfedclr": GOOD, "popularity": POOR}
"""Ranks among all items of those whose searches are finished."""


@pytest.fixture
def made(tmp_path):
    """A project with five searches on a dataset; that of PLGC is not finished."""
    made = Made(tmp_path)
    content = yaml.safe_load((made.folder / "config/tuning.yaml").read_text(encoding="utf-8"))
    del content["transfer"]
    searches = {f"{name}@clean": one_way(content["searches"], name) for name in SEARCHED}
    for search in searches.values():
        search["datasets"] = ["alpha"]
    changes = {"searches": searches, "controls": ["popularity"], "trials_per_setting": 2, "most_trials": 4}
    made.write("config/tuning.yaml", yaml.safe_dump(content | changes))
    set_found(made, dict.fromkeys(("mf", "fedmf", "pfedclr"), 4) | {"ease": 2})
    return made


def one_way(searches, name):
    """The first search of the project for a method, as if it were trained in no other way."""
    return next(
        one for key, one in searches.items() if re.fullmatch(rf"{re.escape(name)}(\[.*\])?@clean", key)
    )


def set_found(made, trials):
    """Write what searches found, in so many trials each."""
    settings = {"ease": {"penalty": 100.0}}
    found = {
        f"{name}@clean": {
            "alpha": {"trials": number, "settings": settings.get(name, {"rate": 0.02, "d": 32}), "held": {}}
        }
        for name, number in trials.items()
    }
    made.write("config/found.yaml", yaml.safe_dump(found))


def trained(made, ranks=RANKS, finals=None, **changes):
    """The project, with runs of all lines; sampled values are `finals`."""
    project = made.project(datasets=["alpha"], seeds=[0, 1], methods=[*RANKS], **changes)
    for run in project.target(LEADERBOARD).runs:
        name = run.method.partition("[")[0]
        value = (finals or {}).get((name, short_name(run.protocol)), 0.5)
        write_run(
            project.results, run, project.methods,
            final=value, ranks=[1] * USERS, exact=ranks[name], whole=True,
        )  # fmt: skip
    data = project.results / "data"
    write_rows(data, "alpha", "clean", [1 + user % 3 for user in range(USERS)])
    return project


def rows_of(project):
    target = project.target(LEADERBOARD)
    records = {run.folder: RunRecord(project.results / run.folder) for run in target.runs}
    rows = leaderboard_rows(target.content, records, project.methods, project.results / "data")
    return {row["method"]: row for row in rows}


def test_a_line_has_the_runs_with_what_its_search_found_and_no_others(made):
    project = made.project(datasets=["alpha"], seeds=[0, 1], methods=["fedmf"])
    lines = {line.method: line for line in leaderboard_lines(project)}
    assert [run.method for run in lines["pfedclr"].runs["clean"]] == ["pfedclr[d=32][rate=0.02]"] * 2
    assert (lines["fedmf+plgc"].trials, lines["fedmf+plgc"].runs, lines["fedmf+plgc"].before) == (
        None,
        {},
        {},
    )
    assert {*lines["pfedclr"].before} == {"published", "clean"}
    # EASE is of no paper: there is no rank of it before it was tuned.
    assert lines["ease"].before == {}
    assert not any("plgc" in run.method for run in project.target(LEADERBOARD).runs)


def test_a_line_has_the_settings_of_every_paper_that_compares_the_method_there(made):
    project = made.project(datasets=["alpha"], seeds=[0, 1])
    claim = next(one for one in project.claims if one.paper == "pfedrec")
    table = replace(claim.artefacts[0], datasets=("alpha",))
    project = replace(project, claims=(replace(claim, artefacts=(table,)),))
    lines = {line.method: line for line in leaderboard_lines(project)}
    # PFedRec compares MF and FedMF, and not PFedCLR.
    assert {name: [*line.stated] for name, line in lines.items() if line.stated} == {
        "mf": ["PFedRec"],
        "fedmf": ["PFedRec"],
    }
    stated = lines["fedmf"].stated["PFedRec"]["clean"]
    assert [(run.paper, run.method, run.seed) for run in stated] == [
        ("pfedrec", "fedmf", 0),
        ("pfedrec", "fedmf", 1),
    ]
    assert {*stated} <= {*runs_of_lines([lines["fedmf"]])}


@pytest.mark.parametrize(
    ("of_paper", "settings_of", "run"), [(0.9, "PFedRec", "mf"), (0.5, BY_SEARCH, "mf@d-32@rate-0.02")]
)
def test_a_line_has_the_settings_of_a_paper_where_these_are_better_on_validation(
    made, of_paper, settings_of, run
):
    project = trained(made)
    target = project.target(LEADERBOARD)
    line = next(line for line in target.content["lines"] if line["method"] == "mf")
    line["stated"] = {"PFedRec": {"clean": line["before"]["clean"]}}
    for folder in line["before"]["clean"]:
        found = next(one for one in target.runs if one.folder == folder)
        shutil.rmtree(project.results / folder)
        write_run(
            project.results, found, project.methods, final=of_paper, ranks=[1] * USERS, exact=GOOD, whole=True
        )
    row = rows_of(project)["mf"]
    assert row["settings_of"] == settings_of
    assert {folder.split("/")[-2] for folder in row[RUNS]} == {run}
    # Half of 0.9 of the final value of HR@10 is NDCG@10 on validation.
    assert row["validation_of_papers"] / row["validation_of_search"] == pytest.approx(of_paper / 0.5)


def test_a_search_of_fewer_trials_than_others_have_is_not_finished(made):
    set_found(made, {"mf": 4, "fedmf": 3})
    lines = {line.method: line for line in leaderboard_lines(made.project(datasets=["alpha"]))}
    assert (lines["mf"].trials, lines["fedmf"].trials, lines["fedmf"].runs) == (4, None, {})


SGD = "fedmf[item_scale=items][optimiser=sgd]"
"""Another way to train FedMF."""
ADAM_FOUND = {"trials": 2, "seeds": 3, "validation": 0.05, "settings": {"rate": 0.02, "d": 32}, "held": {}}
SGD_FOUND = ADAM_FOUND | {"validation": 0.06, "settings": {"rate": 0.3, "d": 64}}


def line_of_ways(made, *found):
    """The line of a method that may be trained in two ways, with findings for some of them."""
    path = made.folder / "config/tuning.yaml"
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["searches"][f"{SGD}@clean"] = content["searches"]["fedmf@clean"]
    made.write("config/tuning.yaml", yaml.safe_dump(content))
    keys = ("fedmf@clean", f"{SGD}@clean")
    there = {key: {"alpha": one} for key, one in zip(keys, found, strict=True) if one is not None}
    made.write("config/found.yaml", yaml.safe_dump(there))
    lines = [line for line in leaderboard_lines(made.project(datasets=["alpha"])) if line.method == "fedmf"]
    (line,) = lines
    return line


def test_a_method_has_one_line_with_the_way_that_is_best_on_validation(made):
    line = line_of_ways(made, ADAM_FOUND, SGD_FOUND)
    assert {run.method for run in line.runs["clean"]} == {
        "fedmf[d=64][item_scale=items][optimiser=sgd][rate=0.3]"
    }
    assert line.settings == {"item_scale": "items", "optimiser": "sgd", "rate": 0.3, "d": 64}
    # Each way had half of four trials.
    assert (line.search, line.trials) == ("tune_fedmf_item_scale_items_optimiser_sgd_clean_alpha", 4)
    better = line_of_ways(made, ADAM_FOUND | {"validation": 0.07}, SGD_FOUND)
    assert {run.method for run in better.runs["clean"]} == {"fedmf[d=32][rate=0.02]"}
    assert (better.search, better.settings) == ("tune_fedmf_clean_alpha", {"rate": 0.02, "d": 32})


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        ((ADAM_FOUND, None), "tune_fedmf_item_scale_items_optimiser_sgd_clean_alpha"),
        ((None, SGD_FOUND), "tune_fedmf_clean_alpha"),
        ((ADAM_FOUND | {"trials": 1}, SGD_FOUND), "tune_fedmf_clean_alpha"),
    ],
)
def test_a_line_is_not_finished_while_one_way_is_missing(made, found, missing):
    line = line_of_ways(made, *found)
    assert (line.search, line.trials, line.runs, line.before) == (missing, None, {}, {})


def test_other_protocols_are_asked_for_only_of_what_the_configuration_compares(made):
    project = made.project(
        datasets=["alpha"], methods=["fedmf"], protocols=["published", "clean", "neutral", "neutral-1"]
    )
    lines = {line.method: line for line in leaderboard_lines(project)}
    assert ({*lines["fedmf"].runs}, {*lines["mf"].runs}) == ({"clean", "neutral"}, {"clean"})


def test_nothing_else_asks_for_the_leaderboard_or_its_searches(made):
    project = made.project(datasets=["alpha"])
    tuned = {search.target for search in project.tuning.under_shared_protocol}
    assert not {LEADERBOARD, *tuned} & {*project.groups["all"], *project.groups["audit"]}
    assert {*project.groups["tune_clean"]} == {*project.groups["tune_clean_alpha"]} == tuned
    assert LEADERBOARD in project.names_for_rules()


def test_numbers_are_means_with_intervals_and_differences_are_paired(made):
    rows = rows_of(trained(made))
    assert rows["pfedclr"]["exact_ndcg@10"] == 1
    assert rows["mf"]["exact_ndcg@10"] == pytest.approx(2 / 3)
    assert rows["mf"]["exact_ndcg@10_low"] < 2 / 3 < rows["mf"]["exact_ndcg@10_high"]
    difference = rows["pfedclr"]["exact_ndcg@10"] - rows["fedmf"]["exact_ndcg@10"]
    assert rows["pfedclr"]["backbone_difference"] == pytest.approx(difference)
    assert (rows["fedmf"]["backbone"], "backbone_difference" in rows["fedmf"]) == (None, False)
    # A control is shown, and compared with nothing.
    assert "central_difference" not in rows["popularity"]
    assert rows["mf"]["megabytes"] == pytest.approx(10 * 10 * 8 / 1e6)


def test_p_values_are_adjusted_for_each_question_and_metric(made):
    rows = rows_of(trained(made))
    # With the best centralised: EASE or MF, FedMF, PFedCLR; with a backbone: PFedCLR.
    for key, number in (("central", 3), ("central_hr", 3), ("backbone", 1), ("backbone_hr", 1)):
        tests = [row[f"{key}_p"] for row in rows.values() if f"{key}_p" in row]
        assert len(tests) == number
        assert rows["pfedclr"][f"{key}_holm"] >= number * min(tests) * 0.999
    assert rows["pfedclr"]["backbone_holm"] == rows["pfedclr"]["backbone_p"]


def test_the_best_centralised_method_is_chosen_on_validation(made):
    finals = {("ease", "clean"): 0.9, ("mf", "clean"): 0.2}
    rows = rows_of(trained(made, finals=finals))
    # MF finds more of the test items, and EASE of the validation items.
    assert rows["mf"]["exact_ndcg@10"] > rows["ease"]["exact_ndcg@10"]
    assert rows["pfedclr"]["central_against"] == "ease"


def test_groups_by_activity_hold_the_users_they_should(made):
    # The least active third has one training row: every third user from the first on.
    rows = rows_of(trained(made))
    assert [rows["mf"][f"group_{number}"] for number in (1, 2, 3)] == [1, 1, 0]


def test_runs_of_other_users_are_refused(made):
    project = trained(made)
    run = next(run for run in project.target(LEADERBOARD).runs if run.method.startswith("mf["))
    write_run(project.results, run, project.methods, ranks=[1] * 3, exact=[1] * 3, whole=True)
    with pytest.raises(ResultError, match="other users than"):
        rows_of(project)


def test_a_line_without_a_finished_search_has_a_dash_and_says_why(made):
    project = trained(made)
    build(project.target(LEADERBOARD), project)
    text = (project.results / "tables/leaderboard.md").read_text(encoding="utf-8")
    (line,) = re.findall(
        r"^\| FedMF\+PLGC +\| own tables +\| +– search not finished \|(.*)$", text, re.MULTILINE
    )
    assert not re.search(r"\d", line)
    shown = read_shown(project.results / "tables/leaderboard.json")
    assert shown.chapter is not None
    assert len(shown.chapter.finding) == 3


def test_ranks_are_among_methods_that_have_all_of_them(made):
    finals = {("fedmf", "published"): 0.9, ("pfedclr", "published"): 0.8, ("mf", "published"): 0.1}
    project = trained(made, finals=finals)
    build(project.target(LEADERBOARD), project)
    tables = read_shown(project.results / "tables/leaderboard.json").tables
    (ranks,) = (table for table in tables if table.part == "alpha ranks")
    assert {row["title"]: [row["rank_0"], row["rank_3"]] for row in ranks.rows} == {
        "FedMF": [1, 3],
        "PFedCLR": [2, 1],
        "MF": [3, 2],
    }


def test_a_second_part_has_the_neutral_protocol_where_there_are_runs(made):
    protocols = ["published", "clean", "neutral"]
    project = trained(made, finals={("mf", "neutral"): 0.8}, protocols=protocols)
    build(project.target(LEADERBOARD), project)
    tables = read_shown(project.results / "tables/leaderboard.json").tables
    (neutral,) = (table for table in tables if table.part == "alpha neutral")
    assert neutral.rows[0]["title"] == "MF"
    assert neutral.rows[0]["runs_neutral_hr@10"] == pytest.approx(0.8, rel=0.2)
    # Sampled ranks are alike there: PFedCLR is as good as its backbone, although its exact ranks are better.
    own = next(row for row in neutral.rows if row["title"] == "PFedCLR")
    assert (own["backbone_neutral_difference"], own["backbone_neutral_holm"]) == (0, 1)
    assert rows_of(project)["pfedclr"]["backbone_hr_difference"] > 0
    assert not any("exact" in column.key for column in neutral.columns)


def test_what_was_seen_inside_a_model_is_that_of_the_first_seed(made):
    project = trained(made)
    first, second = (run for run in project.target(LEADERBOARD).runs if run.method.startswith("pfedclr["))
    attacks = {"norm": {"auc": 0.7}, "direction": {"auc": 0.9}, "consecutive": {"auc": None}}
    seen = {"uploads": {"Q": attacks}, "recommended": {"coverage": 0.5, "popularity": 0.1}}
    write_checked_json(project.results / first.folder / AUDIT_FILE, seen)
    write_checked_json(project.results / second.folder / AUDIT_FILE, {"recommended": {"coverage": 1.0}})
    row = rows_of(project)["pfedclr"]
    assert (row["auc"], row["coverage"], row["popularity"]) == (0.9, 0.5, 0.1)


def test_uploads_are_recorded_with_the_first_seed_of_methods_whose_uploads_are_attacked(made):
    audit = {"methods": ["popularity"], "switches": ["pool"], "uploads": ["fedmf", "fedmf[ldp=0.5]"]}
    project = made.project(datasets=["alpha"], seeds=[0, 1], audit=audit)
    lines = {line.method: line.runs.get("clean", ()) for line in leaderboard_lines(project)}
    recorded = {name: [project.job(run).records for run in runs] for name, runs in lines.items()}
    assert recorded["fedmf"] == [("traffic",), ()]
    assert recorded["pfedclr"] == [(), ()]


def test_where_nothing_is_trained_the_page_has_it_once_a_search_found_something(made):
    def audited():
        project = made.project(datasets=["alpha"])
        runs = frozenset(project.target(LEADERBOARD).runs)
        stored = Stored(runs, datasets=frozenset({"alpha"}))
        return replace(project, stored=stored).targets.audit_targets()

    assert LEADERBOARD in audited()
    set_found(made, {})
    assert LEADERBOARD not in audited()


def test_all_its_searches_are_adopted_by_one_name(made, monkeypatch, capsys):
    made.write("config/config.yaml", yaml.safe_dump(configuration(datasets=["alpha"])))
    monkeypatch.chdir(made.folder)
    assert main(["adopt", "tune_clean_alpha", "--mirror", "mirror"]) == 1
    assert "5 of 5 searches are not finished" in capsys.readouterr().err


# The answers in words


def row(dataset, method, kind, value, validation, **more):
    one = {
        "dataset": dataset,
        "method": method,
        "title": method,
        "kind": kind,
        "search": "s",
        "backbone": None,
        "is_of_papers": False,
    }
    numbers = {
        "exact_ndcg@10": value,
        "validation": validation,
        "seeds_shown": 5,
        "megabytes_per_client": 2.0,
    }
    return one | numbers | more


def compared(side, difference, p):
    names = {"difference": difference, "low": difference - 0.01, "high": difference + 0.01, "holm": p}
    return {f"{side}_{name}": value for name, value in names.items()}


def pair(dataset, difference, p):
    more = {"backbone": "fedmf"} | compared("backbone", difference, p) | compared("backbone_hr", 0.03, 0.001)
    return row(dataset, "own", "personalised", 0.1, 0.1, **more)


def test_the_first_answer_counts_comparisons_by_their_adjusted_p():
    rows = [pair("a", 0.02, 0.001), pair("b", -0.04, 0.001), pair("c", 0.08, 0.2)]
    rows.append({"dataset": "d", "method": "own", "kind": "personalised", "backbone": "fedmf", "search": "s"})
    said = answers(rows)[0]
    assert "In 3 comparisons" in said
    assert "By exact NDCG@10 it is better in 1, worse in 1, undecided in 1" in said
    assert "By exact HR@10 it is better in 3, worse in 0, undecided in 0" in said
    assert "neutral" not in said
    rows[0] |= compared("backbone_neutral", -0.2, 0.001)
    assert (
        "Under the neutral protocol, 1 of these have runs: by sampled HR@10 it is better in 0, worse in 1, "
        "undecided in 0." in answers(rows)[0]
    )
    assert (
        "+0.0200 (exact NDCG@10, clean protocol, a, b, c, 5 seeds; p below 0.05 after Holm's correction)"
        in said
    )
    assert "1 of 4 comparisons lack finished searches" in said


def test_a_dataset_that_is_not_counted_is_shown_and_left_out_of_answers_and_mean_ranks(made):
    rows = [pair("a", 0.02, 0.001), pair("b", -0.04, 0.001) | {NOT_COUNTED: "popularity finds most"}]
    assert "In 1 comparisons" in answers(rows)[0]
    assert not_counted_notes(rows) == [
        "b is shown, but does not count in these answers and in mean ranks: popularity finds most."
    ]
    project = trained(made)
    target = project.target(LEADERBOARD)
    target.content[NOT_COUNTED]["alpha"] = "its users are days"
    records = {run.folder: RunRecord(project.results / run.folder) for run in target.runs}
    found = leaderboard_rows(target.content, records, project.methods, project.results / "data")
    over_all, *_ = leaderboard_tables(found, [])
    assert "The mean rank is over the 0 of 0 counted datasets" in over_all.caption
    assert [line["rank"] for line in over_all.rows] == [None] * len(over_all.rows)
    assert any(line["alpha"] for line in over_all.rows)


def test_the_second_answer_is_of_the_federated_method_that_is_best_on_validation():
    rows = [
        row("a", "best on test", "federated", 0.9, 0.1, **compared("central", 0.5, 0.001)),
        row("a", "best on validation", "federated", 0.2, 0.3, **compared("central", -0.2, 0.001)),
        row("a", "mf", "centralised", 0.4, 0.4),
        {"dataset": "b", "method": "mf", "kind": "centralised", "search": "s", "backbone": None},
    ]
    rows[0]["is_of_papers"] = True
    said = answers(rows)[1]
    assert "better on 0, worse on 1, undecided on 0" in said
    assert "a: best on validation -0.2000 [-0.2100, -0.1900]" in said
    assert "Among the papers' methods: a: best on test +0.5000 [+0.4900, +0.5100]." in said
    assert "1 of 2 datasets lack finished searches" in said


@pytest.mark.parametrize(("central", "named"), [(0.20004, True), (0.2001, False)])
def test_the_second_answer_names_a_centralised_method_with_the_same_number(central, named):
    """A federated method may compute a centralised one, and then gains nothing by being federated."""
    rows = [
        row("a", "fed", "federated", 0.2, 0.3, **compared("central", 0.1, 0.001)),
        row("a", "ease", "centralised", central, 0.2),
        row("a", "mf", "centralised", 0.1, 0.4),
    ]
    said = "On a, fed and the centralised ease have the same number to four digits: this does not count."
    answer = answers(rows)[1]
    assert (said in answer) == named
    assert ("better on 0, worse on 0, undecided on 0 of 0" in answer) == named


def test_the_third_answer_has_bytes_and_exposure_as_far_as_they_are_known():
    one = row("a", "fed", "federated", 0.2, 0.3, **compared("central", -0.2, 0.001))
    other = one | {"dataset": "b", "megabytes_per_client": 3.5}
    assert "move 2.0 to 3.5 MB per client" in answers([one, other])[2]
    assert "No uploads were attacked, so exposure is unknown." in answers([one, other])[2]
    attacked = [one | {"auc": 0.912}, other, row("b", "worse", "federated", 0.1, 0.2) | {"auc": 0.5}]
    assert (
        "the uploads of 2 federated methods find training items with an AUC of 0.50 to 0.91. Uploads of fed were "
        "not attacked." in answers(attacked)[2]
    )


def test_without_runs_every_answer_says_that_there_is_none():
    rows = [{"dataset": "a", "method": "own", "kind": "personalised", "backbone": "fedmf", "search": "s"}]
    assert all("No answer yet" in said and not re.search(r"\d\.\d", said) for said in answers(rows))
