"""Curves to point at: an interactive chart a measure, drawn by Plotly."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from attn_jax.analysis.plots import line_styles
from experiments.report.curves import Curve, mean_curve, of_seed

DASHES = {"-": "solid", "--": "dash", ":": "dot", "-.": "dashdot"}
SYMBOLS = {
    "o": "circle",
    "s": "square",
    "^": "triangle-up",
    "D": "diamond",
    "v": "triangle-down",
    "P": "cross",
    "X": "x",
}
# A line on a screen shows no more.
POINTS = 1000
# More points than this, and marks would hide their line.
MARKED = 40
HEIGHT = 440
# A seed, beside the mean of all.
THIN = {"mode": "lines", "line_width": 1, "opacity": 0.35, "showlegend": False}
# Plotly's own buttons include one that sends a chart away.
BUTTONS = ("toImage", "zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d")
CONFIG = {
    "responsive": True,
    "displaylogo": False,
    "modeBarButtons": [list(BUTTONS)],
}


class Look(NamedTuple):
    """A name in the legend, and colour, marker and dash as matplotlib has them."""

    name: str
    style: dict[str, Any]


def as_html(figure: go.Figure) -> str:
    """A part of a page, which has to bring Plotly along."""
    return figure.to_html(full_html=False, include_plotlyjs=False, config=CONFIG)


def chart(curves: Sequence[Curve], looks: Mapping[tuple[str, str], Look]) -> go.Figure:
    """A measure of all runs and rows.

    Several seeds are thin lines and their mean is a thick one.
    """
    figure = go.Figure()
    for who in dict.fromkeys((curve.run, curve.row) for curve in curves):
        own = [curve for curve in curves if (curve.run, curve.row) == who]
        for trace in _traces(own, looks[who]):
            figure.add_trace(trace)
    figure.update_layout(
        template="plotly_white",
        height=HEIGHT,
        margin={"l": 70, "r": 20, "t": 20, "b": 50},
        hovermode="closest",
        xaxis_title="steps",
        yaxis_title=curves[0].measure,
        legend={"groupclick": "togglegroup"},
        updatemenus=[_scales()],
    )
    return figure


def looks_of(curves: Sequence[Curve]) -> dict[tuple[str, str], Look]:
    """A look for each run and row, the same in every chart of a page.

    Rows differ in colour and marks; where there are several runs, these differ in
    their dashes. A run may have a single row, without a name.
    """
    runs = list(dict.fromkeys(curve.run for curve in curves))
    styles = line_styles(dict.fromkeys(curve.row for curve in curves))
    looks = {}
    for run, row in dict.fromkeys((curve.run, curve.row) for curve in curves):
        name, style = row or run, styles[row]
        if len(runs) > 1:
            name = ": ".join(filter(None, (run, row)))
            dash = list(DASHES)[runs.index(run) % len(DASHES)]
            style = style | {"linestyle": dash}
        looks[run, row] = Look(name, style)
    return looks


def _traces(curves: Sequence[Curve], look: Look) -> list[go.Scatter]:
    """The mean over seeds, and each of them."""
    seeds = [_of_a_seed(curve) for curve in curves]
    if len(curves) == 1:
        return [_line(curves[0].steps, curves[0].values, seeds[0], look)]
    thin = [
        _line(curve.steps, curve.values, words, look, **THIN)
        for curve, words in zip(curves, seeds, strict=True)
    ]
    return [*thin, _line(*mean_curve(curves), look)]


def _of_a_seed(curve: Curve) -> list[str]:
    """What is shown of each point; one that is None isn't drawn."""
    seed = f", {of_seed(curve.seed)}" if of_seed(curve.seed) else ""
    return [f"{value or 0:.5g}{seed}" for value in curve.values]


def _line(
    steps: Sequence[int],
    values: Sequence[float | None],
    words: Sequence[str],
    look: Look,
    **more: Any,
) -> go.Scatter:
    style = look.style
    drawn = {
        "mode": "lines+markers" if len(steps) <= MARKED else "lines",
        "line_color": style["color"],
        "line_dash": DASHES[style["linestyle"]],
        "line_width": 2.2,
        "marker_symbol": SYMBOLS[style["marker"]],
        "marker_size": 7,
    }
    # What stands in %{...} of a template is filled in; a name is not one.
    name = look.name.replace("%{", "% {")
    shown = _shown(values)
    return go.Scatter(
        x=[steps[i] for i in shown],
        y=[values[i] for i in shown],
        name=look.name,
        legendgroup=look.name,
        text=[words[i] for i in shown],
        hovertemplate=f"step %{{x:,}}: %{{text}}<br>{name}<extra></extra>",
        **(drawn | more),
    )


def _shown(values: Sequence[float | None]) -> list[int]:
    """Which of many points a line has: the lowest and the highest of every stretch."""
    if len(values) <= POINTS:
        return list(range(len(values)))
    length = -(-len(values) // (POINTS // 2))
    chosen = {0, len(values) - 1}
    for start in range(0, len(values), length):
        stretch = range(start, min(start + length, len(values)))
        lost = [i for i in stretch if values[i] is None]
        there = [i for i in stretch if values[i] is not None]
        chosen.update(lost[:1])
        if there:
            chosen.update(pick(there, key=values.__getitem__) for pick in (min, max))
    return sorted(chosen)


def _scales() -> dict[str, Any]:
    """Buttons for the scale of the values."""
    return {
        "type": "buttons",
        "direction": "left",
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
        "buttons": [
            {
                "label": kind,
                "method": "relayout",
                "args": [{"yaxis.type": kind}],
            }
            for kind in ("linear", "log")
        ],
    }
