"""The figure, drawn from results.json alone.

python -m experiments.linear_scaling.plot runs/linear_scaling/cpu/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attn_jax.analysis import plots
from experiments.common.figures import mechanism_styles, redraw, save
from experiments.linear_scaling.comparison import MEMORY, TIME, Kind
from experiments.linear_scaling.table import models

LABELS = {
    "time": "milliseconds a sample",
    "memory": "megabytes a sample; hollow: compiled, not run",
}
FIGURES = ("scaling",)


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figure into a folder, and return its path in a list."""
    figure, both = plots.panels(1, 2)
    for axes, kind in zip(both, (TIME, MEMORY), strict=True):
        for model in models(results):
            _curve(axes, results, kind, model)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("N, tokens a sample")
        axes.set_title(LABELS[kind.name], fontsize=10, loc="left")
        axes.legend(title="with exponent", fontsize=8, title_fontsize=8, frameon=False)
    return save({FIGURES[0]: figure}, folder)


def _curve(axes: Any, results: Mapping[str, Any], kind: Kind, model: str) -> None:
    """A line with its exponent; hollow where the call was compiled and not run."""
    known = [
        (row["n"], value, "left_out" in row)
        for row in results["rows"]
        if row["model"] == model
        for value in [kind.ours(row)]
        if value is not None
    ]
    growth = kind.growth(results, model)
    label = model if growth is None else f"{model}  {growth.exponent:.2f}"
    look = mechanism_styles([model])[model]
    options = {**look, "markersize": 4, "linewidth": 1.3}
    lengths, values = [n for n, _, _ in known], [value for _, value, _ in known]
    axes.plot(lengths, values, label=label, **options)
    options |= {"linestyle": "none", "markerfacecolor": "white"}
    hollow = [(n, value) for n, value, left in known if left]
    axes.plot([n for n, _ in hollow], [value for _, value in hollow], **options)


if __name__ == "__main__":
    sys.exit(redraw("linear_scaling", draw))
