"""The figure, drawn from results.json alone.

python -m experiments.scaling.plot runs/scaling/pods/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attn_jax.analysis import plots
from experiments.common.figures import redraw, save

FIGURES = ("memory",)


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figure into a folder, and return its path in a list."""
    figure, axes = plots.panels(height=3.2)
    meshes = [row["mesh"].replace(",", ",\n") for row in results["rows"]]
    devices = [row["devices"] for row in results["rows"]]
    names = [f"{count}\n{mesh}" for count, mesh in zip(devices, meshes, strict=True)]
    state = [row["state_bytes"] / 1e9 for row in results["rows"]]
    temporary = [row["temporary_bytes"] / 1e9 for row in results["rows"]]
    first, second = plots.PALETTE[0], plots.PALETTE[4]
    axes.bar(names, state, label="parameters and optimizer", color=first)
    axes.bar(names, temporary, bottom=state, label="temporary", color=second)
    axes.set_ylabel("gigabytes a device")
    plots.legend(figure)
    return save({FIGURES[0]: figure}, folder)


if __name__ == "__main__":
    sys.exit(redraw("scaling", draw))
