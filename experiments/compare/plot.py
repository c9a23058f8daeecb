"""Two figures, drawn from results.json alone.

python -m experiments.compare.plot runs/compare/demo/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from attn_jax.analysis import plots
from experiments.common.figures import fill_and_save, mechanism_styles, redraw


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw both figures into a folder, and return their paths."""
    return fill_and_save(FIGURES, results, folder)


def _loss_curves(results: Mapping[str, Any]) -> Any:
    """Validation loss over steps."""
    config = results["config"]
    curves = {
        _label(row): [run["curve"] for run in row["runs"]] for row in results["rows"]
    }
    figure = plots.loss_curves(curves, styles=_styles(results))
    (axes,) = figure.axes
    pairs = results["reference"]["byte_pairs_bits_per_byte"]
    axes.axhline(pairs, color="0.5", linewidth=0.8, linestyle=":")
    place = {"ha": "right", "va": "bottom", "color": "0.35", "fontsize": 9}
    axes.annotate("table of byte pairs", (config["steps"], pairs), **place)
    axes.set(
        xlim=(0, config["steps"]),
        xlabel=f"steps of {config['batch_size']} x {config['length']} bytes",
        ylabel="validation loss, bits per byte",
    )
    return figure


def _quality_and_speed(results: Mapping[str, Any]) -> Any:
    """Validation loss over training speed; bars span the seeds."""
    rows = results["rows"]
    figure = plots.quality_and_speed(
        {_label(row): _bits(row) for row in rows},
        {_label(row): (row["tokens_per_second"] or 0) / 1000 for row in rows},
        styles=_styles(results),
    )
    steps = results["config"]["steps"]
    figure.axes[0].set(
        xlabel="training speed, thousand bytes a second (more is better)",
        ylabel=f"bits per byte after {steps:,} steps (less is better)",
    )
    return figure


def _styles(results: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    models = [row["model"] for row in results["rows"]]
    looks = mechanism_styles(models)
    return {_label(row): looks[row["model"]] for row in results["rows"]}


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['model']}  {fmean(_bits(row)):.3f}"


def _bits(row: Mapping[str, Any]) -> list[float]:
    return [run["validation_bits_per_byte"] for run in row["runs"]]


FIGURES = {"loss_curves": _loss_curves, "quality_and_speed": _quality_and_speed}


if __name__ == "__main__":
    sys.exit(redraw("compare", draw))
