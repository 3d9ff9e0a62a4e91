"""Pictures of small made models: what they plot, say and write, and that it is what the models hold."""

import csv
import importlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrec.config.document import Document
from fedrec.config.method_entries import SourcedValue
from fedrec.config.methods import Methods, resolve
from fedrec.config.papers import Artefact, Line, load_papers
from fedrec.config.schema import check
from fedrec.data.split import TEST, TRAIN, VALIDATION, write_split
from fedrec.errors import ConfigurationError, ResultError
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.plan.runs import RunId
from fedrec.plan.selection import records_of, runs_of
from fedrec.plan.train_request import TrainRequest
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures import abundance, heatmaps, inference, maps, trajectories
from fedrec.reporting.figures.chart import write_figure
from fedrec.reporting.figures.projection import projected
from fedrec.reporting.figures.style import theme
from fedrec.runs.model_inspection import ModelInspection, lenders, merging_weights, scored_with
from fedrec.runs.record import RunRecord
from fedrec.runs.train import train
from tests.conftest import ROOT
from tests.federations import METHODS, planted_blocks
from tests.made_project import build_artefact
from tests.once import once_for_all_workers

INSIDE = ("trajectories", "maps", "heatmaps", "abundance", "inference")
USERS = [2, 5]
KEEPS = {
    "fedmf": ("vectors=2,5", "uploads=2,5", "abundance"),
    "pfedclr": ("vectors=2,5", "uploads=2,5"),
    "fedem[aggregated=1]": ("weights=2,5,7",),
}
RUNS = [*KEEPS, "pfedrec", "fedrap", "fedrap[penalty=l2]", "fedmf+plgc", "fedmf+em", "mf"]


def train_all(root):
    """A run of four rounds of each method."""
    write_split(planted_blocks(users=12, items=60), root / "data/made/clean")
    for method in RUNS:
        values = {"rounds": 4, "d": 4, "local_epochs": 2}
        if method in ("pfedrec", "fedmf+plgc"):
            values |= {"item_scale": "one", "item_factor": 1.0}
        request = TrainRequest(
            data=root / "data/made", method=method, paper="pfedclr", protocol="clean", seed=0,
            out=root / run_id(method).folder, device="cpu", record=KEEPS.get(method, ()),
        )  # fmt: skip
        train(request, with_defaults(values))


def with_defaults(values):
    """The methods with other defaults, which no name says."""
    return Methods(
        {
            name: replace(
                entry,
                findings={},
                composed={},
                settings=entry.settings
                | {
                    key: replace(entry.settings[key], default=SourcedValue(value, "ours"), papers={})
                    for key, value in values.items()
                    if key in entry.settings
                },
            )
            for name, entry in METHODS.items()
        }
    )


def run_id(method):
    return RunId("pfedclr", "made", "clean", method, 0)


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    return once_for_all_workers(tmp_path_factory, "inspected", train_all)


@pytest.fixture(scope="session")
def results(root):
    """A finished run of each method, by name."""
    return {method: RunRecord(root / run_id(method).folder) for method in RUNS}


@pytest.fixture
def plain(monkeypatch):
    """A projection that takes no time and can be checked: the first two dimensions."""
    for module in (trajectories, maps):
        monkeypatch.setattr(module, "projected", lambda points: np.asarray(points, dtype=float)[:, :2])


def made(layout, lines, metrics=(), **options) -> Artefact:
    lines = [Line(**({"run": one} if isinstance(one, str) else one)) for one in lines]
    options = {"protocols": ["clean"]} | options
    return Artefact("pfedclr", "fig0", "Made", layout, ("made",), metrics, tuple(lines), options=options)


def found_for(artefact, results, *more):
    return {(place, "made", "clean"): [results[line.run], *more] for place, line in enumerate(artefact.lines)}


def subject(artefact, found):
    return ArtefactRuns(artefact, found, METHODS, Path("nowhere"), {}, {})


def texts(figure):
    return [
        one.get_text() for axes in figure.axes for one in (axes.title, axes.xaxis.label, axes.yaxis.label)
    ]


