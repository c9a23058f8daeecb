"""Figures, drawn from results.json alone.

python -m experiments.exclusive.plot runs/exclusive/main/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from attn_jax.analysis import plots
from experiments.common.figures import Fill, fill_and_save, redraw
from experiments.exclusive import overhead
from experiments.exclusive.pairs import mean_similarity, pairs

LOOKS = plots.line_styles(("sa", "xsa"))
PANELS = (
    ("value_cosine", "values of two tokens"),
    ("diagonal_weight", "weight of the own value"),
    ("output_cosine", "output and own value"),
    ("centred_value_cosine", "values, without their mean"),
    ("centred_output_cosine", "output and value, without means"),
)


def figures(results: Mapping[str, Any]) -> dict[str, Fill]:
    """The figures that these results have, by name."""
    if results["study"] == "overhead":
        return {"overhead": _overhead}
    found: dict[str, Fill] = {}
    if pairs(results):
        found["differences"] = _differences
    if any(len(run["curve"]) > 1 for row in results["rows"] for run in row["runs"]):
        found["loss_curves"] = _loss_curves
    if _measured(results):
        found["similarity"] = _similarity
    return found


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    return fill_and_save(figures(results), results, folder)


def _differences(results: Mapping[str, Any]) -> Any:
    """The gain of every pair with its interval, and of every seed as a dot."""
    found = list(pairs(results).values())
    figure, axes = plots.panels(height=1.3 + 0.32 * len(found))
    for y, pair in enumerate(found):
        gains = [*pair.gains.values()]
        axes.plot(gains, [y] * len(gains), ".", color=LOOKS["xsa"]["color"], alpha=0.5)
        half = pair.difference.half if len(gains) > 1 else 0.0
        style = {"fmt": "|", "color": "black", "capsize": 3, "markersize": 9}
        axes.errorbar([pair.difference.mean], [y], xerr=[half], **style)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(found)), [pair.row.condition for pair in found])
    axes.invert_yaxis()
    axes.set_xlabel("SA − XSA, bits per byte (above 0: exclusion helps)")
    return figure


def _loss_curves(results: Mapping[str, Any]) -> Any:
    """Validation loss over steps of the plain rows, of every seed and their mean."""
    plain = [row for row in results["rows"] if row["row"] in LOOKS]
    curves, styles = {}, {}
    for row in plain or results["rows"]:
        found = [run["curve"] for run in row["runs"]]
        label = f"{row['row']}  {fmean(curve[-1][1] for curve in found):.4f}"
        curves[label] = found
        styles[label] = LOOKS["xsa" if row["row"].startswith("x") else "sa"]
    figure = plots.loss_curves(curves, styles=styles)
    figure.axes[0].set_ylabel("validation loss, bits per byte")
    return figure


def _similarity(results: Mapping[str, Any]) -> Any:
    """Figure 1 of the paper, a panel a number, layers from left to right."""
    shown = _measured(results)
    figure, places = plots.panels(2, 3, height=2.6)
    *shared, last = np.ravel(places)
    for axes, (key, title) in zip(shared, PANELS, strict=True):
        for name, found in shown.items():
            layers = range(1, len(found[key]) + 1)
            axes.plot(layers, found[key], label=name, **LOOKS[name])
            axes.set_xticks(layers)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("layer")
        axes.set_ylim(*_around(axes))
    last.set_visible(False)
    plots.legend(figure)
    return figure


def _measured(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """The numbers of figure 1 of the plain rows, where they were measured."""
    rows = {row["row"]: mean_similarity(row) for row in results["rows"]}
    return {name: rows[name] for name in LOOKS if rows.get(name)}


def _around(axes: Any) -> tuple[float, float]:
    """Limits that show 0."""
    low, high = axes.get_ylim()
    return min(low, 0.0), max(high, 0.0)


def _overhead(results: Mapping[str, Any]) -> Any:
    """Time and memory over the length and over the width, forward and backward."""
    figure, panels = plots.panels(2, 2, height=3.0)
    width = results["config"]["widths"][0]
    points = [p for p in results["points"] if p["direction"] == "both"]
    middle = next((p["n"] for p in points if p["width"] != width), None)
    columns = (
        ("n", "tokens a row", [p for p in points if p["width"] == width]),
        ("width", "width", [p for p in points if p["n"] == middle]),
    )
    for column, (key, title, chosen) in enumerate(columns):
        for line, (measure, unit) in enumerate(
            ((_milliseconds, "milliseconds"), (_megabytes, "temporary MB"))
        ):
            axes = panels[line][column]
            for kind in overhead.KINDS:
                here = [p for p in chosen if p["name"] == kind]
                x, y = [p[key] for p in here], [measure(p) for p in here]
                axes.plot(x, y, label=kind, **LOOKS[kind])
            axes.set_xscale("log", base=2)
            axes.set(xlabel=title, ylabel=unit)
            # As two lines close together need, whose range is small.
            axes.set_ylim(0, 1.1 * max((measure(p) for p in chosen), default=1))
    plots.legend(figure)
    return figure


def _milliseconds(point: Mapping[str, Any]) -> float:
    return 1e3 * min(point["samples"])


def _megabytes(point: Mapping[str, Any]) -> float:
    return (point["temporary_bytes"] or 0) / 1e6


if __name__ == "__main__":
    sys.exit(redraw("exclusive", draw))
