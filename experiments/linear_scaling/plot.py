"""The figure, drawn from results.json alone.

python -m experiments.linear_scaling.plot runs/linear_scaling/cpu/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.common.figures import redraw
from experiments.linear_scaling.comparison import MEMORY, TIME, Kind
from experiments.linear_scaling.table import models

# Told apart by people who see few colours: Okabe and Ito's, and a marker each.
STYLES = {
    "softmax-dense": ("#d55e00", "s"),
    "softmax-blockwise": ("#e69f00", "D"),
    "lsh-1": ("#56b4e9", "^"),
    "lsh-4": ("#0072b2", "v"),
    "lsh-8": ("#cc79a7", "P"),
    "linear": ("#009e73", "o"),
}
LABELS = {
    "time": "milliseconds a sample",
    "memory": "megabytes a sample; hollow: compiled, not run",
}
FIGURES = ("scaling",)


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figure into a folder, and return its path in a list."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.6, 4.0), layout="constrained")
    for axes, kind in zip(figure.subplots(1, 2), (TIME, MEMORY), strict=True):
        for model in models(results):
            _curve(axes, results, kind, model)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("N, tokens a sample")
        axes.set_title(LABELS[kind.name], fontsize=10, loc="left")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25, linewidth=0.5)
        axes.legend(title="with exponent", fontsize=8, title_fontsize=8, frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{FIGURES[0]}.png"
    figure.savefig(path, dpi=120)
    return [path]


def _curve(axes: Any, results: Mapping[str, Any], kind: Kind, model: str) -> None:
    """A line with its exponent; hollow where the call was compiled and not run."""
    colour, marker = STYLES[model]
    known = [
        (row["n"], value, "left_out" in row)
        for row in results["rows"]
        if row["model"] == model
        for value in [kind.ours(row)]
        if value is not None
    ]
    growth = kind.growth(results, model)
    label = model if growth is None else f"{model}  {growth.exponent:.2f}"
    options = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.3}
    lengths, values = [n for n, _, _ in known], [value for _, value, _ in known]
    axes.plot(lengths, values, label=label, **options)
    options |= {"linestyle": "none", "markerfacecolor": "white"}
    hollow = [(n, value) for n, value, left in known if left]
    axes.plot([n for n, _ in hollow], [value for _, value in hollow], **options)


if __name__ == "__main__":
    sys.exit(redraw("linear_scaling", draw))
