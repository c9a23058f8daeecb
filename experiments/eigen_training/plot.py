"""Two figures, drawn from results.json alone.

python -m experiments.eigen_training.plot runs/eigen_training/mlm/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from attn_jax.analysis import plots
from experiments.common.figures import fill_and_save, redraw
from experiments.eigen_training.table import right

LOOKS = plots.line_styles(("learnt", "fixed", "shared"))


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    return fill_and_save(FIGURES, results, folder)


def _accuracy(results: Mapping[str, Any]) -> Any:
    """Right answers over the number of scores; a mark a seed, a line through means."""
    figure, axes = plots.panels()
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
        known, look = sorted(points), LOOKS[kind]
        means = [fmean(points[k]) for k in known]
        axes.plot(known, means, label=kind, **(look | {"marker": ""}))
        for k in known:
            axes.plot([k] * len(points[k]), points[k], **(look | {"linestyle": ""}))
    axes.set(xlabel="known scores a query", ylabel="right, held out, %")
    axes.set_xticks(sorted({k for points in found.values() for k in points}))
    plots.legend(figure)
    return figure


def _curves(results: Mapping[str, Any]) -> Any:
    """Held-out loss over updates, of every seed and their mean."""
    figure = plots.loss_curves(
        {
            row["model"]: [[point[:2] for point in run["curve"]] for run in row["runs"]]
            for row in results["rows"]
        }
    )
    figure.axes[0].set(xlabel="updates", ylabel="held-out loss, nats")
    return figure


FIGURES = {"accuracy": _accuracy, "curves": _curves}


if __name__ == "__main__":
    sys.exit(redraw("eigen_training", draw))
