"""Slopes, the places of labels, and figures as svg that follow the reader's colour scheme."""

import base64
import io
import itertools
import re
from itertools import combinations
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import LineCollection
from PIL import Image

from fedrec.config.methods import load_methods
from fedrec.plan.runs import RunId
from fedrec.reporting.figures.colours import DARK_GROUND, KIND_COLOURS, contrast_ratio, in_the_dark
from fedrec.reporting.figures.labels import fitted, spread, text_width
from fedrec.reporting.figures.slope import (
    Slope,
    SlopePanel,
    method_scores_figure,
    sampled_panel,
    slope_caption,
    slope_figure,
)
from fedrec.reporting.figures.style import GREYS, LOOKS, PALETTE, blank_figure, save, theme
from fedrec.reporting.figures.svg import svg_of
from fedrec.reporting.method_scores import method_scores, read_method_scores, rows_of
from fedrec.reporting.tables.table import csv_text
from tests.conftest import ROOT
from tests.core import core_and
from tests.made_runs import write_run
from tests.unit.reporting.figures.test_style import SEEN, distance

METHODS = load_methods(ROOT / "config/methods.yaml")


@pytest.mark.parametrize("count", [1, 2, 7, 21])
def test_labels_keep_apart_inside_their_room_and_in_order(count):
    wanted = np.random.default_rng(count).beta(1, 6, count).tolist()
    places = spread(wanted, 0.04, 0.0, 1.0)
    assert [wanted.index(one) for one in sorted(wanted)] == np.argsort(places).tolist()
    assert all(later - earlier >= 0.04 - 1e-9 for earlier, later in itertools.pairwise(sorted(places)))
    assert min(places) >= -1e-9
    assert max(places) <= 1 + 1e-9


def test_labels_with_room_stay_where_they_are():
    assert spread([0.9, 0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.9, 0.1, 0.5])
    assert spread([], 0.1, 0.0, 1.0) == []


def test_equal_wishes_spread_around_their_place_and_too_many_share_the_room():
    assert spread([0.5, 0.5, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.4, 0.5, 0.6])
    assert spread([0.0, 0.0], 0.1, 0.0, 1.0) == pytest.approx([0.0, 0.1])
    assert spread([0.5] * 5, 1.0, 0.0, 1.0) == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])


def slopes():
    names = ["draw-counter (no model)", *sorted(set(LOOKS) - {"draw-counter"})]
    kinds = list(KIND_COLOURS)
    values = np.linspace(0.99, 0.1, len(names))
    return [
        Slope(
            name,
            kinds[place % 4],
            float(value),
            0.1 + 0.01 * place,
            dashed=name == "popularity",
            bold=place == 0,
        )
        for place, (name, value) in enumerate(zip(names, values, strict=True))
    ]


@pytest.mark.parametrize(("panels", "narrow"), core_and([(1, False), (2, True)], [(1, True), (2, False)]))
def test_no_label_covers_another_or_is_cut(narrow, panels):
    shown = [SlopePanel(slopes(), "HR@10 on somewhere", 0.1)]
    shown += [SlopePanel(slopes()[:-2], "exact HR@10 on somewhere", digits=3)] * (panels - 1)
    with theme():
        figure = slope_figure(shown, narrow=narrow)
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in figure.axes[0].texts]
    assert len(boxes) > 2 * 2 * sum(len(panel.slopes) for panel in shown)
    # Heights of letters with their line spacing may touch; names and numbers may not.
    shrunk = [box.padded(-1.0) for box in boxes]
    assert not [
        pair for pair in combinations(range(len(shrunk)), 2) if shrunk[pair[0]].overlaps(shrunk[pair[1]])
    ]
    whole = figure.bbox
    assert all(whole.x0 <= box.x0 and box.x1 <= whole.x1 for box in boxes)
    assert all(whole.y0 <= box.y0 and box.y1 <= whole.y1 for box in boxes)


