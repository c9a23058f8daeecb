"""Lines and points: distributions, spectra, losses, and quality against speed."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from attn_jax.analysis.plots.style import (
    Axes,
    Figure,
    Styles,
    fail,
    legend,
    line_styles,
    numbers,
    own_axes,
)

Numbers = Array | np.ndarray
THIN = {"linewidth": 0.7, "alpha": 0.45, "marker": ""}
# What a line has besides its marks.
LINE = ("color", "linestyle", "linewidth", "alpha")
# Of a line, so that it doesn't become a row of marks.
MARKS = 8


def weight_distributions(
    shares: Mapping[str, Float[Numbers, "n"]],
    edges: Float[Numbers, "n+1"],
    *,
    styles: Styles | None = None,
    axes: Axes | None = None,
) -> Figure:
    """How often attention weights of each size occur, a line of steps a name.

    The scale of weights is logarithmic where bins are not of equal width; a bin from 0
    on is then shown from half of its end on.

        histogram = weights.weight_histogram(w, mask=mask)
        weight_distributions({"layer 1": histogram.shares}, histogram.edges)

    Args:
      shares: of the weights in each bin.
      edges: of the bins.
      styles: a look for each name, as of `line_styles`; there are no marks.
      axes: where to draw, without a legend; None is a figure with one.

    Raises:
      ValueError: no shares, shares that aren't one a bin or aren't from 0 up, or no
        edges of bins.
      ImportError: matplotlib is not installed.
    """
    styles = _styles(shares, styles, "shares")
    bounds = numbers("edges", edges)
    if bounds.ndim != 1 or len(bounds) < 2 or not np.all(np.diff(bounds) > 0):
        fail(
            "edges",
            f"shape {bounds.shape}, {bounds.ravel()[:3].tolist()} ...",
            "one row of two numbers or more that ascend",
            "pass those of the histogram",
        )
    widths = np.diff(bounds)
    heights = {name: _shares(name, x, len(widths)) for name, x in shares.items()}
    figure, target = own_axes(axes)
    if not np.allclose(widths, widths[0]):
        target.set_xscale("log", base=2)
        bounds = np.where(bounds > 0, bounds, bounds[1] / 2)
    for name, values in heights.items():
        look = {key: styles[name][key] for key in LINE if key in styles[name]}
        target.stairs(values, bounds, label=name, **{"linewidth": 1.5, **look})
    target.set_xlabel("attention weight")
    target.set_ylabel("share of the weights")
    return _finish(figure, axes)


def spectra(
    eigenvalues: Mapping[str, Float[Numbers, "n"]],
    *,
    share: float = 0.9,
    styles: Styles | None = None,
    axes: Axes | None = None,
) -> Figure:
    """How much of the variance lies in the first components, a line a name.

        spectra({"layer 1": eigen.spectrum(covariance.matrix)})

    Args:
      eigenvalues: of a covariance matrix, descending.
      share: of the variance at which a thin line is drawn.
      styles: a look for each name; None is `line_styles(names, ordered=True)`, for
        layers.
      axes: where to draw, without a legend; None is a figure with one.

    Raises:
      ValueError: no eigenvalues, such that don't descend, or no variance.
      ImportError: matplotlib is not installed.
    """
    styles = _styles(eigenvalues, styles, "eigenvalues", ordered=True)
    figure, target = own_axes(axes)
    for name, spectrum in eigenvalues.items():
        values = numbers(f"eigenvalues[{name!r}]", spectrum)
        if values.ndim != 1 or np.any(np.diff(values) > 1e-6 * values[:1]):
            fail(
                f"eigenvalues[{name!r}]",
                f"shape {values.shape}, {values.ravel()[:3].tolist()} ...",
                "one row of numbers that descend",
                "pass what analysis.eigen.spectrum returns",
            )
        if not 0 < np.sum(values) < np.inf:
            fail(
                f"eigenvalues[{name!r}]",
                f"{values[:3].tolist()} ..., {np.sum(values):g} in all",
                "a variance above 0, of which the first components have a share",
                "leave out what doesn't vary",
            )
        shares = np.cumsum(values) / np.sum(values)
        target.plot(
            range(1, len(shares) + 1),
            shares,
            label=name,
            **_marked(styles[name], shares),
        )
    target.axhline(share, color="0.5", linewidth=0.8)
    target.set_xscale("log")
    target.set_ylim(0, 1.02)
    target.set_xlabel("components")
    target.set_ylabel("share of the variance")
    return _finish(figure, axes)


def loss_curves(
    curves: Mapping[str, Sequence[Any]],
    *,
    styles: Styles | None = None,
    axes: Axes | None = None,
) -> Figure:
    """Loss over steps: a thin line a seed, a thick one for their mean.

    Names stand in the order in which their lines end, from top to bottom; the mean is
    over the steps that all seeds have.

        loss_curves({"softmax": [[(0, 5.5), (100, 3.2)], [(0, 5.6), (100, 3.1)]]})

    Args:
      curves: for each name a curve a seed, each of (step, loss) pairs.
      styles: a look for each name, as of `line_styles`.
      axes: where to draw, without a legend; None is a figure with one.

    Raises:
      ValueError: no curves, one that isn't of pairs, or seeds without a common step.
      ImportError: matplotlib is not installed.
    """
    styles = _styles(curves, styles, "curves")
    means = {name: _mean_curve(name, seeds) for name, seeds in curves.items()}
    figure, target = own_axes(axes)
    for name in sorted(means, key=lambda name: -means[name][1][-1]):
        steps, losses = means[name]
        style = styles[name]
        if len(curves[name]) > 1:
            for curve in curves[name]:
                x, y = np.asarray(curve, np.float64).T
                target.plot(x, y, **{**style, **THIN})
        target.plot(steps, losses, label=name, **_marked(style, steps))
    target.set_xlabel("steps")
    target.set_ylabel("loss")
    return _finish(figure, axes)


def quality_and_speed(
    losses: Mapping[str, Sequence[float]],
    speeds: Mapping[str, float],
    *,
    styles: Styles | None = None,
    axes: Axes | None = None,
) -> Figure:
    """What a mechanism reaches over how fast it is: right and low is better.

    A mark lies at the mean of the seeds; its bar spans them.

    Args:
      losses: for each name a number a seed.
      speeds: for each name tokens a second.
      styles: a look for each name, as of `line_styles`.
      axes: where to draw, without a legend; None is a figure with one.

    Raises:
      ValueError: no losses, a name without seeds, one without a speed, or one of whose
        numbers is not finite.
      ImportError: matplotlib is not installed.
    """
    styles = _styles(losses, styles, "losses")
    _check_named("speeds", speeds)
    if set(losses) != set(speeds):
        fail(
            "speeds",
            f"names {sorted(speeds)}",
            f"those of losses, {sorted(losses)}",
            "give each name both",
        )
    means = {name: _mean(name, values) for name, values in losses.items()}
    for name, speed in speeds.items():
        _check_finite(f"speeds[{name!r}]", speed)
    figure, target = own_axes(axes)
    for name in sorted(means, key=lambda name: -means[name]):
        below, above = means[name] - min(losses[name]), max(losses[name]) - means[name]
        look = {"marker": "o", **styles[name], "linestyle": "none", "markersize": 7}
        target.errorbar(
            speeds[name],
            means[name],
            yerr=[[below], [above]] if len(losses[name]) > 1 else None,
            capsize=3,
            label=name,
            **look,
        )
    target.margins(0.1)
    target.set_xlabel("tokens a second (more is better)")
    target.set_ylabel("loss (less is better)")
    return _finish(figure, axes)


def _styles(
    named: Mapping[str, Any],
    styles: Styles | None,
    argument: str,
    ordered: bool = False,
) -> Styles:
    """A look for every name, checked."""
    _check_named(argument, named)
    if styles is None:
        return line_styles(named, ordered=ordered)
    absent = [name for name in named if name not in styles]
    if absent:
        fail("styles", f"none for {absent[0]!r}", "one a name", "add it")
    return styles


def _check_named(argument: str, named: Any) -> None:
    if not isinstance(named, Mapping):
        got, expected = type(named).__name__, "a mapping from names to what is drawn"
        fail(argument, got, expected, f'give it a name: {{"a name": {argument}}}')
    if not named:
        fail(argument, "none", "a name at least", "pass one")


def _marked(
    style: Mapping[str, Any], points: Sequence[Any] | np.ndarray
) -> dict[str, Any]:
    """The look of a line of so many points, with few marks."""
    every = max(1, len(points) // MARKS)
    return {"linewidth": 1.6, "markersize": 4.5, "markevery": every, **style}


def _mean_curve(name: str, seeds: Sequence[Any]) -> tuple[list[float], list[float]]:
    """The mean over seeds, at the steps that all of them have."""
    tables = []
    for curve in seeds:
        pairs = np.asarray(curve, np.float64)
        if pairs.ndim != 2 or pairs.shape[1] != 2:
            fail(
                f"curves[{name!r}]",
                f"a curve of shape {pairs.shape}",
                "(step, loss) pairs, and a list of such curves, one a seed",
                "wrap a single curve in a list",
            )
        tables.append(dict(pairs.tolist()))
    steps = [s for s in (tables or [{}])[0] if all(s in table for table in tables)]
    if not steps:
        fail(
            f"curves[{name!r}]",
            f"{len(tables)} curves without a common step",
            "at least one seed, and a step that all have",
            "measure all seeds at the same steps",
        )
    return steps, [fmean(table[s] for table in tables) for s in steps]


def _mean(name: str, values: Sequence[float]) -> float:
    if np.ndim(values) != 1:
        got, remedy = f"shape {np.shape(values)}", "wrap a single one in a list"
        fail(f"losses[{name!r}]", got, "numbers, one a seed", remedy)
    if not len(values):
        fail(f"losses[{name!r}]", "no number", "one a seed", "leave the name out")
    _check_finite(f"losses[{name!r}]", values)
    return fmean(values)


def _shares(name: str, share: Any, count: int) -> np.ndarray:
    """The shares of so many bins, checked."""
    name = f"shares[{name!r}]"
    values = numbers(name, share)
    if values.shape != (count,):
        fail(
            name,
            f"shape {values.shape} for {count + 1} edges",
            f"{count} numbers, one a bin",
            "pass shares and edges of one histogram",
        )
    wrong = values[~(values >= 0)]
    if wrong.size:
        got = f"{wrong[0]:g}, {wrong.size} such in all"
        fail(name, got, "shares >= 0", "pass those that weight_histogram returns")
    return values


def _check_finite(name: str, values: Any) -> None:
    """What isn't finite would have a row in the legend and no mark."""
    wrong = np.isnan(numbers(name, values))
    if np.any(wrong):
        got = f"NaN, {np.sum(wrong)} of {wrong.size}"
        fail(name, got, "finite numbers", "leave the name out, or measure it again")


def _finish(figure: Figure, axes: Axes | None) -> Figure:
    """A legend, where no axes were given."""
    if axes is None:
        legend(figure)
    return figure
