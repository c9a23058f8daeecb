"""The paper's figure 2, drawn from results.json alone.

python -m experiments.linear_copy.plot runs/linear_copy/cpu/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attn_jax.analysis import plots
from experiments.common.figures import fill_and_save, mechanism_styles, redraw


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figure into a folder, and return its path."""
    return fill_and_save(FIGURES, results, folder)


def _convergence(results: Mapping[str, Any]) -> Any:
    """Loss over updates: a thin line a seed, a thick one for their mean."""
    config = results["config"]
    curves = {
        row["model"]: [[point[:2] for point in run["curve"]] for run in row["runs"]]
        for row in results["rows"]
    }
    figure = plots.loss_curves(curves, styles=mechanism_styles(curves))
    (axes,) = figure.axes
    if config["decay_after"] < config["steps"]:
        axes.axvline(config["decay_after"], color="0.5", linewidth=0.8, linestyle=":")
    several = "; mean of the seeds, and each" if len(config["seeds"]) > 1 else ""
    axes.set(
        yscale="log",
        xlim=(0, config["steps"]),
        xlabel="updates",
        ylabel="validation loss, nats a target",
        title=f"Copying up to {(config['length'] - 1) // 2 - 1} symbols{several}",
    )
    return figure


FIGURES = {"convergence": _convergence}


if __name__ == "__main__":
    sys.exit(redraw("linear_copy", draw))
