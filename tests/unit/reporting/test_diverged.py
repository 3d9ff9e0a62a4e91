"""Runs that diverged: their numbers are marked wherever they are shown, and take no part in who is best."""

import csv
import importlib

import pytest

from fedrec.audit.differences import difference_rows
from fedrec.audit.model_measurements import measure_model
from fedrec.audit.protocols import step_rows
from fedrec.config.catalogue import load_catalogue
from fedrec.config.papers import Artefact, Line, load_papers
from fedrec.errors import ResultError
from fedrec.files.checked_json import write_checked_json
from fedrec.plan.layouts import load_layouts
from fedrec.plan.protocol_steps import protocol_steps, runs_of_step, steps
from fedrec.plan.runs import RunId
from fedrec.reporting import build as building
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.diverged import diverged_notes
from fedrec.reporting.figures import ranks as ranks_figure
from fedrec.reporting.figures.slope import method_scores_figure
from fedrec.reporting.figures.style import theme
from fedrec.reporting.method_scores import method_scores, read_method_scores, rows_of
from fedrec.reporting.page.cells import RunLinks, page_table
from fedrec.reporting.page.sections.runs import costs_table, runs_table
from fedrec.reporting.tables.audit.protocols import step_tables
from fedrec.reporting.tables.audit.significance import significance_tables
from fedrec.reporting.tables.comparison import comparison
from fedrec.reporting.tables.table import ReportColumn, ReportTable, csv_text
from fedrec.runs.results import results_frame
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_project import build_artefact, build_target
from tests.made_runs import made, write_rows, write_run

PAPERS = load_papers(ROOT / "config/papers")
LAYOUTS = load_layouts()
CATALOGUE = load_catalogue(ROOT / "config/datasets.yaml")
SHOWN = "The number shown is from an earlier round, the one that the protocol reports."


def run(results, method, protocol="clean", seed=0, **more):
    found = {"whole": True, **more}
    return write_run(results, RunId("pfedclr", "ml-100k", protocol, method, seed), METHODS, **found)


def of_paper(artefact, *datasets):
    return Artefact(**(vars(artefact) | {"datasets": datasets}))


