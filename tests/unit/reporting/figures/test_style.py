from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_rgb

from fedrec.config.methods import load_methods
from fedrec.config.modules import plugin_names
from fedrec.config.names import parse
from fedrec.config.papers import load_papers
from fedrec.reporting.figures.style import (
    GREYS,
    LOOKS,
    PALETTE,
    blank_figure,
    looks,
    ordered_looks,
    save,
    shaded,
    theme,
)
from tests.compositions import compositions
from tests.conftest import ROOT

METHODS = load_methods(ROOT / "config/methods.yaml")

# Machado, Oliveira, Fernandes 2009: what the eye without one kind of cones sees of linear RGB.
SEEN = {
    "everything": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# Linear RGB to Oklab, in which distances are as large as they look; black to white is 100.
CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
OPPONENTS = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def perceived(colour, eye):
    rgb = np.array(to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return 100 * OPPONENTS @ np.cbrt(CONES @ np.clip(SEEN[eye] @ linear, 0, 1))


def distance(one, other, eye):
    return float(np.linalg.norm(perceived(one, eye) - perceived(other, eye)))


def test_distances_are_those_of_the_eye():
    assert distance("white", "black", "everything") == pytest.approx(100, abs=0.01)
    # Red and green are far apart, but not without the cones for green.
    assert distance("#c00000", "#407000", "everything") > 3 * distance("#c00000", "#407000", "no green")


@pytest.mark.parametrize(
    ("eye", "least"), [("everything", 15), ("no red", 10), ("no green", 10), ("no blue", 10)]
)
def test_colours_are_told_apart_by_every_eye(eye, least):
    assert min(distance(*pair, eye) for pair in combinations(PALETTE.values(), 2)) >= least


def test_colours_stand_out_from_paper():
    assert min(distance(colour, "white", "everything") for colour in PALETTE.values()) > 15


def test_no_two_methods_have_the_same_look_and_no_two_plug_ins_the_same_dash():
    assert len({(look.colour, look.marker) for look in LOOKS.values()}) == len(LOOKS)
    assert {look.colour for look in LOOKS.values()} <= {*PALETTE.values(), *GREYS}
    with_plugins = [f"fedmf+{name}" for name in plugin_names()]
    assert len({look.dash for look in looks(["fedmf", *with_plugins]).values()}) == 1 + len(with_plugins)


def figures():
    for paper in load_papers(ROOT / "config/papers").values():
        for artefact in paper.artefacts.values():
            names = {parse(line.run).backbone for line in artefact.lines if line.run}
            # Methods that came later have looks by their names, which cannot be chosen to differ.
            names &= set(LOOKS)
            if artefact.name.startswith("fig") and len(names) > 1:
                yield pytest.param(names, id=artefact.target)


@pytest.mark.parametrize("names", list(figures()))
def test_methods_of_one_figure_have_colours_of_their_own(names):
    for eye in SEEN:
        assert min(distance(LOOKS[a].colour, LOOKS[b].colour, eye) for a, b in combinations(names, 2)) > 9


def test_where_two_methods_share_a_colour_their_markers_or_dashes_differ():
    """All methods together are more than there are colours that everyone can tell apart."""
    seen = [(look.colour, look.marker, str(look.dash)) for look in LOOKS.values()]
    assert len(seen) == len(set(seen))


def test_a_plug_in_keeps_the_colour_and_changes_the_dash():
    for name in compositions(METHODS):
        backbone = parse(name).backbone
        plain, plugged = looks([backbone, name]).values()
        assert plugged.colour == plain.colour
        assert plugged.dash != plain.dash
        assert plugged.hollow
        assert not plain.hollow


def test_changed_settings_stay_in_the_family_and_differ_among_themselves():
    names = ["fedrap", *(f"fedrap[d={size}]" for size in (1, 2, 4, 8)), "pfedrec[d=1]"]
    found = looks(names)
    family = [found[name] for name in names[:5]]
    assert len({look.dash for look in family}) == 5
    assert len({look.marker for look in family[1:]}) == 4
    assert len({look.colour for look in family}) == 5
    assert found["pfedrec[d=1]"].colour == shaded(LOOKS["pfedrec"].colour, -0.45)


def test_a_look_does_not_depend_on_the_company():
    assert looks(["fedem", "fedmf+plgc"])["fedmf+plgc"] == looks(["fedmf", "fedmf+plgc"])["fedmf+plgc"]


def test_a_method_without_a_look_gets_one_by_its_name():
    assert looks(["fedmf", "new"])["new"] == looks(["new"])["new"]
    assert looks(["new"])["new"].colour in PALETTE.values()
    fixed = {(look.colour, look.marker) for look in LOOKS.values()}
    named = looks(f"method-{number}" for number in range(100)).values()
    assert not fixed & {(look.colour, look.marker) for look in named}
    assert len({(look.colour, look.marker) for look in named}) > 50


def test_a_plug_in_without_a_dash_gets_one_by_its_name():
    known = {look.dash for look in looks(["fedmf", *(f"fedmf+{name}" for name in plugin_names())]).values()}
    new, other = looks(["fedmf+new", "fedmf+other"]).values()
    assert new.dash not in known
    assert new.dash != other.dash
    assert looks(["fedmf+new"])["fedmf+new"] == new


def test_shades_go_to_black_and_white():
    assert (shaded("#808080", -1), shaded("#808080", 1), shaded("#123456", 0)) == (
        "#000000", "#ffffff", "#123456",
    )  # fmt: skip


def test_groups_with_an_order_go_from_dark_to_light():
    light = [perceived(look.colour, "everything")[0] for look in ordered_looks(5)]
    assert light == sorted(light)
    assert len({look.marker for look in ordered_looks(5)}) == 5


def test_the_theme_is_left_behind_and_ignores_the_machine():
    with mpl.rc_context({"font.size": 33, "font.sans-serif": ["Arial"]}):
        with theme():
            assert mpl.rcParams["font.size"] == 7
            assert mpl.rcParams["font.sans-serif"] == ["DejaVu Sans"]
        assert mpl.rcParams["font.size"] == 33


def test_the_same_picture_is_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        with theme():
            figure = blank_figure(2, 1)
            figure.subplots().plot([1, 2], **looks(["fedmf"])["fedmf"].line())
            save(figure, tmp_path / f"{name}.v1")
    for ending in ("pdf", "png"):
        first = (tmp_path / f"one.v1.{ending}").read_bytes()
        assert first == (tmp_path / f"two.v1.{ending}").read_bytes()
        assert b"Date" not in first
        assert b"Matplotlib" not in first


def test_numbers_along_an_axis_are_plain_and_the_power_of_ten_they_share_is_a_formula(tmp_path):
    with theme():
        figure = blank_figure(2, 1)
        ax = figure.subplots()
        ax.plot([-0.5, 0.5], [1e7, 3e7])
        ax.set_xticks([-0.5, 0, 0.5])
        save(figure, tmp_path / "numbers")
        labels = [tick.get_text() for tick in (*ax.get_xticklabels(), *ax.get_yticklabels())]
        assert {"\N{MINUS SIGN}0.5", "0.0", "2"} <= set(labels)
        assert ax.yaxis.get_offset_text().get_text() == r"$\times\mathdefault{10^{7}}\mathdefault{}$"


def test_all_files_of_a_figure_have_the_layout_that_was_found_once(tmp_path, monkeypatch):
    found = []
    with theme():
        figure = blank_figure(2, 1)
        figure.subplots().set_ylabel("a label that takes room")
        engine = figure.get_layout_engine()
        monkeypatch.setattr(engine, "execute", lambda of, execute=engine.execute: found.append(execute(of)))
        save(figure, tmp_path / "laid_out")
    assert len(found) == 1
    assert figure.axes[0].get_position().x0 > 0.2
