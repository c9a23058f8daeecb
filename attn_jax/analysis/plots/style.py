"""Sizes, colours and frames that all figures share."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from attn_jax.ops._shapes import check_sizes

# matplotlib is imported when a figure is made, not with this module.
if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

Styles = Mapping[str, Mapping[str, Any]]

# Inches, of which a README shows 100 pixels each.
WIDTH = 8.0
# Points of the least letters: 11 of those pixels.
SMALL = 8.0
# Okabe and Ito's without their yellow, which is too light for a line on white.
PALETTE = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#333333")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.")


def panels(
    rows: int = 1, columns: int = 1, *, height: float = 4.2, share: str = ""
) -> tuple[Figure, Any]:
    """An empty figure of README width, and its axes.

    Args:
      rows, columns: of axes.
      height: of a row, in inches.
      share: "x", "y" or "xy": what all axes have in common.

    Returns:
      The figure, and its axes as `Figure.subplots` gives them: one, or an array.

    Raises:
      ValueError: no rows or columns, no height, or axes to share that aren't there.
      ImportError: matplotlib is not installed.
    """
    check_sizes(rows=rows, columns=columns)
    if not height > 0:
        fail("height", repr(height), "a number of inches > 0", "pass 4.2, or none")
    if not {*share} <= {*"xy"}:
        fail("share", repr(share), "'x', 'y', 'xy' or ''", "pass one of these")
    figure = new_figure(WIDTH, rows * height)
    shared: dict[str, Any] = {f"share{axis}": True for axis in share}
    axes = figure.subplots(rows, columns, **shared)
    for each in np.ravel(axes):
        tidy(each)
    return figure, axes


def line_styles(
    names: Iterable[str], *, ordered: bool = False
) -> dict[str, dict[str, Any]]:
    """A look for each name: colour, marker and dash, as matplotlib's lines take them.

    Seven colours and markers; then these begin anew, hollow and with other dashes. No
    two of 28 names look alike in a line, no two of 14 as marks.

    Args:
      names: in the order of the colours.
      ordered: shades from light to dark, for what has an order, such as layers.
    """
    names = list(names)
    if ordered:
        return {name: _shade(i, len(names)) for i, name in enumerate(names)}
    return {name: _look(i) for i, name in enumerate(names)}


def _look(i: int) -> dict[str, Any]:
    lap, i = divmod(i, len(PALETTE))
    return {
        "color": PALETTE[i],
        "marker": MARKERS[i],
        "markerfacecolor": "white" if lap else PALETTE[i],
        "linestyle": DASHES[lap % len(DASHES)],
    }


def _shade(i: int, count: int) -> dict[str, Any]:
    """Of one hue: yellow-brown to nearly black, all dark enough for a line."""
    light, dark = np.array([0.90, 0.62, 0.0]), np.array([0.13, 0.09, 0.30])
    share = i / max(count - 1, 1)
    colour = tuple(float(x) for x in light + share * (dark - light))
    return {"color": colour, "marker": "", "linestyle": "-"}


def legend(figure: Figure) -> None:
    """A legend beside the axes, of what they all show; each name once.

    None where there is a single name, or none.
    """
    found: dict[str, Any] = {}
    for axes in figure.axes:
        handles, labels = axes.get_legend_handles_labels()
        for handle, label in zip(handles, labels, strict=True):
            found.setdefault(label, handle)
    if len(found) > 1:
        figure.legend(
            found.values(),
            found.keys(),
            loc="outside right upper",
            fontsize=SMALL + 1,
            frameon=False,
        )


def new_figure(width: float, height: float, *, fixed: bool = False) -> Figure:
    """An empty figure, in inches.

    fixed: whether the shape of its axes is, as that of a map.
    """
    try:
        from attn_jax.analysis.plots._canvas import Figure as Canvas
    except ImportError as error:
        raise ImportError(
            "attn_jax.analysis.plots: matplotlib is not installed; expected it for "
            "drawing; pip install 'attn_jax[plots]'"
        ) from error
    layout = "compressed" if fixed else "constrained"
    return Canvas(figsize=(width, height), layout=layout)


def tidy(axes: Axes) -> None:
    """No frame where there is no axis, and a grid to read values by."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=SMALL + 1)


def own_axes(axes: Axes | None, height: float = 4.2) -> tuple[Figure, Axes]:
    """Where to draw: axes that were given, or a figure's only ones."""
    if axes is None:
        return panels(height=height)
    figure = figure_of(axes)
    tidy(axes)
    return figure, axes


def figure_of(axes: Axes) -> Figure:
    """The figure that axes lie in, also where they lie in a part of it."""
    if not hasattr(axes, "get_figure"):
        got, expected = type(axes).__name__, "the axes of one panel"
        fail("axes", got, expected, "of an array of them pass one, such as axes[0]")
    figure = axes.get_figure(root=True)
    assert figure is not None
    return figure


def numbers(name: str, x: Any) -> np.ndarray:
    """As float64; NaN is left in. Raises for what has no place on an axis."""
    values = np.asarray(x)
    if np.iscomplexobj(values):
        remedy = "take its size with abs, or its real part"
        fail(name, f"dtype {values.dtype}", "real numbers", remedy)
    values = np.asarray(values, np.float64)
    if np.any(np.isinf(values)):
        got = f"{values[np.isinf(values)][0]}, {np.isinf(values).sum()} such in all"
        fail(name, got, "finite numbers", "look for what overflowed, or draw it as NaN")
    return values


def fail(name: str, got: str, expected: str, remedy: str) -> NoReturn:
    """Raises a ValueError that says what to do."""
    raise ValueError(f"{name}: got {got}; expected {expected}; {remedy}")
