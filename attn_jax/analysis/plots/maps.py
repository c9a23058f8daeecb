"""Matrices: who attends to whom, and which spaces overlap."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Array, Float

from attn_jax.analysis.plots.style import (
    SMALL,
    WIDTH,
    Axes,
    Figure,
    fail,
    figure_of,
    new_figure,
    numbers,
)

Matrix = Array | np.ndarray
# White is no weight, or one below 0, and darker is more; what is NaN is hatched.
WEIGHTS = "Blues"
SHARES = "viridis"
# Inches: of the largest map, of its largest cell, and of what surrounds it.
LARGEST, CELL, AROUND = 6.0, 0.5, 1.6
# Characters of a token that are shown, and columns whose numbers are.
LONGEST, NUMBERS = 14, 12
# What rounding may add to an overlap.
ROUNDING = 1e-3


def attention_map(
    weights: Float[Matrix, "t s"],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    largest: float | None = None,
    axes: Axes | None = None,
) -> Figure:
    """What each query attends to: a row a query, a column a key, darker is more.

    NaN is hatched, so that a pair that is masked can be told from one of weight 0:

        allowed = mask.allowed(t, s)[0]
        attention_map(jnp.where(allowed, weights, jnp.nan))

    Args:
      weights: of one head; white is 0 and what is below.
      queries: a token each, a string; None numbers them.
      keys: likewise; None is the queries where there are as many.
      largest: the darkest weight; None is the largest there is.
      axes: where to draw; None is a figure with a scale beside it.

    Raises:
      ValueError: weights that are no matrix, or are infinite or complex; labels that
        aren't strings, one a row or column.
      ImportError: matplotlib is not installed.
    """
    values = _matrix("weights", weights, "t s")
    t, s = values.shape
    queries, keys = _visible("queries", queries), _visible("keys", keys)
    keys = queries if keys is None and t == s else keys
    cell = min(CELL, LARGEST / max(t, s, 1))
    if axes is None:
        width = s * cell + AROUND + _room(queries)
        height = max(t * cell + 0.8, 2.4)
        figure = new_figure(min(max(width, 3.2), WIDTH), height, fixed=True)
        axes = figure.add_subplot()
        image = _draw_weights(axes, values, largest)
        figure.colorbar(image, ax=axes, label="weight", shrink=0.8)
    else:
        figure = figure_of(axes)
        # The room there is before the layout, of which labels take a share.
        box = axes.get_position()
        across, down = box.width * figure.get_figwidth(), box.height
        cell = min(across / max(s, 1), down * figure.get_figheight() / max(t, 1))
        _draw_weights(axes, values, largest)
    _label(axes.yaxis, "queries", queries, t, cell)
    _label(axes.xaxis, "keys", keys, s, cell)
    axes.set_ylabel("query")
    axes.set_xlabel("key")
    return figure


def head_grid(
    weights: Float[Matrix, "h t s"] | Float[Matrix, "l h t s"] | Mapping[str, Any],
    *,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
) -> Figure:
    """Attention maps side by side, with one scale for all.

    Args:
      weights: of heads; of layers and heads, then a layer is a row; or a map t x s for
        each name, which stands above it.
      queries, keys: as in `attention_map`, for all of them.

    Raises:
      ValueError: weights of other shapes, infinite or complex ones, or none; labels
        that aren't strings, one a row or column.
      ImportError: matplotlib is not installed.
    """
    maps, columns = _named_maps(weights)
    queries, keys = _visible("queries", queries), _visible("keys", keys)
    values = {name: _matrix(f"weights[{name!r}]", w, "t s") for name, w in maps.items()}
    size = min((WIDTH - 1.0) / columns, 3.4)
    rows = -(-len(maps) // columns)
    aspect = max(w.shape[0] / max(w.shape[1], 1) for w in values.values())
    height = rows * (size * min(max(aspect, 0.3), 2) + 0.3) + 0.3
    figure = new_figure(columns * size + 1.0, height)
    places = figure.subplots(rows, columns, squeeze=False)
    largest = max((np.nanmax(w) for w in values.values() if w.size), default=1.0)
    for i, (axes, (name, w)) in enumerate(
        zip(places.flat, values.items(), strict=False)
    ):
        _draw_weights(axes, w, float(largest))
        axes.set_title(name, fontsize=SMALL)
        t, s = w.shape
        # The scale and the labels take their share.
        cell = 0.85 * size / max(s, t, 1)
        below = i + columns >= len(maps)
        _label(axes.yaxis, "queries", queries, t, cell, shown=i % columns == 0)
        ours = queries if keys is None and t == s else keys
        _label(axes.xaxis, "keys", ours, s, cell, shown=below)
    for axes in places.flat[len(maps) :]:
        axes.set_visible(False)
    scale = {"label": "weight", "shrink": 0.8, "aspect": 30}
    figure.colorbar(places[0, 0].images[0], ax=places, **scale)
    return figure


def overlap_matrix(
    overlaps: Float[Matrix, "n m"],
    *,
    labels: Sequence[str] | None = None,
    groups: Mapping[str, int] | None = None,
    axes: Axes | None = None,
) -> Figure:
    """How much of one space lies in another, from 0 to 1, for all pairs.

    Up to 12 columns the numbers stand in their cells.

    Args:
      overlaps: a row and a column each.
      labels: of both, strings; None numbers them from 1.
      groups: how many of them belong together and what they are called, in their order:
        layers of a model. Lines part them; there are no labels then.
      axes: where to draw; None is a figure with a scale beside it.

    Raises:
      ValueError: overlaps that are no matrix, or lie outside of 0 to 1; labels or
        groups that don't cover it, or aren't strings.
      ImportError: matplotlib is not installed.
    """
    values = _matrix("overlaps", overlaps, "n m")
    outside = values[(values < -ROUNDING) | (values > 1 + ROUNDING)]
    if outside.size:
        got = f"{outside[0]:g}, {outside.size} such in all"
        fail("overlaps", got, "shares from 0 to 1", "divide, as percentages by 100")
    labels = _strings("labels", labels)
    _strings("groups", groups)
    n, m = values.shape
    if axes is None:
        width = min(max(0.55 * m, 2.4), LARGEST)
        room = AROUND + _room(labels if groups is None else list(groups))
        height = max(width * n / max(m, 1), 1.6) + 0.6
        figure = new_figure(min(width + room, WIDTH), height, fixed=True)
        axes = figure.add_subplot()
        image = _draw_overlaps(axes, values)
        figure.colorbar(image, ax=axes, label="overlap", shrink=0.8)
    else:
        figure = figure_of(axes)
        _draw_overlaps(axes, values)
    if groups is not None:
        _part(axes, groups, n, m)
    else:
        cell = LARGEST / max(n, m, 1)
        for axis, count in ((axes.yaxis, n), (axes.xaxis, m)):
            numbers = [str(i + 1) for i in range(count)]
            _label(axis, "labels", numbers if labels is None else labels, count, cell)
    return figure


def _matrix(name: str, x: Any, layout: str) -> np.ndarray:
    values = numbers(name, x)
    if values.ndim != 2:
        fail(
            name,
            f"shape {values.shape}",
            f"({layout.replace(' ', ', ')})",
            "take one head, such as w[0, 0]",
        )
    return values


def _named_maps(weights: Any) -> tuple[dict[str, Any], int]:
    """The maps by what stands above them, and how many stand in a row."""
    if isinstance(weights, Mapping):
        maps, columns = dict(weights), min(len(weights), 4)
    else:
        values = numbers("weights", weights)
        if values.ndim not in (3, 4):
            fail(
                "weights",
                f"shape {values.shape}",
                "(h, t, s) or (layers, h, t, s)",
                "take one example, such as w[0], or draw one head with attention_map",
            )
        heads = values.shape[-3]
        columns = heads if values.ndim == 4 else _columns(heads)
        names = [f"head {j + 1}" for j in range(heads)]
        if values.ndim == 4:
            # Twelve narrow columns have no room for words.
            form = "layer {}, head {}" if heads <= 6 else "{}.{}"
            names = [
                form.format(i + 1, j + 1)
                for i in range(len(values))
                for j in range(heads)
            ]
        flat = values.reshape(-1, *values.shape[-2:])
        maps = dict(zip(names, flat, strict=True))
    if not maps:
        fail("weights", "no head", "at least one map", "pass one")
    return maps, columns


def _columns(count: int) -> int:
    """At most six, and rows that are full where there are such."""
    if count <= 4:
        return count
    return max((c for c in (4, 5, 6) if count % c == 0), default=4)


def _draw_weights(axes: Axes, values: np.ndarray, largest: float | None) -> Any:
    """Cells on a hatched ground."""
    if largest is None:
        seen = values[np.isfinite(values)]
        largest = float(seen.max()) if seen.size else 1.0
    axes.patch.set(facecolor="white", edgecolor="0.75", hatch="////", linewidth=0)
    _frame(axes)
    return axes.imshow(
        np.ma.masked_invalid(values),
        vmin=0,
        vmax=largest if largest > 0 else 1.0,
        cmap=WEIGHTS,
        aspect="equal",
        interpolation="nearest",
    )


def _frame(axes: Axes) -> None:
    """All four sides and no grid, whatever the axes had."""
    axes.spines[:].set_visible(True)
    axes.grid(visible=False)
    axes.tick_params(labelsize=SMALL + 1)


def _label(
    axis: Any,
    name: str,
    tokens: Sequence[str] | None,
    count: int,
    cell: float,
    shown: bool = True,
) -> None:
    """Tokens at the rows or columns, as many as there is room for."""
    if tokens is not None and len(tokens) != count:
        fail(
            name,
            f"{len(tokens)} labels for {count} {name}",
            "one for each",
            f"pass {count}, or None",
        )
    if not shown:
        axis.set_ticks([])
        return
    if tokens is None:
        axis.get_major_locator().set_params(integer=True)
        return
    # A line of the least letters is 1.25 times as high as these.
    step = max(1, int(np.ceil(1.25 * SMALL / (72 * cell))))
    places = range(0, count, step)
    size = SMALL if step > 1 else min(max(SMALL, 72 * cell / 1.25), SMALL + 2)
    axis.set_ticks(places, [tokens[i] for i in places], fontsize=size)
    if axis.axis_name == "x":
        longest = max((len(token) for token in tokens), default=0)
        if longest * 0.65 * size > 72 * cell * step:
            axis.set_tick_params(rotation=90)


def _room(labels: Sequence[str] | None) -> float:
    """Inches that labels take beside a map."""
    return 0.08 * max((len(label) for label in labels or ()), default=0)


def _visible(name: str, tokens: Sequence[str] | None) -> list[str] | None:
    """Tokens with their blanks shown, and no formula read into a dollar sign."""
    tokens = _strings(name, tokens)
    return None if tokens is None else [_shown(token) for token in tokens]


def _strings(name: str, labels: Iterable[str] | None) -> list[str] | None:
    """Labels, checked."""
    labels = None if labels is None else list(labels)
    for label in labels or ():
        if not isinstance(label, str):
            got = f"{label!r} of type {type(label).__name__}"
            fail(name, got, "strings", f"pass [str(x) for x in {name}], or None")
    return labels


def _shown(token: str) -> str:
    token = token.replace(" ", "·").replace("\n", "↵").replace("\t", "⇥")
    token = "".join(c if c.isprintable() else repr(c)[1:-1] for c in token)
    if len(token) > LONGEST:
        token = token[: LONGEST - 1] + "…"
    return token.replace("$", r"\$")


def _draw_overlaps(axes: Axes, values: np.ndarray) -> Any:
    _frame(axes)
    if values.shape[1] <= NUMBERS:
        _write_numbers(axes, values)
    return axes.imshow(values, vmin=0, vmax=1, cmap=SHARES, aspect="equal")


def _write_numbers(axes: Axes, values: np.ndarray) -> None:
    """Each in its cell, light on dark and dark on light."""
    for (i, j), value in np.ndenumerate(values):
        if np.isfinite(value):
            colour = "white" if value < 0.55 else "black"
            place = {"ha": "center", "va": "center", "fontsize": SMALL}
            axes.text(j, i, f"{value:.2f}", color=colour, **place)


def _part(axes: Axes, groups: Mapping[str, int], n: int, m: int) -> None:
    """White lines between groups, their names at their middles."""
    ends = np.cumsum([0, *groups.values()])
    if n != m or ends[-1] != n:
        fail(
            "groups",
            f"{dict(groups)}, {ends[-1]} in all, for overlaps of shape ({n}, {m})",
            "as many as there are rows and columns",
            "give each group its number of rows",
        )
    for end in ends[1:-1]:
        axes.axhline(end - 0.5, color="white", linewidth=1.5)
        axes.axvline(end - 0.5, color="white", linewidth=1.5)
    middles = (ends[1:] + ends[:-1] - 1) / 2
    axes.set_xticks(middles, list(groups))
    axes.set_yticks(middles, list(groups))