def cells(text, name):
    """The cells of the row of the first markdown table that begins with a name."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {name} "))
    return [cell.strip() for cell in line.split("|")[1:-1]]


def written(results, artefact, form):
    return (results / f"tables/{artefact.target}.{form}").read_text(encoding="utf-8")


def test_a_run_has_the_number_of_its_reported_round_if_that_came_before(tmp_path):
    late, first = run(tmp_path, "fedmf", diverged=4), run(tmp_path, "fedrap", diverged=1)
    sound = run(tmp_path, "pfedrec")

    assert (late.diverged, first.diverged, sound.diverged) == (4, 1, None)
    assert [one.has_numbers() for one in (late, first, sound)] == [True, False, True]
    assert not late.has_numbers("last")
    assert sound.has_numbers("last")
    assert results_frame([late, sound])["diverged"].unique().sort().to_list() == [None, 4]


def test_nobody_looks_inside_the_model_of_a_run_that_diverged(tmp_path):
    record = run(tmp_path, "fedmf", diverged=4)

    with pytest.raises(ResultError, match="its training diverged in round 4, so it has no model to inspect"):
        _ = record.learner
    assert measure_model(record) == {}


def test_a_table_of_metrics_marks_them_and_says_when(tmp_path):
    one = of_paper(PAPERS["pfedclr"].artefacts["table2"], "ml-100k")
    runs = made(tmp_path, one, METHODS, ["ml-100k"])
    best, other = (runs[index, "ml-100k", "clean"][0].id for index in (3, 1))
    write_run(tmp_path, best, METHODS, final=0.9, diverged=7)
    write_run(tmp_path, other, METHODS, diverged=1)
    build_artefact(tmp_path, one)
    text = written(tmp_path, one, "md")
    rows = list(csv.DictReader(written(tmp_path, one, "csv").splitlines()))
    by_line = {row["line"]: row for row in rows if (row["protocol"], row["metric"]) == ("clean", "hr@10")}

    label, without = one.lines[3].label, one.lines[1].label
    number = f"{0.9 * (1 - 0.8**6):.4f}†"
    assert cells(text, label).count(number) == 1, "marked, and neither bold nor underlined"
    assert "–†" in cells(text, without)
    assert f"- † Diverged: {without}, clean, in round 1; {label}, clean, in round 7. {SHOWN}" in text
    assert (by_line[label]["diverged"], by_line[without]["diverged"]) == ("0:7", "0:1")
    assert by_line[without]["value"] == ""
    assert "$\\dagger$" in written(tmp_path, one, "tex")
    assert "†" not in written(tmp_path, one, "tex")
    best_left = [row for row in rows if row["metric"] == "hr@10" and row["protocol"] == "clean"
                 and row["value"] and not row["diverged"]]  # fmt: skip
    highest = max(best_left, key=lambda row: float(row["value"]))
    assert f"**{float(highest['value']):.4f}**" in text


def test_the_difference_from_print_is_marked_like_the_number(tmp_path):
    one = of_paper(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    runs = made(tmp_path, one, METHODS, ["ml-100k"])
    run_ = runs[0, "ml-100k", "published-pfedclr"][0].id
    write_run(tmp_path, run_, METHODS, diverged=5)
    build_artefact(tmp_path, one)

    found = cells(written(tmp_path, one, "md"), one.lines[0].label)
    assert sum(cell.endswith("†") for cell in found) == 4, "HR, NDCG, and what each differs by"


def test_nothing_changes_where_no_run_diverged(tmp_path):
    one = of_paper(PAPERS["pfedclr"].artefacts["table2"], "ml-100k")
    made(tmp_path, one, METHODS, ["ml-100k"])
    build_artefact(tmp_path, one)

    for form in ("md", "tex", "csv", "json"):
        assert "†" not in written(tmp_path, one, form)
        assert "iverged" not in written(tmp_path, one, form)


def test_a_gain_over_what_diverged_is_marked_and_one_without_its_number_is_none(tmp_path):
    lines = (
        Line(label="a", run="fedmf"), Line(label="b", run="pfedrec"), Line(label="c", run="fedncf"),
        Line(label="g", gain=("a", "b")), Line(label="h", gain=("c", "b")), Line(label="m", mean=("g", "h")),
    )  # fmt: skip
    one = Artefact("pfedclr", "table1", "Gains", "metrics", ("ml-100k",), ("hr@10",), lines, None, {})
    runs = made(tmp_path, one, METHODS, ["ml-100k"])
    write_run(tmp_path, runs[0, "ml-100k", "clean"][0].id, METHODS, final=0.3, diverged=3)
    write_run(tmp_path, runs[2, "ml-100k", "clean"][0].id, METHODS, diverged=1)
    build_artefact(tmp_path, one)
    rows = {
        row["line"]: row
        for row in csv.DictReader(written(tmp_path, one, "csv").splitlines())
        if row["protocol"] == "clean"
    }

    assert (bool(rows["g"]["value"]), rows["g"]["diverged"]) == (True, "0:3")
    assert (rows["h"]["value"], rows["h"]["diverged"]) == ("", "0:1")
    assert (rows["m"]["value"], rows["m"]["diverged"]) == ("", "0:3 0:1")
    # Gains are made of lines, which the note names.
    assert "† Diverged: a, clean, in round 3; c, clean, in round 1." in written(tmp_path, one, "md")


def test_any_of_the_best_federated_that_diverged_marks_a_gain(tmp_path):
    one = of_paper(PAPERS["pfedclr"].artefacts["table1"], "ml-100k")
    runs = made(tmp_path, one, METHODS, ["ml-100k"])
    (worst,) = (index for index, line in enumerate(one.lines) if line.run == "fedmf")
    write_run(tmp_path, runs[worst, "ml-100k", "clean"][0].id, METHODS, diverged=1)
    build_artefact(tmp_path, one)
    (gain,) = (
        row
        for row in csv.DictReader(written(tmp_path, one, "csv").splitlines())
        if row["line"].startswith("gain") and (row["protocol"], row["metric"]) == ("clean", "hr@10")
    )

    assert (float(gain["value"]), gain["diverged"]) == (pytest.approx(100 * (0.48 - 0.46) / 0.46), "0:1")


def test_the_mean_is_over_seeds_that_have_a_number(tmp_path):
    one = of_paper(PAPERS["pfedclr"].artefacts["table3"], "ml-100k")
    runs = made(tmp_path, one, METHODS, ["ml-100k"], seeds=[0, 1, 2])
    for record, round_ in zip(runs[0, "ml-100k", "clean"][1:], (1, 4), strict=True):
        write_run(tmp_path, record.id, METHODS, final=0.5, diverged=round_)
    build_artefact(tmp_path, one, seeds=(0, 1, 2))
    label = one.lines[0].label
    (row,) = (
        row
        for row in csv.DictReader(written(tmp_path, one, "csv").splitlines())
        if (row["line"], row["protocol"], row["metric"]) == (label, "clean", "hr@10")
    )

    numbers = 0.3 * (1 - 0.8**10), 0.5 * (1 - 0.8**3)
    assert float(row["value"]) == pytest.approx(sum(numbers) / 2)
    assert row["diverged"] == "1:1 2:4"
    told = f"† Diverged: {label}, clean, in round 1 with seed 1, in round 4 with seed 2."
    assert told in written(tmp_path, one, "md")


def test_effort_has_no_rounds_of_what_diverged_at_once(tmp_path):
    every = [one for paper in PAPERS.values() for one in paper.artefacts.values()]
    whole = next(one for one in every if one.layout == "effort")
    dataset = whole.datasets[0]
    one = of_paper(whole, dataset)
    runs = made(tmp_path, one, METHODS, [dataset])
    write_checked_json(
        tmp_path / f"data/{dataset}/statistics.json", {"dataset": dataset, "users": 2, "items": 50}
    )
    (first, *_) = runs.values()
    write_run(tmp_path, first[0].id, METHODS, diverged=1)
    build_artefact(tmp_path, one)
    rows = list(csv.DictReader(written(tmp_path, one, "csv").splitlines()))

    (row,) = (row for row in rows if row.get("diverged"))
    assert (row["epochs"], row["time_total"]) == ("", "")
    assert row["parameters"]
    assert f"{row['method']}†" in written(tmp_path, one, "md")
    assert not row["method"].endswith("†"), "the csv has names as they are"


@pytest.fixture
def three(tmp_path):
    """On one dataset, methods that are sound, one that diverged late and one that did so at once."""
    return [
        run(tmp_path, "pfedrec", final=0.3),
        run(tmp_path, "popularity", final=0.4),
        run(tmp_path, "popularity", "published-pfedclr", final=0.4),
        run(tmp_path, "fedmf", final=0.7, diverged=7, ranks=(1, 1)),
        run(tmp_path, "fedmf", "published-pfedclr", final=0.5),
        run(tmp_path, "fedrap", diverged=1, ranks=(99, 99)),
        run(tmp_path, "fedrap", "published-pfedclr", final=0.9),
    ]


def test_a_comparison_marks_them_and_keeps_their_rows(three):
    rows, (table, *_) = comparison(three, METHODS)
    text = table.markdown()

    assert any(cell.endswith("† [1.00, 1.00]") for cell in cells(text, "FedMF"))
    assert "–†" in cells(text, "FedRAP")
    assert "** †" not in text
    assert cells(text, "popularity")[5].startswith("**"), "the best of those that did not diverge"
    assert "† Diverged: FedMF, clean, in round 7; FedRAP, clean, in round 1." in text
    assert [row["diverged"] for row in rows if "diverged" in row] == [["0:7"], ["0:1"]]
    assert len(rows) == len(three)


def test_standings_leave_out_what_has_no_number_and_their_csv_remembers_the_rest(three, tmp_path):
    found = method_scores(three, METHODS)
    path = tmp_path / "slope.csv"
    path.write_text(csv_text(rows_of(found)), encoding="utf-8")

    assert {(one.method, one.protocol) for one in found if one.diverged} == {("fedmf", "clean")}
    assert ("fedrap", "clean") not in {(one.method, one.protocol) for one in found}
    assert read_method_scores(path) == found
    assert "diverged" not in csv_text(rows_of(method_scores(three[:3], METHODS)))
    with theme():
        figure = method_scores_figure(found)
    labels = {text.get_text() for text in figure.axes[0].texts}
    assert {"FedMF†", "FedRAP", "popularity"} <= labels


def test_where_every_run_diverged_there_is_nothing_to_compare(tmp_path):
    with pytest.raises(ResultError, match="diverged before there was a number"):
        method_scores([run(tmp_path, "fedmf", diverged=1)], METHODS)


def test_the_caption_of_slopes_names_what_is_not_drawn_either(three, tmp_path):
    build_target(tmp_path, "slope", "ml-100k_slope", [one.id for one in three])
    caption = (tmp_path / "figures/ml-100k_slope.txt").read_text(encoding="utf-8")

    assert "† Diverged: FedMF, clean, in round 7; FedRAP, clean, in round 1." in caption


def test_differences_are_between_numbers_alone(three):
    clean = [one for one in three if one.protocol == "clean"]
    rows = difference_rows(clean, METHODS)
    by_method = {row["method"]: row for row in rows if row["metric"] == "hr@10"}
    (table, *_) = significance_tables(rows)

    assert "value" not in by_method["fedrap"]
    assert "value" in by_method["fedmf"]
    assert cells(table.markdown(), "FedMF")[1] == "1.0000†"
    assert cells(table.markdown(), "FedRAP")[1] == "–†"
    assert table.notes[-1].startswith("† Diverged: FedMF, in round 7; FedRAP, in round 1.")
    alone = difference_rows([one for one in clean if one.id.method == "fedrap"], METHODS)
    assert [row["diverged"] for row in alone] == [["0:1"]] * 3


def test_seeds_that_differ_are_not_paired(tmp_path):
    runs = [run(tmp_path, method, seed=seed) for method in ("popularity", "fedmf") for seed in range(7)]
    both = difference_rows(runs, METHODS)
    runs[0], runs[-1] = (
        run(tmp_path, "popularity", seed=0, diverged=1),
        run(tmp_path, "fedmf", seed=6, diverged=1),
    )
    neither = difference_rows(runs, METHODS)

    assert any("reference_over_seeds" in row for row in both)
    assert not any("reference_over_seeds" in row for row in neither), "six seeds each, but not the same"


def test_steps_between_protocols_mark_them_and_give_no_rank_without_a_number(tmp_path, protocols):
    told = {"dataset": "ml-100k", "paper": "pfedclr", "rounds": 15}
    ladder = protocol_steps(
        METHODS, ("popularity", "fedmf", "pfedclr"), switches=("pool",), distinct_pairs=True, **told
    )
    for step in steps(ladder, protocols):
        for place, runs in enumerate(runs_of_step(ladder, METHODS, step, (0,)).values()):
            for one in runs:
                when = {("clean", 1): 1, ("clean", 2): 2}.get((step.protocol, place))
                write_run(tmp_path, one, METHODS, rounds=3, final=0.2 + 0.1 * place, diverged=when)
    rows = step_rows(tmp_path, [ladder], METHODS, protocols, (0,))
    under_clean = {row["title"]: row for row in rows if row["step"] == "clean"}
    (table, *_) = step_tables(rows)

    assert (under_clean["FedMF"]["hr@10"], under_clean["FedMF"]["rank"]) == (None, None)
    assert sorted(row["rank"] for row in under_clean.values() if row["rank"]) == [1, 2]
    assert "–†" in cells(table.markdown(), "FedMF")
    assert any("†" in cell for cell in cells(table.markdown(), "PFedCLR"))
    assert any(
        "† Diverged: FedMF, clean, in round 1; PFedCLR, clean, in round 2." in note for note in table.notes
    )
    drawn = ranks_figure.rows_drawn(rows)
    assert "FedMF" not in {row["title"] for row in drawn}
    with theme():
        texts = {text.get_text() for ax in ranks_figure.rank_figure(drawn).axes for text in ax.texts}
    assert any("PFedCLR†" in text for text in texts)


def drawn(layout, lines, results, diverged, **options):
    """A figure of an artefact whose runs diverged as the index of a line and the protocol say."""
    given = tuple(line if isinstance(line, Line) else Line(run=line) for line in lines)
    one = Artefact("fedrap", "fig1", "A figure", layout, ("ml-100k",), ("hr@10",), given, None, options)
    for protocol in ("published-fedrap", "clean"):
        write_rows(results / "data", "ml-100k", protocol, [1, 2, 3, 4, 5])
    runs = made(results, one, METHODS, ["ml-100k"], seeds=options.pop("seeds", (0,)), ranks=[1] * 5)
    for (index, protocol, seed), round_ in diverged.items():
        group = runs[index, "ml-100k", protocol]
        group[seed] = write_run(results, group[seed].id, METHODS, diverged=round_, ranks=[1] * 5)
    subject = ArtefactRuns(one, runs, METHODS, results, CATALOGUE, {})
    with theme():
        return importlib.import_module(f"fedrec.reporting.figures.{layout}").draw(subject)


def test_a_curve_ends_before_the_round_in_which_it_diverged(tmp_path):
    figure, rows, caption = drawn("convergence", ["fedmf", "fedrap"], tmp_path, {(1, "clean", 0): 4})
    ends = {(row["label"], row["protocol"]): row["x"] for row in rows}

    assert ends == {
        ("FedMF", "published-fedrap"): 10, ("FedMF", "clean"): 10,
        ("FedRAP†", "published-fedrap"): 10, ("FedRAP†", "clean"): 3,
    }  # fmt: skip
    assert "† Diverged: FedRAP, ml-100k, clean, in round 4." in caption
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["FedMF", "FedRAP†"]


def test_one_round_before_it_diverged_is_no_level_line(tmp_path):
    figure, _, caption = drawn("convergence", ["fedmf", "fedrap"], tmp_path, {(1, "clean", 0): 2})
    (clean,) = (ax for ax in figure.axes if ax.get_title() == "ml-100k, clean")

    assert {line.get_label(): len(line.get_xdata()) for line in clean.lines} == {"FedMF": 10, "FedRAP†": 1}
    assert "level line" not in caption


def test_seeds_that_diverged_leave_the_others_to_the_curve(tmp_path):
    _, rows, _ = drawn("convergence", ["fedmf"], tmp_path, {(0, "clean", 0): 4}, seeds=(0, 1))
    clean = [row for row in rows if row["protocol"] == "clean"]

    assert [row["x"] for row in clean] == list(range(1, 11))
    assert [row["sd"] is None for row in clean] == [*[False] * 3, *[True] * 7]


@pytest.mark.parametrize("layout", ["bars", "sweep", "groups"])
def test_what_has_no_number_is_not_drawn_but_told(tmp_path, layout):
    swept = [Line(run=f"fedrap[rate={value}]", value=value) for value in (0.1, 0.2, 0.3)]
    lines, options = (
        (["fedmf", "fedrap", "pfedrec"], {}) if layout == "bars" else (swept, {"setting": "rate"})
    )
    _, rows, caption = drawn(layout, lines, tmp_path, {(1, "clean", 0): 1, (2, "clean", 0): 5}, **options)
    told = [row for row in rows if row["protocol"] == "clean" and row.get("diverged")]

    assert [row["diverged"] for row in told] == [["0:5"]] * len(told)
    assert told
    assert "clean, in round 1; " in caption
    assert "clean, in round 5." in caption
    assert all(row["label"].endswith("†") for row in told)


def test_runs_of_the_page_are_marked_and_cost_what_they_trained(tmp_path):
    late, first = run(tmp_path, "fedmf", diverged=4), run(tmp_path, "fedrap", diverged=1)
    shown = runs_table([late, first], RunLinks(tmp_path, tmp_path / "page.html"))
    place = [column.key for column in shown.columns].index("hr@10")

    assert [row[place].aside for row in shown.rows] == ["†", ""]
    assert shown.rows[1][place].text == "–†"
    assert shown.notes[0].startswith(
        "† Diverged: fedmf on ml-100k, clean, settings of pfedclr, seed 0, in round 4; fedrap on"
    )
    costs = costs_table([late, first])
    keys = [column.key for column in costs.columns]
    assert [row[keys.index("rounds")].text for row in costs.rows] == ["3", "0"]


def test_runs_that_differ_by_protocol_or_seed_alone_cost_what_most_of_them_do(tmp_path):
    ran = [run(tmp_path, "fedmf", seed=seed, diverged=diverged) for seed, diverged in enumerate((3, 4, 8))]
    costs = costs_table([*ran, run(tmp_path, "fedrap")])
    keys = [column.key for column in costs.columns]
    rows = [[row[keys.index(key)].text for key in ("method", "runs", "rounds")] for row in costs.rows]

    assert rows[0] == ["fedmf", "3", "3"]
    assert rows[1][:2] == ["fedrap", "1"]


def test_the_page_takes_the_mark_for_no_part_of_the_number_and_ranks_the_others():
    column = ReportColumn("hr", "HR", "{:.2f}", ranked=True)
    rows = [{"name": "a", "hr": 0.9, "hr_mark": "†"}, {"name": "b", "hr": 0.5}, {"name": "c", "hr_mark": "†"}]
    table = page_table("t", ReportTable("", [ReportColumn("name", "name", align="left"), column], rows))

    assert [(row[1].text, row[1].aside, row[1].best) for row in table.rows] == [
        ("0.90", "†", False), ("0.50", "", True), ("–†", "", False),
    ]  # fmt: skip


def test_layouts_that_look_inside_models_are_built_without_what_diverged(tmp_path, monkeypatch):
    records = [run(tmp_path, "fedmf"), run(tmp_path, "fedrap", diverged=4)]
    seen = []
    inside = next(
        layout for layout in LAYOUTS.values() if "states" in layout.needs and layout.form == "table"
    )
    module = importlib.import_module(inside.module)

    def wrote(target, project):
        seen.extend(target.runs)
        (project.results / "tables").mkdir(parents=True, exist_ok=True)

    monkeypatch.setattr(module, "build", wrote)
    remarks = []
    monkeypatch.setattr(building, "add_remark", lambda _target, _project, words: remarks.append(words))
    build_target(tmp_path, inside.name, f"audit_{inside.name}", [one.id for one in records])

    assert seen == [records[0].id]
    assert remarks == [
        "Not shown, because these runs diverged and have no model: pfedclr/ml-100k/clean/fedrap/seed0."
    ]


def test_a_note_is_one_sentence_for_all_and_none_for_nothing():
    rows = [
        {"line": "A", "protocol": "published-fedrap", "seeds": "0", "diverged": ["0:7"], "metric": "hr@10"},
        {"line": "A", "protocol": "published-fedrap", "seeds": "0", "diverged": ["0:7"], "metric": "ndcg@10"},
        {"line": "B", "protocol": "clean", "seeds": "0 1"},
    ]

    assert len(diverged_notes(rows, "line", "protocol")) == 1
    assert diverged_notes(rows, "line", "protocol")[0].startswith(
        f"† Diverged: A, published, in round 7. {SHOWN}"
    )
    assert diverged_notes(rows[2:], "line", "protocol") == []
