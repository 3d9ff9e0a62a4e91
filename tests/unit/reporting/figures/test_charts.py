import csv
import importlib
import io
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from fedrec.config.catalogue import load_catalogue
from fedrec.config.methods import load_methods
from fedrec.config.papers import Artefact, Line, artefacts_of, load_papers
from fedrec.errors import ResultError
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.selection import runs_of
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.exact import exact_notes
from fedrec.reporting.figures import chart
from fedrec.reporting.figures.chart import write_figure
from fedrec.reporting.figures.style import LOOKS, MUTED, theme
from tests.conftest import ROOT
from tests.core import first_to_reach
from tests.made_project import build_target
from tests.made_runs import curve_of, made, write_rows, write_run

METHODS = load_methods(ROOT / "config/methods.yaml")
PAPERS = load_papers(ROOT / "config/papers")
CATALOGUE = load_catalogue(ROOT / "config/datasets.yaml")
BOTH = ("hr@10", "ndcg@10")
CHARTS = ("convergence", "sweep", "bars", "groups", "bubbles", "curricula")


def artefact(layout, lines, datasets=("ml-100k",), paper="fedrap", **options):
    given = tuple(line if isinstance(line, Line) else Line(run=line) for line in lines)
    return Artefact(paper, "fig1", "A figure", layout, tuple(datasets), BOTH, given, None, options)


def swept(method, setting, values, **more):
    lines = [Line(run=f"{method}[{setting}={value}]", value=value) for value in values]
    return artefact("sweep", lines, setting=setting, **more)


def subject(one, found, results=Path("nowhere"), unavailable=()):
    return ArtefactRuns(one, found, METHODS, results, CATALOGUE, dict(unavailable))


def layout(one):
    return importlib.import_module(f"fedrec.reporting.figures.{one.layout}")


def drawn(one, found, results=Path("nowhere")):
    """A figure and its rows; nothing of it has its place yet."""
    with theme():
        figure, rows, _ = layout(one).draw(subject(one, found, results))
    return figure, rows


def laid_out(one, found, results):
    """The same with every text at its place, which takes most of the time."""
    figure, rows = drawn(one, found, results)
    with theme():
        figure.draw_without_rendering()
    return figure, rows


def draw(one, found, stem, results=Path("nowhere"), **more):
    """Write the files of a figure."""
    with theme():
        write_figure(stem, *layout(one).draw(subject(one, found, results, **more)))


@pytest.fixture
def without_pictures(monkeypatch):
    """Of a figure that a test looks at by itself, the other files alone are written."""
    monkeypatch.setattr(chart, "save", lambda *_: None)


def panel(figure, title, metric="HR@10"):
    """The panel of that title, of the two metrics the one of `metric`."""
    alike = [ax for ax in figure.axes if ax.get_title() == title]
    return alike[0] if metric == "HR@10" else alike[1]


def curve(ax, label):
    (line,) = [line for line in ax.lines if line.get_label() == label]
    return line


def legend_of(figure):
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def test_convergence_shows_every_method_round_by_round(tmp_path):
    one = artefact("convergence", ["fedmf", Line(label="ours", run="fedrap")], part="test")
    figure, rows = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"]))
    assert [ax.get_title() for ax in figure.axes] == ["ml-100k, published", "ml-100k, clean"] * 2
    assert legend_of(figure) == ["FedMF", "ours"]
    line = curve(panel(figure, "ml-100k, clean"), "ours")
    assert list(line.get_xdata()) == list(range(1, 11))
    assert list(line.get_ydata()) == pytest.approx(curve_of(0.32, 10))
    assert list(curve(panel(figure, "ml-100k, clean", "NDCG@10"), "ours").get_ydata()) == pytest.approx(
        curve_of(0.16, 10)
    )
    assert (to_hex(line.get_color()), line.get_marker()) == (LOOKS["fedrap"].colour, LOOKS["fedrap"].marker)
    assert [ax.get_ylabel() for ax in figure.axes] == ["HR@10", "", "NDCG@10", ""]
    assert {ax.get_xlabel() for ax in figure.axes} == {"round"}
    assert rows[0] == {
        "dataset": "ml-100k", "protocol": "published-fedrap", "method": "fedmf", "label": "FedMF", "axis": "round",
        "x": 1, "part": "test", "metric": "hr@10", "mean": pytest.approx(0.06), "sd": None, "seeds": "0",
        "runs": ["runs/fedrap/ml-100k/published-fedrap/fedmf/seed0"],
    }  # fmt: skip
    assert len(rows) == 2 * 2 * 2 * 10