def test_below_are_the_slopes_of_the_exact_metric_of_methods_that_have_it(tmp_path):
    def made(method, protocol, **more):
        run = RunId("pfedclr", "ml-100k", protocol, method, 0)
        return write_run(tmp_path, run, METHODS, ranks=(1, 2, 3), exact=(1, 11, 12), **more)

    def headings(found):
        with theme():
            return [
                text.get_text()
                for text in method_scores_figure(found).axes[0].texts
                if "@10" in text.get_text()
            ]

    records = [
        made("fedmf", "clean"),
        made("mf", "clean", has_exact=False),
        made("fedmf", "neutral"),
        made("fedmf", "published-pfedclr"),
    ]
    found = method_scores(records, METHODS)
    path = tmp_path / "standings.csv"
    path.write_text(csv_text(rows_of(found)))

    assert [one.exact for one in found] == [1 / 3, None, None, 1 / 3]
    assert read_method_scores(path) == found
    assert headings(found) == [
        "HR@10 on ml-100k, 3 users, settings of pfedclr",
        "exact HR@10 on ml-100k, 3 users",
    ]
    assert "The lower panel shows exact HR@10" in slope_caption(found, "")
    # A panel without lines from one protocol to the other shows no slopes.
    assert headings(found[:-1]) == ["HR@10 on ml-100k, 3 users, settings of pfedclr"]
    assert "lower panel" not in slope_caption(found[:-1], "")


def test_lines_that_begin_at_one_printed_value_have_markers_of_their_own_beside_their_names(tmp_path):
    def made(method, protocol, final):
        run = RunId("pfedclr", "ml-100k", protocol, method, 0)
        return write_run(tmp_path, run, METHODS, final=final)

    records = [
        made(method, protocol, 1.0 if protocol != "clean" else 0.1 * place)
        for place, method in enumerate(("fedrap", "fedem", "draw-counter"))
        for protocol in ("published-pfedclr", "clean")
    ]
    records += [made("fedmf", protocol, 0.5) for protocol in ("published-pfedclr", "clean")]
    panel = sampled_panel(method_scores(records, METHODS), "HR@10", narrow=False)
    markers = {slope.label: slope.marker for slope in panel.slopes}

    assert markers.pop("FedMF") is None
    assert len({*markers.values()}) == len(markers) == 3
    with theme():
        axes = slope_figure([panel], note="A note that stands below.").axes[0]
    # A marker stands beside the label on either side, and at either end of the line.
    for marker in markers.values():
        drawn = [line for line in axes.lines if line.get_marker() == marker]
        assert sum(len(line.get_xdata()) for line in drawn) >= 4
    assert axes.texts[-1].get_text() == "A note that stands below."


def test_what_is_run_under_one_protocol_has_one_label():
    with theme():
        figure = slope_figure([SlopePanel([Slope("FedMF", "federated", None, 0.4)], "HR@10")])
    words = [text.get_text() for text in figure.axes[0].texts]
    assert words.count("FedMF") == words.count("0.40") == 1
    assert "chance" not in words


def test_long_names_leave_room_for_the_slopes():
    name = "fedmf+plgc[beta=0.3][rate=0.1][participation=0.5]"
    with theme():
        figure = slope_figure([SlopePanel([Slope(name, "personalised", 0.9, 0.2)], "HR@10")], narrow=True)
    (cut,) = {text.get_text() for text in figure.axes[0].texts if text.get_text().startswith("fedmf")}
    assert cut.endswith("…")
    assert name.startswith(cut[:-1])
    assert fitted("short", 3.0, 8.0) == "short"


def test_names_of_the_project_are_whole_on_a_narrow_screen():
    names = ["draw-counter", "FedMF+PLGC", "popularity"]
    with theme():
        made = [Slope(name, "reference", 0.9, 0.1, bold=name == names[0]) for name in names]
        figure = slope_figure([SlopePanel(made, "", 0.1)], narrow=True)
    words = [text.get_text() for text in figure.axes[0].texts]
    assert [words.count(name) for name in names] == [2, 2, 2]


def test_bold_letters_are_wider():
    assert text_width("draw-counter", 8, bold=True) > text_width("draw-counter", 8) > text_width("draw", 8)


@pytest.mark.parametrize("eye", SEEN)
@pytest.mark.parametrize("side", [0, 1], ids=["light", "dark"])
def test_kinds_are_told_apart_by_every_eye_and_read_on_their_ground(eye, side):
    colours = [pair[side] for pair in KIND_COLOURS.values()]
    assert min(distance(*pair, eye) for pair in combinations(colours, 2)) >= 8
    assert all(contrast_ratio(colour, ("#ffffff", DARK_GROUND)[side]) >= 4.5 for colour in colours)