@pytest.mark.usefixtures("plain")
def test_trajectories_follow_vectors_from_round_to_round(results):
    artefact = made("trajectories", [{"run": "fedmf", "label": "plain"}, "pfedclr"], ("hr@10",), of=USERS)
    figure, rows, said = trajectories.draw(subject(artefact, found_for(artefact, results)))
    assert len(rows) == 2 * 2 * 4
    kept = ModelInspection(results["pfedclr"]).recorded("vectors", "p", 5)[:, 0]
    shown = [(row["x"], row["y"]) for row in rows if row["line"] == "PFedCLR" and row["user"] == 5]
    assert np.allclose(shown, kept[:, :2])
    first, second, third, fourth, bar = figure.axes
    assert first.get_title() == f"plain\nHR@10 {results['fedmf'].metric('hr@10'):.3f}"
    assert second.get_title().startswith("PFedCLR\nHR@10")
    assert (first.get_ylabel(), third.get_ylabel()) == ("user 2\nclean", "user 5\nclean")
    assert bar.get_ylabel() == "round"
    (path,) = fourth.collections
    assert np.allclose([segment[0] for segment in path.get_segments()], shown[:-1])
    # One colour per step, and the ends are marked.
    assert len(np.unique(path.get_colors(), axis=0)) == 3
    ends = [line.get_xydata()[0].tolist() for line in fourth.lines if line.get_marker() == "o"]
    assert np.allclose(ends, [shown[0], shown[-1]])
    assert "the vector p of a user" in said


@pytest.mark.usefixtures("plain")
def test_trajectories_say_how_methods_do_under_each_protocol(results):
    artefact = made("trajectories", ["fedmf"], ("hr@10",), of=USERS, protocols=["published", "clean"])
    found = found_for(artefact, results)
    published = (0, "made", "published-pfedclr")
    # As if a run of another method were that of the same one under the other protocol.
    figure, _, _ = trajectories.draw(subject(artefact, {**found, published: [results["pfedclr"]]}))
    titles = [panel.get_title() for panel in figure.axes[:4]]
    said = {method: f"HR@10 {results[method].metric('hr@10'):.3f}" for method in ("fedmf", "pfedclr")}
    assert titles == [f"FedMF\n{said['pfedclr']}", "", said["fedmf"], ""]


@pytest.mark.usefixtures("plain")
def test_maps_mark_a_users_items(results):
    lines = [
        {"run": "fedmf", "tables": ("upload",)},
        {"run": "pfedclr", "tables": ("own", "correction", "scored")},
    ]
    artefact = made("maps", lines, of=USERS, vector="p", held_out=True)
    figure, rows, said = maps.draw(subject(artefact, found_for(artefact, results)))
    assert len(rows) == 2 * 4 * (60 + 1)
    split = results["fedmf"].split
    for user in USERS:
        of_user = [row for row in rows if row["user"] == user and row["table"] == "upload"]
        marked = {row["item"] for row in of_user if row["mark"] == "training"}
        assert marked == set(split.item[(split.user == user) & (split.part == TRAIN)])
        marked = {row["item"] for row in of_user if row["mark"] == "held out"}
        assert marked == set(split.item[(split.user == user) & np.isin(split.part, (VALIDATION, TEST))])
        assert [row["item"] for row in of_user if row["mark"] == "user"] == [""]
    assert [axes.get_title() for axes in figure.axes[:4]] == [
        "FedMF\nuploaded table", "PFedCLR\nown table", "PFedCLR\ncorrection", "PFedCLR\ncombined table",
    ]  # fmt: skip
    (legend,) = figure.legends
    assert [one.get_text() for one in legend.get_texts()] == [
        "other items", "training items", "validation and test", "the user",
    ]  # fmt: skip
    training = int(((split.user == 2) & (split.part == TRAIN)).sum())
    drawn = [len(one.get_offsets()) for one in figure.axes[0].collections]
    assert drawn == [60 - training - 2, training, 2, 1]
    assert "held-out items; the user's vector p is projected with them." in said


@pytest.mark.usefixtures("plain")
def test_a_spectrum_stands_beside_maps(results):
    artefact = made("maps", ["fedmf+plgc"], of=[5], tables=["shared", "own", "scored"], spectrum=True)
    figure, rows, said = maps.draw(subject(artefact, found_for(artefact, results)))
    assert len(figure.axes) == 4
    left = figure.axes[0]
    assert left.get_ylabel() == "log singular value"
    assert [one.get_text() for one in left.get_legend().get_texts()] == [
        "server's table", "own table", "combined table",
    ]  # fmt: skip
    table = ModelInspection(results["fedmf+plgc"]).table("own", 5)
    expected = torch.linalg.svdvals(table.double()).log()
    shown = [row["log_singular_value"] for row in rows if row["table"] == "own" and "dimension" in row]
    assert np.allclose(shown, expected)
    assert np.allclose(left.lines[1].get_ydata(), expected)
    assert "singular values" in said


