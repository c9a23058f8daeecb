"""Figures, drawn from results.json alone.

python -m experiments.translation.plot runs/translation/reversal/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attn_jax.analysis import plots
from experiments.common.figures import fill_and_save, redraw


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    return fill_and_save(FIGURES, results, folder)


def _loss_curve(results: Mapping[str, Any]) -> Any:
    """Losses and BLEU over the minutes of training."""
    labels = {
        "loss": "training, smoothed",
        "validation_loss": "validation",
        "validation_bleu": "validation BLEU, greedy",
    }
    curves = {
        label: [[(p["training_seconds"] / 60, p[name]) for p in results["curve"]]]
        for name, label in labels.items()
    }
    figure, axes = plots.panels()
    styles = plots.line_styles(curves)
    bleu = {labels["validation_bleu"]: curves.pop(labels["validation_bleu"])}
    plots.loss_curves(curves, styles=styles, axes=axes)
    axes.set(xlabel="minutes of training", ylabel="loss, nats a piece")
    # Words of one piece have none.
    if any(point["validation_bleu"] for point in results["curve"]):
        other = axes.twinx()
        plots.loss_curves(bleu, styles=styles, axes=other)
        other.set(ylabel="BLEU", ylim=(0, None))
        other.grid(visible=False)
        other.spines["right"].set_visible(True)
    plots.legend(figure)
    return figure


def _attention(results: Mapping[str, Any]) -> Any:
    """What some heads of the last layers attend to, in one test sentence."""
    attention = results["attention"]
    maps = attention["maps"]
    columns = max(1, len(maps) // 3)
    figure, places = plots.panels(3, columns, height=4.0)
    for axes, panel in zip(np.ravel(places), maps, strict=False):
        plots.attention_map(
            np.asarray(panel["weights"]),
            queries=attention[panel["queries"]],
            keys=attention[panel["keys"]],
            axes=axes,
        )
        axes.set_title(panel["name"], fontsize=10)
    return figure


FIGURES = {"loss_curve": _loss_curve, "attention": _attention}


if __name__ == "__main__":
    sys.exit(redraw("translation", draw))
