"""Two figures, drawn from results.json alone.

python -m experiments.eigen_training.plot runs/eigen_training/mlm/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.figures import redraw
from experiments.eigen_training.table import right

COLOURS = {"fixed": "#d95f02", "learnt": "#1b9e77", "shared": "#7570b3"}


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in FIGURES.items():
        paths.append(folder / f"{name}.png")
        fill(results).savefig(paths[-1], dpi=110)
    return paths


def _accuracy(results: Mapping[str, Any]) -> Any:
    """Right answers over the number of scores; a mark a seed, a line through means."""
    figure, axes = _figure()
    found: dict[str, dict[int, list[float]]] = {}
    for row in results["rows"]:
        kind, _, k = row["model"].partition("-")
        values = [100 * value for value in right(row)]
        if kind == "full":
            mean = fmean(values)
            axes.axhline(mean, color="black", label="full", linewidth=1)
            axes.axhline(0.97 * mean, color="0.6", linestyle=":", label="97 % of it")
        else:
            found.setdefault(kind, {})[int(k)] = values
    for kind, points in found.items():
        known = sorted(points)
        colour = COLOURS[kind]
        axes.plot(known, [fmean(points[k]) for k in known], color=colour, label=kind)
        for k in known:
            axes.plot([k] * len(points[k]), points[k], ".", color=colour)
    axes.set_xlabel("known scores a query")
    axes.set_ylabel("right, held out, %")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _curves(results: Mapping[str, Any]) -> Any:
    """Held-out loss over updates, of the first seed."""
    figure, axes = _figure()
    for row in results["rows"]:
        steps, losses, *_ = zip(*row["runs"][0]["curve"], strict=True)
        axes.plot(steps, losses, marker=".", label=row["model"], linewidth=1)
    axes.set_xlabel("updates")
    axes.set_ylabel("held-out loss, nats")
    axes.legend(frameon=False, fontsize=7, ncols=2)
    return figure


def _figure() -> Any:
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot()
    axes.grid(alpha=0.25, linewidth=0.5)
    return figure, axes


FIGURES = {"accuracy": _accuracy, "curves": _curves}


if __name__ == "__main__":
    sys.exit(redraw("eigen_training", draw))
