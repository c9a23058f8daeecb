"""Figures show the numbers they are given, and can be read at the width of a README."""

import sys
from itertools import combinations

import numpy as np
import pytest

from attn_jax.analysis import plots

# How people see who lack one kind of cone: Machado, Oliveira and Fernandes 2009, at
# severity 1, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = [
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
]


def linear(colour):
    x = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(x <= 0.04045, x / 12.92, ((x + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB, in which 2 is the least difference that is noticed side by side."""
    t = XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("vision", VISION)
def test_colours_differ_to_everybody_and_from_white(vision):
    seen = {c: lab(VISION[vision] @ linear(c)) for c in (*plots.PALETTE, "#ffffff")}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > 15, (one, other)


def softmax(*shape):
    x = np.exp(2 * np.random.default_rng(0).normal(size=shape))
    return x / x.sum(-1, keepdims=True)


WORDS = ["The", "quick", "brown", "fox", "didn't", "jump", "over", "extraordinarily"]
WORDS += ["lazy", "dogs", "again", "."]
NAMES = [f"factorized_random_{i}" for i in range(13)]
FIGURES = {
    "attention_map": lambda: plots.attention_map(
        softmax(60, 60), queries=[f"token {i}" for i in range(60)]
    ),
    "panel": lambda: plots.attention_map(
        softmax(12, 12), queries=WORDS, axes=plots.panels(1, 2)[1][0]
    ),
    "head_grid": lambda: plots.head_grid(softmax(2, 4, 12, 12), queries=WORDS),
    "many_heads": lambda: plots.head_grid(softmax(1, 12, 9, 9)),
    "overlap_matrix": lambda: plots.overlap_matrix(softmax(12, 12), labels=WORDS),
    "few_overlaps": lambda: plots.overlap_matrix(
        softmax(2, 2), labels=["layer 1", "layer 2"]
    ),
    "groups": lambda: plots.overlap_matrix(
        softmax(15, 15), groups={"minilm": 6, "own": 3, "random": 6}
    ),
    "loss_curves": lambda: plots.loss_curves(
        {name: [[(0, 9.0), (1000, i)]] for i, name in enumerate(NAMES)}
    ),
}


def tick_labels(axis):
    """Those that are in view."""
    low, high = sorted(axis.get_view_interval())
    ticks = axis.get_major_ticks() if axis.axes.get_visible() else []
    seen = [tick for tick in ticks if low <= tick.get_loc() <= high]
    found = [text for tick in seen for text in (tick.label1, tick.label2)]
    return [text for text in found if text.get_visible() and text.get_text()]


def texts(figure):
    """All that is written, and can be seen."""
    found = [text for box in figure.legends for text in box.get_texts()]
    for axes in figure.axes:
        written = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        found += [text for text in written if text.get_text()]
        found += [*tick_labels(axes.xaxis), *tick_labels(axes.yaxis)]
    return found


@pytest.mark.parametrize("name", FIGURES)
def test_text_is_legible_at_the_width_of_a_readme(name):
    """High enough where it has 800 pixels, inside it, and no label on the next one."""
    figure = FIGURES[name]()
    figure.set_dpi(100)
    figure.draw_without_rendering()
    width, height = figure.get_size_inches() * 100
    assert width <= 800
    for text in texts(figure):
        box = text.get_window_extent()
        assert text.get_fontsize() * 100 / 72 >= 11, text
        assert min(box.x0, box.y0, width - box.x1, height - box.y1) > -1, text
    labels = 0
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            boxes = [text.get_window_extent() for text in tick_labels(axis)]
            labels += len(boxes)
            # A box is a pixel higher than its letters.
            for one, other in combinations([box.padded(-0.5) for box in boxes], 2):
                assert not one.overlaps(other)
    assert labels > 4


def test_a_map_shows_each_weight_and_hatches_what_is_masked():
    weights = softmax(3, 5)
    weights[0, 4] = np.nan
    figure = plots.attention_map(
        weights, queries=["a", "$b", "c d"], keys=[*"vwxyz"], largest=0.5
    )
    axes, scale = figure.axes
    (image,) = axes.images
    shown = image.get_array()
    assert shown.mask.sum() == shown.mask[0, 4] == 1
    np.testing.assert_array_equal(shown.filled(np.nan), weights)
    assert image.get_clim() == (0, 0.5)
    assert axes.patch.get_hatch()
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a", r"\$b", "c·d"]
    assert [t.get_text() for t in axes.get_xticklabels()] == [*"vwxyz"]
    assert scale.get_ylabel() == "weight"


def test_a_grid_has_a_map_for_each_head_on_one_scale():
    weights = softmax(2, 3, 4, 4)
    *maps, _ = plots.head_grid(weights).axes
    assert [axes.get_title() for axes in maps][1::3] == [
        "layer 1, head 2",
        "layer 2, head 2",
    ]
    for axes, w in zip(maps, weights.reshape(6, 4, 4), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), w)
        assert axes.images[0].get_clim() == (0, weights.max())
    named = plots.head_grid({"one": weights[0, 0], "other": weights[0, 1]})
    assert [axes.get_title() for axes in named.axes[:2]] == ["one", "other"]


def test_overlaps_stand_in_their_cells_and_groups_at_their_middles():
    overlaps = softmax(3, 3)
    axes = plots.overlap_matrix(overlaps, groups={"one": 2, "other": 1}).axes[0]
    written = {text.get_position(): text.get_text() for text in axes.texts}
    assert written == {
        (j, i): f"{overlaps[i, j]:.2f}" for i in range(3) for j in range(3)
    }
    assert [*axes.get_yticks()] == [0.5, 2]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["one", "other"]


def test_distributions_are_steps_on_the_scale_of_their_bins():
    shares, even = np.array([0.7, 0.2, 0.1]), np.linspace(0, 1, 4)
    (axes,) = plots.weight_distributions({"softmax": shares}, even).axes
    values, edges, _ = axes.patches[0].get_data()
    np.testing.assert_array_equal(values, shares)
    np.testing.assert_array_equal(edges, even)
    assert axes.get_xscale() == "linear"
    uneven = np.array([0.0, 2.0, 4.0, 8.0])
    (axes,) = plots.weight_distributions({"softmax": shares}, uneven).axes
    assert axes.get_xscale() == "log"
    np.testing.assert_array_equal(axes.patches[0].get_data().edges, [1, 2, 4, 8])


def test_spectra_are_shares_summed_up():
    (axes,) = plots.spectra({"layer 1": np.array([6.0, 3.0, 1.0])}, share=0.8).axes
    curve, level = axes.lines
    np.testing.assert_allclose(curve.get_xydata(), [[1, 0.6], [2, 0.9], [3, 1]])
    assert set(level.get_ydata()) == {0.8}


def test_curves_show_seeds_and_the_mean_of_what_all_have():
    curves = {
        "low": [[(0, 5.0), (10, 1.0), (20, 9.0)], [(0, 7.0), (10, 2.0)]],
        "high": [[(0, 4.0), (10, 3.0)]],
    }
    figure = plots.loss_curves(curves)
    high, *seeds, mean = figure.axes[0].lines
    np.testing.assert_array_equal(high.get_xydata(), curves["high"][0])
    for line, curve in zip(seeds, curves["low"], strict=True):
        np.testing.assert_array_equal(line.get_xydata(), curve)
        assert line.get_linewidth() < mean.get_linewidth()
    np.testing.assert_array_equal(mean.get_xydata(), [[0, 6], [10, 1.5]])
    (box,) = figure.legends
    assert [text.get_text() for text in box.get_texts()] == ["high", "low"]


def test_quality_and_speed_lie_at_the_mean_and_span_the_seeds():
    losses = {"softmax": [2.0, 3.0], "linear": [4.0]}
    figure = plots.quality_and_speed(losses, {"softmax": 70.0, "linear": 90.0})
    linear, softmax = figure.axes[0].containers
    assert linear.lines[0].get_xydata().tolist() == [[90, 4]]
    assert softmax.lines[0].get_xydata().tolist() == [[70, 2.5]]
    (bar,) = softmax.lines[2][0].get_segments()
    assert bar.tolist() == [[70, 2], [70, 3]]
    assert not linear.has_yerr


def test_axes_of_ones_own_are_drawn_into_without_a_legend():
    figure, (left, right) = plots.panels(1, 2, share="y")
    styles = {"a": {"color": "#123456"}, "b": {"color": "#654321"}}
    curves = {"a": [[(0, 1.0)]], "b": [[(0, 2.0)]]}
    assert plots.loss_curves(curves, styles=styles, axes=left) is figure
    assert [line.get_color() for line in left.lines] == ["#654321", "#123456"]
    assert not right.lines
    assert not figure.legends
    plots.legend(figure)
    assert len(figure.legends) == 1


def test_styles_of_many_names_differ():
    styles = plots.line_styles(map(str, range(28)))
    lines = [(s["color"], s["linestyle"]) for s in styles.values()]
    marks = [(s["color"], s["markerfacecolor"]) for s in styles.values()]
    assert len(set(lines)) == 28
    assert len(set(marks[:14])) == 14
    shades = [s["color"] for s in plots.line_styles("abc", ordered=True).values()]
    assert [sum(shade) for shade in shades] == sorted(map(sum, shades))[::-1]


def test_a_notebook_shows_a_figure_as_wide_as_a_readme():
    figure, _ = plots.panels(height=1.0)
    png = figure._repr_png_()
    assert png.startswith(b"\x89PNG")
    assert (int.from_bytes(png[16:20]), int.from_bytes(png[20:24])) == (800, 100)


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    name = "attn_jax.analysis.plots._canvas"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'attn_jax\[plots\]'"):
        plots.panels()


WRONG = {
    "heads in a map": (
        lambda: plots.attention_map(softmax(2, 3, 3)),
        r"weights: got shape \(2, 3, 3\); expected \(t, s\); take one head",
    ),
    "labels": (
        lambda: plots.attention_map(softmax(3, 4), keys=["a"]),
        "keys: got 1 labels for 4 keys; expected one for each",
    ),
    "a head in a grid": (
        lambda: plots.head_grid(softmax(3, 3)),
        r"weights: got shape \(3, 3\); expected \(h, t, s\) or \(layers, h, t, s\)",
    ),
    "groups": (
        lambda: plots.overlap_matrix(softmax(3, 3), groups={"one": 2}),
        r"groups: got \{'one': 2\}, 2 in all, for overlaps of shape \(3, 3\)",
    ),
    "bins": (
        lambda: plots.weight_distributions({"a": softmax(4)}, np.arange(4.0)),
        r"shares\['a'\]: got shape \(4,\) for 4 edges; expected 3 numbers",
    ),
    "an ascending spectrum": (
        lambda: plots.spectra({"a": np.array([1.0, 2.0])}),
        r"eigenvalues\['a'\]: .*expected one row of numbers that descend",
    ),
    "a bare curve": (
        lambda: plots.loss_curves({"a": [(0, 1.0), (1, 2.0)]}),
        r"curves\['a'\]: got a curve of shape \(2,\); .*wrap a single curve in a list",
    ),
    "no common step": (
        lambda: plots.loss_curves({"a": [[(0, 1.0)], [(1, 2.0)]]}),
        r"curves\['a'\]: got 2 curves without a common step",
    ),
    "speeds": (
        lambda: plots.quality_and_speed({"a": [1.0]}, {"b": 1.0}),
        r"speeds: got names \['b'\]; expected those of losses, \['a'\]",
    ),
    "no names": (
        lambda: plots.spectra(np.array([2.0, 1.0])),
        r'eigenvalues: got ndarray; .*give it a name: \{"a name": eigenvalues\}',
    ),
    "no names of speeds": (
        lambda: plots.quality_and_speed({"a": [1.0]}, [1.0]),
        "speeds: got list; expected a mapping",
    ),
    "no variance": (
        lambda: plots.spectra({"a": np.zeros(3)}),
        r"eigenvalues\['a'\]: got \[0.0, 0.0, 0.0\] ..., 0 in all; .*above 0",
    ),
    "no bins": (
        lambda: plots.weight_distributions({"a": softmax(1)}, np.ones(1)),
        r"edges: got shape \(1,\), \[1.0\] ...; expected one row of two numbers",
    ),
    "a bare number": (
        lambda: plots.quality_and_speed({"a": 1.0}, {"a": 1.0}),
        r"losses\['a'\]: got shape \(\); .*wrap a single one in a list",
    ),
    "no rows": (lambda: plots.panels(0, 2), "rows: got 0; expected an int >= 1"),
    "no height": (lambda: plots.panels(height=0), "height: got 0; expected a number"),
    "axes to share": (lambda: plots.panels(share="z"), "share: got 'z'; expected 'x'"),
    "many axes": (
        lambda: plots.attention_map(softmax(3, 3), axes=plots.panels(1, 2)[1]),
        "axes: got ndarray; expected the axes of one panel",
    ),
    "labels that are numbers": (
        lambda: plots.attention_map(softmax(3, 3), queries=[1, 2, 3]),
        r"queries: got 1 of type int; expected strings; pass \[str\(x\) for x in q",
    ),
    "labels of a grid that are none": (
        lambda: plots.head_grid(softmax(2, 3, 3), keys=[*"ab", None]),
        "keys: got None of type NoneType; expected strings",
    ),
    "labels of overlaps that are numbers": (
        lambda: plots.overlap_matrix(softmax(2, 2), labels=[1, 2]),
        "labels: got 1 of type int; expected strings",
    ),
    "groups that are numbers": (
        lambda: plots.overlap_matrix(softmax(2, 2), groups={6: 2}),
        "groups: got 6 of type int; expected strings",
    ),
    "infinite weights": (
        lambda: plots.attention_map(np.array([[1.0, np.inf]])),
        "weights: got inf, 1 such in all; expected finite numbers",
    ),
    "complex weights": (
        lambda: plots.head_grid({"a": softmax(2, 2) * 1j}),
        r"weights\['a'\]: got dtype complex128; expected real numbers",
    ),
    "percentages": (
        lambda: plots.overlap_matrix(np.array([[1.0005, 30.0]])),
        "overlaps: got 30, 1 such in all; expected shares from 0 to 1",
    ),
    "negative shares": (
        lambda: plots.weight_distributions({"a": np.array([1.0, -0.5])}, np.arange(3)),
        r"shares\['a'\]: got -0.5, 1 such in all; expected shares >= 0",
    ),
    "a loss that is none": (
        lambda: plots.quality_and_speed(
            {"a": [1.0], "b": [2.0, np.nan]}, {"a": 1.0, "b": 1.0}
        ),
        r"losses\['b'\]: got NaN, 1 of 2; expected finite numbers; leave the name out",
    ),
    "an infinite speed": (
        lambda: plots.quality_and_speed({"a": [1.0]}, {"a": np.inf}),
        r"speeds\['a'\]: got inf, 1 such in all; expected finite numbers",
    ),
    "nothing": (lambda: plots.loss_curves({}), "curves: got none"),
    "styles": (
        lambda: plots.loss_curves({"a": [[(0, 1.0)]]}, styles={}),
        "styles: got none for 'a'",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_drawn_says_why(case, plain_errors):
    call, message = WRONG[case]
    with pytest.raises(ValueError, match=message):
        call()
