"""The figure, drawn from results.json alone.

python -m experiments.scaling.plot runs/scaling/pods/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.common.figures import redraw

FIGURES = ("memory",)


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figure into a folder, and return its path in a list."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 3.2), layout="constrained")
    axes = figure.subplots()
    names = [f"{row['devices']}\n{row['mesh']}" for row in results["rows"]]
    state = [row["state_bytes"] / 1e9 for row in results["rows"]]
    temporary = [row["temporary_bytes"] / 1e9 for row in results["rows"]]
    axes.bar(names, state, label="parameters and optimizer", color="#0072b2")
    axes.bar(names, temporary, bottom=state, label="temporary", color="#e69f00")
    axes.set_title("gigabytes a device", fontsize=10, loc="left")
    axes.tick_params(axis="x", labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{FIGURES[0]}.png"
    figure.savefig(path, dpi=120)
    return [path]


if __name__ == "__main__":
    sys.exit(redraw("scaling", draw))