def test_in_the_dark_ink_is_light_and_paper_dark_and_colours_are_seen():
    assert contrast_ratio(in_the_dark("#000000"), DARK_GROUND) > 12
    assert contrast_ratio(in_the_dark("#ffffff"), DARK_GROUND) < 1.1
    assert all(contrast_ratio(in_the_dark(colour), DARK_GROUND) >= 3 for colour in PALETTE.values())
    # A grey stands off as far as it does from white.
    assert all(
        contrast_ratio(in_the_dark(grey), DARK_GROUND) >= contrast_ratio(grey, "#ffffff") - 1.5
        for grey in GREYS[1:]
    )
    assert in_the_dark("#77cfee") == "#77cfee"


def plotted(points=10):
    figure = blank_figure(3, 2)
    ax = figure.add_subplot()
    ax.plot([0, 1], [0, 1], color="#1a3d9d")
    ax.scatter(range(points), range(points), color="#c33108", s=2)
    ax.text(0.5, 0.5, "word")
    return figure


def test_an_svg_is_transparent_names_no_font_and_has_rules_for_the_dark():
    with theme():
        text = svg_of(plotted())
    ElementTree.fromstring(text)
    assert text.startswith("<svg ")
    assert "font-family" not in text
    assert "<image" not in text
    (rules,) = re.findall(r"<style>(@media screen and \(prefers-color-scheme:dark\)\{.*?\})</style>", text)
    dark = in_the_dark("#1a3d9d")
    assert f'[style*="stroke: #1a3d9d"]{{stroke:{dark}!important}}' in rules
    assert f"svg{{fill:{in_the_dark('#000000')}}}" in rules
    assert rules.count("{") == rules.count("}")
    # No ground is painted, neither of the figure nor of its axes.
    grounds = re.findall(r'<path d="M [^"]*z" [^>]*>', text)
    assert len(grounds) >= 2
    assert all("fill: none" in ground or "opacity: 0" in ground for ground in grounds)


def test_of_coordinates_an_svg_has_hundredths_and_of_scales_all_digits():
    figure = plotted()
    figure.axes[0].plot([0, 0.123456], [0.654321, 1])
    with theme():
        text = svg_of(figure)
    coordinates = [float(number) for path in re.findall(r' [dxy]="([^"]*)', text)
                   for number in re.findall(r"-?\d+\.\d+", path)]  # fmt: skip
    assert len(coordinates) > 20
    assert all(number == round(number, 2) for number in coordinates)
    assert "scale(0.015625)" in text


def test_a_letter_in_an_svg_is_as_far_from_the_first_one_as_before():
    figure = plotted()
    plain = io.StringIO()
    with theme(), mpl.rc_context({"svg.hashsalt": "fedrec", "svg.fonttype": "path"}):
        figure.savefig(plain, format="svg", transparent=True)
        text = svg_of(figure)
    moved = re.findall(
        r'<use xlink:href="#DejaVuSans-(\w+)"(?: transform="translate\((\S+) 0\)")?/>', plain.getvalue()
    )
    found = re.findall(r'<use xlink:href="#d(\w+)"(?: x="(\S+)")?/>', text)
    assert len(found) > len("word")
    assert [(letter, float(x or 0)) for letter, x in found] == [
        (letter, round(float(x or 0), 2)) for letter, x in moved
    ]
    # Each is drawn once, and by its short name.
    assert {letter for letter, _ in found} == set(re.findall(r'<path id="d(\w+)"', text))
    assert "word" not in text


def test_a_path_in_an_svg_leads_through_the_same_points_by_the_same_steps():
    figure = plotted()
    figure.axes[0].plot([0, 0.25, 0.5, 1], [0.5, 1, 0, 0.25], marker="o")
    # So many that errors of steps would be seen if they added up.
    figure.axes[0].plot([place / 3000 for place in range(3000)], [place % 7 / 7 for place in range(3000)])
    plain = io.StringIO()
    with theme(), mpl.rc_context({"svg.hashsalt": "fedrec", "svg.fonttype": "path"}):
        figure.savefig(plain, format="svg", transparent=True)
        text = svg_of(figure)
    wanted, found = (
        [steps(path) for path in re.findall(r' d="([^"]*)', one)] for one in (plain.getvalue(), text)
    )
    assert len(found) == len(wanted)
    for path, same in zip(found, wanted, strict=True):
        assert [letter for letter, _ in path] == [letter for letter, _ in same]
        # To a hundredth of a point, and along many points to a tenth.
        close = 0.051 if len(path) > 12 else 0.0051
        for (_, numbers), (_, others) in zip(path, same, strict=True):
            assert numbers == pytest.approx(others, abs=close)
    assert {letter for path in found for letter, _ in path} >= {"M", "L", "C", "Q", "z"}