def test_tables_are_what_their_names_say(results):
    opened = {name: ModelInspection(result) for name, result in results.items()}
    state = results["pfedclr"].tensors
    q, a, b = (state[f"kept/{name}"][5] for name in "QAB")
    assert torch.equal(opened["pfedclr"].table("own", 5), q)
    assert torch.allclose(opened["pfedclr"].table("correction", 5), a @ b)
    assert torch.allclose(opened["pfedclr"].table("scored", 5), q + a @ b)
    state = results["fedrap"].tensors
    assert torch.equal(opened["fedrap"].table("own", 5), state["kept/D"][5])
    assert torch.equal(opened["fedrap"].table("shared", 5), state["shared/C"])
    assert torch.allclose(opened["fedrap"].table("scored", 5), state["shared/C"] + state["kept/D"][5])
    state = results["fedmf+plgc"].tensors
    own, other = state["kept/Q"][5], state["shared/G"]
    share = own.square().sum() / (own.square().sum() + other.square().sum())
    assert torch.allclose(
        opened["fedmf+plgc"].table("scored", 5), share * own + (1 - share) * other, atol=1e-6
    )
    assert torch.equal(opened["mf"].table("shared", 5), results["mf"].tensors["shared/Q"])
    state = results["fedem[aggregated=1]"].tensors
    assert torch.equal(opened["fedem[aggregated=1]"].table("shared", 5), state["kept/G"][5])


def test_what_scores_are_made_of_is_what_users_are_scored_with(results):
    """FedMF's score is a product: with the combined table it must be the score of the whole method."""
    for method in ("fedmf", "pfedclr", "fedmf+plgc", "fedmf+em", "fedem[aggregated=1]"):
        inside = ModelInspection(results[method])
        who, every = inside.run.client_index([5]), torch.arange(60).unsqueeze(0)
        p = inside.run.tensors["kept/p"][5]
        expected = (inside.table("scored", 5) * p).sum(-1)
        assert torch.allclose(inside.run.learner.scores(who, every)[0], expected, atol=1e-5), method


def test_merging_weights_merge(results):
    for method in ("fedmf+em", "fedem[aggregated=1]"):
        inside = ModelInspection(results[method])
        rho = merging_weights(inside, USERS, 30)
        assert rho.shape == (2, 30)
        own, other = inside.table("own", 5)[:30], inside.table("shared", 5)[:30]
        expected = own + rho[1].unsqueeze(1) * (other - own)
        assert torch.allclose(inside.table("scored", 5)[:30], expected, atol=1e-6)


def test_heat_maps_of_aggregation(results):
    artefact = made("heatmaps", ["fedem[aggregated=1]"], show="aggregation", of=[7, 2], rounds=[1, 4, 100])
    figure, rows, _ = heatmaps.draw(subject(artefact, found_for(artefact, results)))
    weights = results["fedem[aggregated=1]"].tensors["extra/weights/G"]
    assert len(rows) == 2 * 4
    found = {(row["round"], row["for_user"], row["of_user"]): row["weight"] for row in rows}
    assert found[4, 7, 2] == pytest.approx(float(weights[3, 2, 0]))
    assert found[1, 2, 2] == pytest.approx(float(weights[0, 0, 0]))
    assert "round 4" in texts(figure)
    assert "round 100" not in texts(figure)
    (image,) = figure.axes[1].images
    assert np.allclose(image.get_array(), [[found[4, i, j] for j in (7, 2)] for i in (7, 2)])
    assert [one.get_text() for one in figure.axes[1].get_yticklabels()] == ["7", "2"]


def test_heat_maps_of_merging(results):
    artefact = made("heatmaps", ["fedem[aggregated=1]"], show="merging", of=USERS, items=30)
    figure, rows, said = heatmaps.draw(subject(artefact, found_for(artefact, results)))
    assert len(rows) == 2 * 30
    rho = merging_weights(ModelInspection(results["fedem[aggregated=1]"]), USERS, 30)
    assert np.allclose(figure.axes[0].images[0].get_array(), rho)
    assert "share of the aggregate" in texts(figure)
    assert "0 keeps the user's own, 1 replaces it" in said


