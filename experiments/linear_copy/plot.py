"""The paper's figure 2, drawn from results.json alone.

python -m experiments.linear_copy.plot runs/linear_copy/cpu/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.common.figures import redraw

# Okabe and Ito's colours, which differ in lightness too.
COLOURS = {
    "softmax": "#0072b2",
    "linear": "#d55e00",
    "lsh-1": "#56b4e9",
    "lsh-4": "#009e73",
}
OTHER = "#666666"
THIN = {"linewidth": 0.7, "alpha": 0.5}
LINES = {"softmax": "-", "linear": "-", "lsh-1": ":", "lsh-4": "--"}


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figure into a folder, and return its path."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in FIGURES.items():
        figure = Figure(figsize=(7.2, 4.2), layout="constrained")
        axes = figure.add_subplot()
        fill(axes, results)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.legend(frameon=False, fontsize=11)
        paths.append(folder / f"{name}.png")
        figure.savefig(paths[-1], dpi=120)
    return paths


def _convergence(axes: Any, results: Mapping[str, Any]) -> None:
    """Loss over updates: a thin line a seed, a thick one for their mean."""
    config = results["config"]
    for row in results["rows"]:
        style = {
            "color": COLOURS.get(row["model"], OTHER),
            "linestyle": LINES.get(row["model"], "-."),
        }
        losses = [{step: loss for step, loss, _ in run["curve"]} for run in row["runs"]]
        if len(losses) > 1:
            for curve in losses:
                axes.plot(*zip(*curve.items(), strict=True), **style, **THIN)
        steps = [step for step in losses[0] if all(step in curve for curve in losses)]
        means = [fmean(curve[step] for curve in losses) for step in steps]
        axes.plot(steps, means, **style, linewidth=2.0, label=row["model"])
    if config["decay_after"] < config["steps"]:
        axes.axvline(config["decay_after"], color="0.5", linewidth=0.8, linestyle=":")
    axes.set_yscale("log")
    axes.set_xlim(0, config["steps"])
    axes.set_xlabel("updates", fontsize=11)
    axes.set_ylabel("validation loss, nats a target", fontsize=11)
    title = f"Copying up to {(config['length'] - 1) // 2 - 1} symbols"
    several = "; mean of the seeds, and each" if len(config["seeds"]) > 1 else ""
    axes.set_title(title + several, fontsize=11, loc="left")


FIGURES = {"convergence": _convergence}


if __name__ == "__main__":
    sys.exit(redraw("linear_copy", draw))