def test_marks_of_a_line_have_the_paint_of_their_group():
    figure = plotted()
    figure.axes[0].plot([0, 0.25, 0.5, 1], [0.5, 1, 0, 0.25], color="#123456", marker="o")
    plain = io.StringIO()
    with theme(), mpl.rc_context({"svg.hashsalt": "fedrec", "svg.fonttype": "path"}):
        figure.savefig(plain, format="svg", transparent=True)
        text = svg_of(figure)
    wanted, found = ([mark for mark in marks(one) if mark[2]] for one in (plain.getvalue(), text))
    assert found == wanted
    assert len([paint for *_, paint in found if "#123456" in paint]) == 4
    # It is said once: in the rule for the dark, of the line, of the mark, and of the group.
    assert text.count("stroke: #123456") < plain.getvalue().count("stroke: #123456")


def marks(text):
    """Place and paint of every mark of an SVG, its own or that of its group."""
    name = "{http://www.w3.org/2000/svg}"
    return [
        (
            round(float(use.get("x", 0)), 2),
            round(float(use.get("y", 0)), 2),
            use.get("style", group.get("style")),
        )
        for group in ElementTree.fromstring(text).iter(f"{name}g")
        for use in group.findall(f"{name}use")
        if use.get("x") is not None
    ]


def steps(path):
    """The steps of a path, each with the letter that holds for it."""
    found, letter, numbers, here = [], "", [], (0.0, 0.0)
    for word in re.findall(r"[A-Za-z]|-?[\d.]+", path):
        if word.isalpha():
            letter = word
            found += [("z", ())] if word == "z" else []
            continue
        numbers.append(float(word))
        if len(numbers) == {"M": 2, "L": 2, "l": 2, "Q": 4, "C": 6}[letter]:
            if letter == "l":
                numbers = [at + step for at, step in zip(here, numbers, strict=True)]
            found.append((letter.upper(), tuple(numbers)))
            here = tuple(numbers[-2:])
            # Points that follow the one a path begins at are joined to it by lines.
            letter, numbers = "L" if letter == "M" else letter, []
    return found


def test_a_scale_of_colours_keeps_its_order_in_the_dark():
    figure = blank_figure(3, 2)
    ax = figure.add_subplot()
    for place in range(60):
        ax.plot([0, 1], [place, place], color=(0.3, 0.0, place / 60))
    with theme():
        rules = svg_of(figure).split("</style>")[0]
    assert "stroke: #4d00" not in rules


def test_many_points_are_pixels_in_an_svg_alone():
    with theme():
        figure = plotted(points=4000)
        text = svg_of(figure)
    assert "<image" in text
    assert len(text) < 200_000
    (pixels,) = re.findall(r"data:image/png;base64,([A-Za-z0-9+/=\s]+)", text)
    with Image.open(io.BytesIO(base64.b64decode(pixels))) as picture:
        seen = picture.convert("RGBA")
        drawn = [colour for _, colour in seen.getcolors(1 << 20) if colour[3] > 200]
    # The points are as red as they were.
    assert drawn
    assert all(abs(red - 0xC3) < 12 and green < 70 and blue < 30 for red, green, blue, _ in drawn)
    assert not any(one.get_rasterized() for one in figure.axes[0].collections)


def test_coloured_lines_of_many_segments_are_pixels_in_an_svg_however_many_panels_have_them():
    figure = blank_figure(4, 2)
    for panel in figure.subplots(1, 4):
        ends = np.stack((np.arange(500.0), np.arange(500.0) + 1), axis=1)
        panel.add_collection(LineCollection([*np.stack((ends, ends), axis=2)], colors=["#c33108"] * 500))
        panel.autoscale()
    with theme():
        text = svg_of(figure)
    assert text.count("<image") == 4
    assert len(text) < 60_000


def test_the_same_figure_gives_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        with theme():
            save(slope_figure([SlopePanel(slopes()[:5], "HR@10", 0.1)]), tmp_path / name)
    for ending in ("svg", "pdf", "png"):
        first, second = (tmp_path / f"{name}.{ending}" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes(), ending
