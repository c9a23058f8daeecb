"""Figures, drawn from results.json alone.

python -m experiments.exclusive.plot runs/exclusive/main/results.json
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.figures import redraw
from experiments.exclusive import overhead
from experiments.exclusive.pairs import mean_similarity, pairs

COLOURS = {"sa": "#1f77b4", "xsa": "#d95f02"}
PANELS = (
    ("value_cosine", "values of two tokens"),
    ("diagonal_weight", "weight of the own value"),
    ("output_cosine", "output and own value"),
    ("centred_value_cosine", "values, without their mean"),
    ("centred_output_cosine", "output and value, without means"),
)

Fill = Callable[[Any, Mapping[str, Any]], None]


def figures(results: Mapping[str, Any]) -> dict[str, Fill]:
    """The figures that these results have, by name."""
    if results["study"] == "overhead":
        return {"overhead": _overhead}
    found: dict[str, Fill] = {}
    if pairs(results):
        found["differences"] = _differences
    found["loss_curves"] = _loss_curves
    if _measured(results):
        found["similarity"] = _similarity
    return found


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in figures(results).items():
        figure = Figure(layout="constrained")
        fill(figure, results)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=110)
    return paths


def _differences(figure: Any, results: Mapping[str, Any]) -> None:
    """The gain of every pair with its interval, and of every seed as a dot."""
    found = list(pairs(results).values())
    figure.set_size_inches(7.2, 1.3 + 0.32 * len(found))
    axes = figure.add_subplot()
    for y, pair in enumerate(found):
        gains = [*pair.gains.values()]
        axes.plot(gains, [y] * len(gains), ".", color=COLOURS["xsa"], alpha=0.5)
        half = pair.difference.half if len(gains) > 1 else 0.0
        style = {"fmt": "|", "color": "black", "capsize": 3, "markersize": 9}
        axes.errorbar([pair.difference.mean], [y], xerr=[half], **style)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(found)), [pair.row.condition for pair in found])
    axes.invert_yaxis()
    axes.set_xlabel("SA − XSA, bits per byte (above 0: exclusion helps)")
    _tidy(axes)


def _loss_curves(figure: Any, results: Mapping[str, Any]) -> None:
    """Validation loss over steps of the plain rows, every seed a line."""
    figure.set_size_inches(6.4, 4.0)
    axes = figure.add_subplot()
    plain = [row for row in results["rows"] if row["row"] in COLOURS]
    for row in plain or results["rows"]:
        colour = COLOURS["xsa" if row["row"].startswith("x") else "sa"]
        curves = [run["curve"] for run in row["runs"]]
        for curve in curves:
            steps, losses = zip(*curve, strict=True)
            axes.plot(steps, losses, color=colour, alpha=0.3, linewidth=0.8)
        steps = [step for step, _ in min(curves, key=len)]
        columns = zip(*([loss for _, loss in curve] for curve in curves), strict=False)
        means = [fmean(column) for column in columns]
        label = f"{row['row']}  {means[-1]:.4f}"
        axes.plot(steps, means, color=colour, marker=".", label=label)
    axes.set_xlabel("steps")
    axes.set_ylabel("validation loss, bits per byte")
    axes.legend(fontsize=8, frameon=False)
    _tidy(axes)


def _similarity(figure: Any, results: Mapping[str, Any]) -> None:
    """Figure 1 of the paper, a panel a number, layers from left to right."""
    figure.set_size_inches(14.0, 3.2)
    shown = _measured(results)
    shared = figure.subplots(1, len(PANELS))
    for axes, (key, title) in zip(shared, PANELS, strict=True):
        for name, found in shown.items():
            layers = range(1, len(found[key]) + 1)
            style = {"color": COLOURS[name], "marker": "o", "label": name}
            axes.plot(layers, found[key], **style)
            axes.set_xticks(layers)
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("layer")
        axes.set_ylim(*_around(axes))
        _tidy(axes)
    shared[0].legend(fontsize=8, frameon=False)


def _measured(results: Mapping[str, Any]) -> dict[str, dict[str, list[float]]]:
    """The numbers of figure 1 of the plain rows, where they were measured."""
    rows = {row["row"]: mean_similarity(row) for row in results["rows"]}
    return {name: rows[name] for name in COLOURS if rows.get(name)}


def _around(axes: Any) -> tuple[float, float]:
    """Limits that show 0."""
    low, high = axes.get_ylim()
    return min(low, 0.0), max(high, 0.0)


def _overhead(figure: Any, results: Mapping[str, Any]) -> None:
    """Time and memory over the length and over the width, forward and backward."""
    figure.set_size_inches(9.4, 6.4)
    panels = figure.subplots(2, 2)
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
                style = {"color": COLOURS[kind], "marker": "o", "label": kind}
                axes.plot([p[key] for p in here], [measure(p) for p in here], **style)
            axes.set_xscale("log", base=2)
            axes.set_xlabel(title)
            axes.set_ylabel(unit)
            axes.set_ylim(bottom=0)
            _tidy(axes)
    panels[0][0].legend(fontsize=8, frameon=False)


def _milliseconds(point: Mapping[str, Any]) -> float:
    return 1e3 * min(point["samples"])


def _megabytes(point: Mapping[str, Any]) -> float:
    return (point["temporary_bytes"] or 0) / 1e6


def _tidy(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25, linewidth=0.5)


if __name__ == "__main__":
    sys.exit(redraw("exclusive", draw))