def test_no_line_of_a_grid_lies_on_the_cells_of_a_heat_map(results):
    artefact = made("heatmaps", ["fedem[aggregated=1]"], show="merging", of=USERS, items=5)
    with theme():
        figure, _, _ = heatmaps.draw(subject(artefact, found_for(artefact, results)))
    panel = figure.axes[0]
    assert not any(line.get_visible() for line in (*panel.get_xgridlines(), *panel.get_ygridlines()))


def test_heat_maps_of_tables_tell_how_many_entries_are_large(results):
    lines = [{"run": "fedrap", "label": "L1"}, {"run": "fedrap[penalty=l2]", "label": "L2"}]
    artefact = made("heatmaps", lines, show="tables", of=USERS, items=16, tables=["shared", "own"])
    figure, rows, _ = heatmaps.draw(subject(artefact, found_for(artefact, results)))
    assert len(rows) == 2 * 3 * 16 * 4
    shared = results["fedrap[penalty=l2]"].tensors["shared/C"]
    row = next(row for row in rows if row["line"] == "L2" and row["table"] == "shared")
    assert row["share_above_0.1"] == pytest.approx(float((shared.abs() > 0.1).double().mean()))
    assert row["share_above_0.01"] == pytest.approx(float((shared.abs() > 0.01).double().mean()))
    assert any(f"{100 * row['share_above_0.1']:.1f} % > 0.1" in text for text in texts(figure))
    assert [axes.get_title() for axes in figure.axes[:3]] == ["shared", "own, user 2", "own, user 5"]
    first, second = figure.axes[0].images[0], figure.axes[3].images[0]
    assert first.get_clim() == second.get_clim()
    assert np.allclose(second.get_array(), shared[:16])


def test_abundance_before_and_after_training(results):
    artefact = made("abundance", ["fedmf"], show="training")
    figure, rows, _ = abundance.draw(subject(artefact, found_for(artefact, results)))
    kept = results["fedmf"].tensors["extra/abundance/Q/after"]
    after = [row for row in rows if row["series"] == "after local training"]
    assert [row["training_rows"] for row in after] == sorted(row["training_rows"] for row in after)
    shown = np.array([row["abundance"] for row in after])
    assert np.array_equal(shown, kept[[row["user"] for row in after]], equal_nan=True)
    (legend,) = figure.legends
    assert [one.get_text() for one in legend.get_texts()] == ["before local training", "after local training"]


def test_abundance_of_tables(results):
    artefact = made("abundance", ["fedmf+plgc"], show="tables", tables=["shared", "own", "scored"])
    _, rows, _ = abundance.draw(subject(artefact, found_for(artefact, results)))
    inside = ModelInspection(results["fedmf+plgc"])
    found = {(row["series"], row["user"]): row["abundance"] for row in rows}
    assert len(found) == 3 * 12
    for name, series in (("shared", "server's table"), ("own", "own table"), ("scored", "combined table")):
        expected = float(information_abundance(inside.table(name, 5)))
        assert found[series, 5] == pytest.approx(expected)


def test_inference_scores_users_with_other_tables(results):
    inside = ModelInspection(results["pfedrec"])
    stored = results["pfedrec"].summary["metrics"]["last"]["test"]
    assert scored_with(inside, "own") == stored
    federation, kept = inside.federation, inside.federation.state.client_tensors["Q"]
    everyone = torch.arange(12)
    tables = {
        "global": federation.state.shared["Q"].expand(12, -1, -1),
        "another user's": kept.whole(lenders(12, 0)),
    }
    for way, table in tables.items():
        found = scored_with(inside, way)
        assert federation.state.client_tensors["Q"] is kept
        before = kept.whole(everyone).clone()
        kept.put(everyone, table)
        assert scored_with(inside, "own") == found
        kept.put(everyone, before)
    assert scored_with(inside, "own") == stored


@pytest.mark.parametrize("count", [2, 3, 12, 101])
def test_nobody_lends_to_itself_or_to_two(count):
    found = lenders(count, 0)
    assert sorted(found.tolist()) == list(range(count))
    assert (found != torch.arange(count)).all()
    assert count < 12 or not torch.equal(found, lenders(count, 1))