def test_protocols_share_the_y_axis_of_a_curve(tmp_path):
    one = artefact("convergence", ["fedmf"])
    figure, _ = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"]))
    published, clean, other, _ = figure.axes
    assert published.get_shared_y_axes().joined(published, clean)
    assert not published.get_shared_y_axes().joined(published, other)


def test_every_curve_is_inside_its_panel(tmp_path):
    one = artefact("convergence", ["fedmf", "fedrap"])
    found = made(tmp_path, one, METHODS, ["ml-100k"], final=0.2)
    # The last that is drawn is the highest, on an axis that the others share.
    last = runs_of(one, METHODS, [0], set(one.datasets) - {"ml-100k"})[1, "ml-100k", "clean"][0]
    write_run(tmp_path, last, METHODS, final=0.9)
    figure, _ = drawn(one, found)
    for ax in figure.axes:
        low, high = ax.get_ylim()
        assert low == 0
        assert high > max(max(line.get_ydata()) for line in ax.lines)


@pytest.mark.usefixtures("without_pictures")
def test_a_method_of_one_round_is_a_level_line(tmp_path):
    one = artefact("convergence", ["popularity", "fedmf"])
    found = made(tmp_path, one, METHODS, ["ml-100k"])
    for (place, _, _), (result,) in found.items():
        if place == 0:
            write_run(tmp_path, result.id, METHODS, final=0.5, rounds=1)
    figure, rows = drawn(one, found)
    line = curve(figure.axes[0], "popularity")
    assert (len(line.get_xdata()), len(set(line.get_ydata()))) == (10, 1)
    assert len([row for row in rows if row["method"] == "popularity"]) == 4
    draw(one, found, tmp_path / "figure")
    assert "A method that trains in one round is a level line." in (tmp_path / "figure.txt").read_text()


def test_validation_curves_are_those_of_validation(tmp_path):
    one = artefact("convergence", ["fedmf"], part="validation")
    figure, _ = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"], final=0.5))
    assert curve(figure.axes[0], "FedMF").get_ydata()[-1] == pytest.approx(0.9 * curve_of(0.5, 10)[-1])


def test_seeds_make_a_band(tmp_path):
    one = artefact("convergence", ["fedmf"])
    alone, _ = drawn(one, made(tmp_path / "a", one, METHODS, ["ml-100k"]))
    assert not alone.axes[0].collections
    figure, rows = drawn(one, made(tmp_path / "b", one, METHODS, ["ml-100k"], (0, 1, 2)))
    (band,) = figure.axes[0].collections
    last = curve_of(1.0, 10)[-1]
    assert (rows[9]["mean"], rows[9]["sd"], rows[9]["seeds"]) == (
        pytest.approx(0.31 * last), pytest.approx(0.01 * last), "0 1 2",
    )  # fmt: skip
    assert band.get_paths()[0].get_extents().y1 == pytest.approx(0.32 * last)


@pytest.mark.usefixtures("without_pictures")
def test_a_missing_dataset_has_no_panel_and_is_named(tmp_path):
    one = artefact("convergence", ["fedmf", "fedrap"], ["ml-100k", "tafeng", "lastfm-2k-b"])
    found = made(tmp_path, one, METHODS, ["ml-100k", "lastfm-2k-b"])
    del (
        found[1, "ml-100k", "clean"],
        found[0, "lastfm-2k-b", "published-fedrap"],
        found[1, "lastfm-2k-b", "published-fedrap"],
    )
    draw(one, found, tmp_path / "figure", unavailable={"tafeng": "no network"})
    figure, _ = drawn(one, found)
    assert {ax.get_title() for ax in figure.axes} == {
        "ml-100k, published", "ml-100k, clean", "lastfm-2k-b, clean",
    }  # fmt: skip
    # Every column has its x axis named below its lowest panel.
    assert [ax.get_title() for ax in figure.axes if ax.get_xlabel()] == [
        "ml-100k, published", "ml-100k, published", "lastfm-2k-b, clean", "lastfm-2k-b, clean",
    ]  # fmt: skip
    text = (tmp_path / "figure.txt").read_text()
    assert text.splitlines()[-1] == (
        "Not shown: FedRAP on ml-100k, clean (no run); tafeng (no network); "
        "lastfm-2k-b, published (not available here)."
    )