def test_inference_is_drawn_as_bars_with_their_spread(results):
    artefact = made("inference", ["pfedrec"], ("hr@10", "ndcg@10"))
    other = RunRecord(results["pfedrec"].folder)
    other.__dict__["summary"] = results["pfedrec"].summary | {"seed": 1}
    found = found_for(artefact, results, other)
    figure, rows, said = inference.draw(subject(artefact, found))
    assert len(rows) == 2 * 3
    own = next(row for row in rows if row["table"] == "own" and row["metric"] == "ndcg@10")
    assert own["mean"] == pytest.approx(results["pfedrec"].summary["metrics"]["last"]["test"]["ndcg@10"])
    assert (own["sd"], own["seeds"]) == (0.0, 2)
    left, right = figure.axes
    assert [one.get_text() for one in figure.legends[0].get_texts()] == ["own", "global", "another user's"]
    assert [bar.get_height() for bar in right.patches] == [
        row["mean"] for row in rows if row["metric"] == "ndcg@10"
    ]
    assert (left.get_ylabel(), right.get_ylabel()) == ("HR@10, clean", "NDCG@10, clean")
    assert "seeds 0, 1" in said


def test_a_picture_is_five_files_that_name_where_they_come_from(results, tmp_path):
    artefact = made("maps", ["fedrap"], of=[5], tables=["shared"], note="A note.")
    for stem in ("one", "two"):
        with theme():
            write_figure(tmp_path / stem, *maps.draw(subject(artefact, found_for(artefact, results))))
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{stem}.{ending}" for stem in ("one", "two") for ending in ("csv", "pdf", "png", "svg", "txt")
    ]
    for ending in ("csv", "pdf", "png", "svg", "txt"):
        first, second = (tmp_path / f"{stem}.{ending}" for stem in ("one", "two"))
        assert first.read_bytes() == second.read_bytes(), ending
    with (tmp_path / "one.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 60
    assert {"item", "mark", "x", "y"} <= rows[0].keys()
    said = (tmp_path / "one.txt").read_text()
    summary = results["fedrap"].summary
    for part in (
        "Made.",
        "A note.",
        "Protocols clean",
        "seeds 0",
        summary["split"][:8],
        summary["code"][:8],
        "last round (4)",
    ):
        assert part in said


def test_a_projection_keeps_equal_points_equal():
    rng = np.random.default_rng(0)
    points = np.concatenate((rng.normal(size=(20, 5)), rng.normal(size=(20, 5)) + 30))
    points = np.concatenate((points, points[:3]))
    flat = projected(points)
    assert np.array_equal(flat[:3], flat[-3:])
    assert flat.min() == 0
    assert flat.max() == 1
    middle = (flat[:20].mean(0), flat[20:40].mean(0))
    apart = np.linalg.norm(middle[0] - middle[1])
    assert np.linalg.norm(flat[:20] - middle[0], axis=1).max() < apart
    assert np.array_equal(flat, projected(points))
    assert projected(np.zeros((5, 3))).shape == (5, 2)


@pytest.mark.parametrize(
    ("artefact", "said"),
    [
        (
            made("trajectories", ["fedrap"], of=[2]),
            "vectors of user 2 were not recorded. Train the run again with --record vectors=2",
        ),
        (made("maps", ["fedrap"], of=[2], tables=["upload"]), "--record uploads=2"),
        (
            made("maps", ["fedmf"], of=[2], tables=["own"]),
            "users of this method have no item table of their own; show their `upload`.",
        ),
        (made("maps", ["fedrap"], of=[99], tables=["own"]), "no user 99"),
        (made("maps", ["mf"], of=[2], tables=["own"]), "a centralised method has only shared tables."),
        (made("heatmaps", ["fedmf"], show="aggregation", of=[2, 5], rounds=[1]), "--record weights=2,5"),
        (made("abundance", ["fedrap"], show="training"), "--record abundance"),
        (made("inference", ["mf"], ("hr@10",)), "a centralised method has no clients to inspect."),
    ],
)
def test_what_is_not_there_is_said(results, artefact, said):
    module = importlib.import_module(f"fedrec.reporting.figures.{artefact.layout}")
    with pytest.raises(ResultError, match=said):
        module.draw(subject(artefact, found_for(artefact, results)))


@pytest.mark.parametrize("layout", INSIDE)
def test_without_a_run_there_is_nothing_to_look_into(tmp_path, layout):
    artefact = replace(made(layout, ["fedmf"]), datasets=("ml-100k",))
    with pytest.raises(ResultError, match="pfedclr_fig0: has no runs to show"):
        build_artefact(tmp_path, artefact, **{"ml-100k": "no file"})


def test_another_split_than_the_runs_is_refused(results):
    changed = RunRecord(results["fedmf"].folder)
    changed.__dict__["summary"] = results["fedmf"].summary | {"split": "0" * 64}
    with pytest.raises(ResultError, match="another split"):
        _ = changed.split


PAPERS = load_papers(ROOT / "config/papers")
SHOWN = [one for paper in PAPERS.values() for one in paper.artefacts.values() if one.layout in INSIDE]


@pytest.mark.parametrize("artefact", SHOWN, ids=lambda one: one.target)
def test_every_run_of_a_picture_resolves_and_keeps_what_it_shows(artefact):
    keeps = records_of(PAPERS, METHODS, (0,))
    for (place, _, _), (run,) in runs_of(artefact, METHODS, (0,), artefact.datasets).items():
        settings, _, _ = resolve(METHODS, run.method, run.paper, run.dataset)
        tables = artefact.lines[place].tables or artefact.options.get("tables", ())
        users = set(artefact.options.get("of", ()))
        needed = {"trajectories": "vectors", "maps": "uploads" if "upload" in tables else None}.get(
            artefact.layout
        )
        if artefact.options.get("show") == "aggregation":
            needed = "weights"
            assert max(artefact.options["rounds"]) <= settings["rounds"]
        if needed is not None:
            (kept,) = (text for text in keeps[run] if text.startswith(f"{needed}="))
            assert users <= set(map(int, kept.partition("=")[2].split(",")))
        if artefact.options.get("show") == "training":
            assert "abundance" in keeps[run]


@pytest.mark.parametrize("paper", PAPERS.values(), ids=lambda one: one.name)
def test_every_run_of_every_table_and_figure_resolves(paper):
    for artefact in paper.artefacts.values():
        for (place, dataset, _), (run,) in runs_of(artefact, METHODS, (0,), artefact.datasets).items():
            wanted = resolve(METHODS, artefact.lines[place].run, artefact.paper, dataset)[0]
            assert resolve(METHODS, run.method, run.paper, run.dataset)[0] == wanted, artefact.target


def test_aggregation_from_a_later_round_on_is_what_figure_2_compares():
    shown = PAPERS["pfedclr"].artefacts["fig2"]
    settings = [resolve(METHODS, line.run, "pfedclr", "filmtrust")[0] for line in shown.lines]
    assert [one["aggregate_from"] for one in settings] == [1, 1, 20, 40, 60]
    assert {one["rounds"] for one in settings} == {140}
    assert {one["participation"] for one in settings} == {0.6}
    assert PAPERS["pfedclr"].artefacts["fig9"].lines == shown.lines


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"record": {"vector": [1]}}, "unknown key 'vector'. Did you mean 'vectors'?"),
        ({"record": {"abundance": [1]}}, "record.abundance: True was expected"),
        ({"of": []}, "of"),
        ({"tables": ["mine"]}, "Write one of: own, shared, scored, upload, correction"),
        ({"show": "all"}, "'all' (text) is not allowed"),
    ],
)
def test_a_mistake_in_a_picture_is_named(change, said):
    figure = {"title": "Made", "layout": "maps", "of": [1], "tables": ["own"], "record": {"uploads": [1]}}
    check(Document("made", {"title": "Made", "artefacts": {"fig1": figure}}), "paper")
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        check(Document("made", {"title": "Made", "artefacts": {"fig1": figure | change}}), "paper")


def test_every_picture_of_the_papers_is_declared():
    assert {one.target for one in SHOWN} == {
        "pfedclr_fig5", "pfedclr_fig6", "pfedclr_fig8", "pfedclr_fig9", "pfedclr_fig11", "pfedclr_fig12",
        "pfedclr_fig14", "pfedrec_fig2", "pfedrec_fig3", "fedem_fig5", "fedem_fig8", "fedem_fig9", "plgc_fig3",
        "plgc_fig5", "plgc_fig6", "fedrap_fig7", "fedrap_fig8",
    }  # fmt: skip