def test_a_figure_of_nothing_is_still_five_files(tmp_path):
    one = artefact("convergence", ["fedmf"])
    draw(one, {}, tmp_path / "none")
    assert {path.suffix for path in tmp_path.iterdir()} == {".csv", ".pdf", ".png", ".svg", ".txt"}
    assert "Not shown: ml-100k" in (tmp_path / "none.txt").read_text()


def test_files_are_the_same_twice_and_the_csv_holds_what_is_drawn(tmp_path):
    one = artefact("convergence", ["fedmf", "fedrap[penalty=l2]"], part="test")
    found = made(tmp_path, one, METHODS, ["ml-100k"], (0, 1))
    for name in ("one", "two"):
        draw(one, found, tmp_path / "figures" / name)
    for ending in ("csv", "pdf", "png", "txt"):
        first, second = (tmp_path / "figures" / f"{name}.{ending}" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()
    read = list(csv.DictReader(io.StringIO((tmp_path / "figures/one.csv").read_text())))
    assert {"dataset", "protocol", "method", "label", "x", "metric", "mean", "sd", "seeds"} <= set(read[0])
    assert {row["method"] for row in read} == {"fedmf", "fedrap[penalty=l2]"}
    text = (tmp_path / "figures/one.txt").read_text()
    assert text.startswith("A figure (fedrap, fig1).\nHR@10 and NDCG@10 of the test items after each round")
    assert (
        "Seeds 0, 1, mean of them, band of one standard deviation; protocols clean, published-fedrap; "
        "splits 5p1175p1; code c0dec0de." in text
    )


def test_a_sweep_over_decades_has_a_log_axis_and_marks_the_papers_value(tmp_path):
    one = swept("fedmf+plgc", "gamma", [0.001, 0.005, 0.01, 0.05, 0.1], paper="plgc")
    figure, rows = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"]))
    ax = panel(figure, "ml-100k, clean")
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["$10^{-3}$", "0.01", "0.1"]
    assert ax.get_xlabel() == "gamma"
    ring = next(line for line in ax.lines if line.get_markerfacecolor() == "none")
    assert list(ring.get_xdata()) == [0.01]
    assert legend_of(figure) == ["FedMF+PLGC", "our value, since the paper gives none"]
    own = [row for row in rows if row["own"] == "ours"]
    assert {(row["method"], row["axis"], row["x"]) for row in own} == {("fedmf+plgc", "gamma", 0.01)}
    # PLGC reports the round of the best validation, as clean does.
    assert {row["round"] for row in rows} == {9}


def test_zero_has_a_place_on_a_log_axis(tmp_path):
    one = swept("pfedclr", "beta", [0.1, 0.01, 0.001, 0], paper="pfedclr")
    figure, _ = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"]))
    ax = figure.axes[0]
    assert ax.get_xscale() == "symlog"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0", "$10^{-3}$", "0.01", "0.1"]
    drawn_x = next(line for line in ax.lines if len(line.get_xdata()) == 4).get_xdata()
    assert list(drawn_x) == [0, 0.001, 0.01, 0.1]


def test_lists_are_in_their_order(tmp_path):
    one = PAPERS["fedem"].artefacts["fig6"]
    figure, rows = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"]))
    ax = figure.axes[0]
    names = ["none", "16", "16x8", "32x16x8", "64x32x16x8"]
    assert [text.get_text() for text in ax.get_xticklabels()] == names
    assert {row["x"] for row in rows if row["own"] == "paper"} == {"16x8"}
    assert legend_of(figure) == ["FedEM", "the paper's own value"]


def test_what_differs_by_little_looks_like_it(tmp_path):
    one = swept("fedrap", "d", [16, 32, 64])
    figure, _ = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"], final=0.4))
    for ax in figure.axes:
        low, high = ax.get_ylim()
        assert high - low >= 0.05 - 1e-9
        assert ax.get_xscale() == "linear"


def test_a_sweep_of_validation_shows_the_best_and_its_round(tmp_path):
    one = swept("pfedrec", "clients", [100, 200], part="validation", paper="pfedrec")
    found = made(tmp_path, one, METHODS, ["ml-100k"], final=0.4)
    path = found[0, "ml-100k", "clean"][0].folder / "run.json"
    summary = read_checked_json(path)
    summary["rounds"]["best_validation"] = 4
    summary["metrics"]["best_validation"]["validation"]["hr@10"] = 0.77
    write_checked_json(path, summary)
    figure, rows = drawn(one, found)
    (row,) = [r for r in rows if (r["protocol"], r["x"], r["metric"]) == ("clean", 100, "hr@10")]
    assert (row["mean"], row["round"], row["part"], row["own"]) == (0.77, 4.0, "validation", "no")
    assert [text.get_text() for text in panel(figure, "ml-100k, clean").texts] == ["4", "9"]
    assert legend_of(figure) == ["PFedRec"]


def test_a_sweep_shows_the_extra_space_of_a_client_on_an_axis_of_its_own(tmp_path):
    one = swept("pfedclr", "rank", [2, 1, 12], paper="pfedclr", client_space_over="fedmf")
    for protocol in ("published-pfedclr", "clean"):
        write_rows(tmp_path / "data", "ml-100k", protocol, [5, 6], items=1682)
    figure, rows = drawn(one, made(tmp_path, one, METHODS, ["ml-100k"]), tmp_path)
    extra = [row for row in rows if row["metric"] == "extra_space_client"]
    # The two factors of the correction: rank numbers an item, and rank rows of 16.
    wanted = {rank: 4 * rank * (1682 + 16) / 2**20 for rank in (1, 2, 12)}
    assert [(row["x"], row["protocol"]) for row in extra] == [
        (rank, kind) for rank in (2, 1, 12) for kind in ("published-pfedclr", "clean")
    ]
    assert all(row["mean"] == pytest.approx(wanted[row["x"]]) for row in extra)
    assert {(row["unit"], row["over"]) for row in extra} == {("MB", "FedMF")}
    metrics, spaces = figure.axes[:4], figure.axes[4:]
    assert len(spaces) == 4
    for ax in spaces:
        (line,) = ax.lines
        assert list(line.get_xdata()) == [1, 2, 12]
        assert list(line.get_ydata()) == pytest.approx([wanted[1], wanted[2], wanted[12]])
        assert (line.get_linestyle(), line.get_color()) == ("--", MUTED)
        assert ax.get_ylim()[0] == 0
    assert [ax.get_ylabel() for ax in spaces] == ["", "", "", "extra space, MB"]
    # One method, one curve and one ring: the space is no line of the panels.
    assert [len(ax.lines) for ax in metrics] == [2] * 4
    assert legend_of(figure) == [
        "PFedCLR", "space of a client beyond FedMF (right axis)", "the paper's own value",
    ]  # fmt: skip


@pytest.mark.usefixtures("without_pictures")
def test_the_csv_and_the_caption_hold_the_extra_space(tmp_path):
    one = swept("pfedclr", "rank", [1, 2], paper="pfedclr", client_space_over="fedmf", protocols=["clean"])
    write_rows(tmp_path / "data", "ml-100k", "clean", [5, 6], items=1682)
    found = made(tmp_path, one, METHODS, ["ml-100k"])
    draw(one, found, tmp_path / "figure", results=tmp_path)
    plotted_rows = list(csv.DictReader((tmp_path / "figure.csv").read_text().splitlines()))
    assert [row["x"] for row in plotted_rows if row["metric"] == "extra_space_client"] == ["1", "2"]
    assert (
        "Dashed: space of a client beyond FedMF (right axis), 4 bytes a number"
        in (tmp_path / "figure.txt").read_text()
    )
    with pytest.raises(ResultError, match="no such split"):
        draw(one, found, tmp_path / "figure")


def test_bars_are_methods_by_datasets_in_percent(tmp_path):
    one = artefact("bars", ["ncf", "fedmf", "fedrap"], ["ml-100k", "tafeng", "ml-1m"])
    figure, rows = drawn(one, made(tmp_path, one, METHODS, ["ml-100k", "ml-1m"], (0, 1), rounds=60))
    assert [ax.get_title() for ax in figure.axes] == [
        "HR@10, published protocol", "HR@10, clean protocol", "NDCG@10, published protocol",
        "NDCG@10, clean protocol", "exact HR@10, published protocol", "exact HR@10, clean protocol",
        "exact NDCG@10, published protocol", "exact NDCG@10, clean protocol",
    ]  # fmt: skip
    ax = figure.axes[1]
    assert [text.get_text() for text in figure.axes[6].get_xticklabels()] == ["ml-100k", "ml-1m"]
    assert len(ax.patches) == 6
    # Of two users one is a hit.
    assert {bar.get_height() for bar in figure.axes[5].patches} == {0.5}
    middles = [bar.get_x() + bar.get_width() / 2 for bar in ax.patches]
    assert sorted(round(x) for x in middles) == [0, 0, 0, 1, 1, 1]
    assert ax.patches[0].get_height() == pytest.approx(0.305, abs=1e-4)
    assert figure.axes[0].get_ylabel() == "HR@10, %"
    assert float(figure.axes[0].yaxis.get_major_formatter()(0.4)) == 40
    assert legend_of(figure) == ["NCF", "FedMF", "FedRAP"]
    assert len(rows) == 3 * 2 * 2 * 4


def test_bars_of_exact_metrics_are_of_lines_all_of_whose_runs_have_their_ranks(tmp_path):
    one = artefact("bars", ["ncf", "fedmf"], ["ml-100k"])
    runs = made(tmp_path, one, METHODS, ["ml-100k"], (0, 1))
    write_run(tmp_path, runs[1, "ml-100k", "clean"][0].id, METHODS, has_exact=False)
    _, rows = drawn(one, runs)
    exact = [(row["label"], row["protocol"]) for row in rows if row["metric"] == "exact_hr@10"]
    assert exact == [("NCF", "published-fedrap"), ("NCF", "clean"), ("FedMF", "published-fedrap")]
    assert exact_notes(run for group in runs.values() for run in group) == [
        "1 of 8 runs have no exact metrics: they stored no ranks among all items."
    ]
    none = {
        key: [write_run(tmp_path, run.id, METHODS, has_exact=False) for run in group]
        for key, group in runs.items()
    }
    assert len(drawn(one, none)[0].axes) == 4


@pytest.mark.usefixtures("without_pictures")
def test_curricula_are_the_methods_own(tmp_path):
    one = PAPERS["fedrap"].artefacts["fig4"]
    draw(one, {}, tmp_path / "curricula")
    figure, rows = drawn(one, {})
    ours, code = figure.axes
    assert legend_of(figure) == ["tanh", "fixed", "sin", "square", "frac"]
    assert (ours.get_title(), code.get_title()) == ("as the paper writes them", "as the code writes them")
    assert set(curve(ours, "fixed").get_ydata()) == {0.1}
    assert curve(ours, "square").get_ydata()[[9, 10]].tolist() == [0, 0.1]
    assert curve(ours, "frac").get_ydata()[0] == 0.05
    assert min(curve(ours, "sin").get_ydata()) < -0.09 < 0 <= min(curve(code, "sin").get_ydata())
    assert curve(ours, "tanh").get_xdata()[-1] == 100
    assert len(rows) == 2 * 5 * 100
    assert "Left out" not in (tmp_path / "curricula.txt").read_text()


GROUPED = swept("fedmf+em[merge=static]", "weight", [0, 0.5, 1], paper="fedem")
GROUPED = replace(GROUPED, layout="groups")


@pytest.mark.usefixtures("without_pictures")
def test_groups_are_users_by_their_training_rows(tmp_path):
    # The most active two of ten users are hit, nobody else is.
    found = made(tmp_path, GROUPED, METHODS, ["ml-100k"], ranks=[50] * 8 + [1, 1])
    for protocol in ("published-fedem", "clean"):
        write_rows(tmp_path / "data", "ml-100k", protocol, range(3, 13))
    figure, rows = drawn(GROUPED, found, tmp_path)
    here = [row for row in rows if (row["protocol"], row["x"], row["metric"]) == ("clean", 0.5, "hr@10")]
    assert [(row["group"], row["users"], row["mean"]) for row in here] == [
        (1, 2, 0.0), (2, 2, 0.0), (3, 2, 0.0), (4, 2, 0.0), (5, 2, 1.0),
    ]  # fmt: skip
    assert (here[0]["least_rows"], here[0]["most_rows"], here[4]["most_rows"]) == (3, 4, 12)
    assert legend_of(figure) == [
        "group 1 (fewest training rows)", "group 2", "group 3", "group 4", "group 5 (most)", "best of the group",
    ]  # fmt: skip
    assert figure.axes[0].get_xlabel() == "weight"
    draw(GROUPED, found, tmp_path / "groups", results=tmp_path)
    assert "ml-100k, clean: 3–4, 5–6, 7–8, 9–10, 11–12" in (tmp_path / "groups.txt").read_text()


def test_groups_refuse_another_split(tmp_path):
    found = made(tmp_path, GROUPED, METHODS, ["ml-100k"])
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(ResultError, match="no such split"):
        drawn(GROUPED, found, tmp_path)
    for protocol in ("published-fedem", "clean"):
        write_rows(tmp_path / "data", "ml-100k", protocol, [5, 6])
    path = found[0, "ml-100k", "published-fedem"][0].folder / "run.json"
    summary = read_checked_json(path)
    write_checked_json(path, summary | {"split": summary["split"].replace("5p117", "other", 1)})
    fresh = {key: [replace(one) for one in results] for key, results in found.items()}
    with pytest.raises(ResultError, match="was trained on split other5p1"):
        drawn(GROUPED, fresh, tmp_path)


def test_bubbles_are_space_against_space_with_time_as_area(tmp_path):
    one = replace(
        artefact("bubbles", ["fedmf", "gpfedrec"], paper="pfedclr", protocols=["published"]), metrics=()
    )
    found = {
        (index, dataset, protocol): [
            write_run(tmp_path, run, METHODS, seconds=0.1 * (1 + index)) for run in runs
        ]
        for (index, dataset, protocol), runs in runs_of(
            one, METHODS, [0], set(one.datasets) - {"ml-100k"}
        ).items()
    }
    write_rows(tmp_path / "data", "ml-100k", "published-pfedclr", [3] * 943, items=1682)
    figure, rows = drawn(one, found, tmp_path)
    (ax,) = figure.axes
    assert ax.get_title() == "ml-100k, published"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("space of a client, MB", "space of the server, MB")
    values = {(row["method"], row["metric"]): row["mean"] for row in rows}
    assert values["fedmf", "space_client"] == pytest.approx(0.1027, abs=1e-4)
    assert values["gpfedrec", "space_server"] == pytest.approx(96.9121, abs=1e-4)
    assert values["gpfedrec", "seconds_per_round"] == 0.2
    areas = {one.get_label(): one.get_sizes()[0] for one in ax.collections if one.get_label()[0] != "_"}
    assert areas["GPFedRec"] == 2 * areas["FedMF"]
    assert sorted(text.get_text() for text in ax.texts) == ["FedMF", "GPFedRec"]
    assert ax.get_yscale() == "log"
    assert legend_of(figure) == ["0.02 s per round", "0.06 s per round", "0.2 s per round"]


def test_labels_of_bubbles_at_one_place_do_not_overlap(tmp_path):
    one = PAPERS["pfedclr"].artefacts["fig4"]
    found = made(tmp_path, one, METHODS, ["ml-1m"])
    write_rows(tmp_path / "data", "ml-1m", "published-pfedclr", [3] * 60, items=3706)
    figure, _ = laid_out(one, found, tmp_path)
    (ax,) = figure.axes
    words = [super(type(text), text).get_window_extent() for text in ax.texts]
    assert len(words) == 7
    assert not any(a.overlaps(b) for place, a in enumerate(words) for b in words[:place])
    assert all(ax.bbox.containsx(box.x0) and ax.bbox.containsx(box.x1) for box in words)


def test_compared_runs_are_drawn_from_their_files_alone(tmp_path):
    one = artefact("convergence", ["popularity", "fedmf", "fedmf[d=8]"], paper="pfedclr")
    found = made(tmp_path, one, METHODS, ["ml-100k"], (0, 1))
    runs = [record.id for records in found.values() for record in records]
    build_target(tmp_path, "convergence", "ml-100k_convergence", runs)
    folder = tmp_path / "figures"
    read = list(csv.DictReader(io.StringIO((folder / "ml-100k_convergence.csv").read_text())))
    assert {(row["label"], row["protocol"], row["seeds"]) for row in read} == {
        (label, kind, "0 1")
        for label in ("popularity", "FedMF", "FedMF[d=8]")
        for kind in ("published-pfedclr", "clean")
    }
    text = (folder / "ml-100k_convergence.txt").read_text()
    assert text.startswith("Convergence on ml-100k.\nHR@10 of the test items")
    assert "named are" not in text
    assert {row["metric"] for row in read} == {"hr@10"}
    assert (folder / "ml-100k_convergence.pdf").is_file()


def compared(lines, tmp_path):
    """The figure and caption of runs that are compared."""
    one = replace(artefact("convergence", lines, paper="pfedclr"), metrics=("hr@10",))
    found = made(tmp_path, one, METHODS, ["ml-100k"])
    with theme():
        figure, _, caption = layout(one).draw_compared(subject(one, found, tmp_path))
        figure.canvas.draw()
    return figure, caption


FEW = ["popularity", "fedmf", "fedmf+plgc", "fedmf[d=8]"]


def test_each_of_a_few_compared_curves_has_its_name_at_its_end(tmp_path):
    figure, caption = compared(FEW, tmp_path)
    assert len(figure.axes) == 2
    for ax in figure.axes:
        assert {text.get_text() for text in ax.texts} == {"FedMF", "FedMF[d=8]", "FedMF+PLGC", "popularity"}
        boxes = [super(type(text), text).get_window_extent() for text in ax.texts]
        assert not any(a.overlaps(b) for place, a in enumerate(boxes) for b in boxes[:place])
        assert {line.get_linewidth() for line in ax.lines} == {1.5}
    assert "named are" not in caption


def test_of_many_compared_curves_the_best_of_each_kind_and_references_are_named(tmp_path):
    figure, caption = compared([*FEW, "draw-counter", *(f"fedmf[d={d}]" for d in (3, 4, 5, 6))], tmp_path)
    for ax in figure.axes:
        named = {text.get_text() for text in ax.texts}
        assert {"popularity", METHODS["draw-counter"].title} <= named
        assert len(named) < len(ax.lines) == 9
    assert "labels name the best of each kind, popularity and draw-counter." in caption


CHARTS_OF_PAPERS = {one.target: one for one in artefacts_of(PAPERS, PAPERS) if one.layout in CHARTS}


def options_of(name):
    """The layout of a figure and the options that it sets, which decide how it is drawn."""
    one = CHARTS_OF_PAPERS[name]
    return {(one.layout, option) for option in ("", *one.options)}


def fullest_first(name):
    """Less for a figure of more lines: more names have to fit into it."""
    return -len(CHARTS_OF_PAPERS[name].lines)


@pytest.mark.parametrize("name", first_to_reach(sorted(CHARTS_OF_PAPERS, key=fullest_first), options_of))
def test_every_figure_of_every_paper_is_drawn_without_clipped_or_overlapping_text(tmp_path, name):
    (one,) = artefacts_of(PAPERS, [name])
    # The two longest names of datasets are enough.
    datasets = sorted(one.datasets, key=len)[-2:]
    found = made(tmp_path, one, METHODS, datasets, rounds=20)
    for dataset in datasets:
        for protocol in (f"published-{one.paper}", "clean"):
            write_rows(tmp_path / "data", dataset, protocol, range(3, 13))
    if one.layout == "groups":
        found = made(tmp_path, one, METHODS, datasets, ranks=[1, 20] * 5)
    figure, rows = laid_out(one, found, tmp_path)
    assert rows
    if found:
        assert len(legend_of(figure)) >= 1
    width, height = figure.get_size_inches() * figure.dpi
    renderer = figure.canvas.get_renderer()
    texts = [ax.title for ax in figure.axes if ax.get_title()] + [
        label for ax in figure.axes for label in (ax.xaxis.label, ax.yaxis.label) if label.get_text()
    ]
    texts += [text for legend in figure.legends for text in legend.get_texts()]
    boxes = [text.get_window_extent(renderer) for text in texts]
    for text, box in zip(texts, boxes, strict=True):
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, f"{text.get_text()} is clipped"
    assert not any(box.overlaps(other) for place, box in enumerate(boxes) for other in boxes[:place])
