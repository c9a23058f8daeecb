"""Figures, drawn from results.json alone.

python -m experiments.translation.plot runs/translation/reversal/results.json
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.common.figures import redraw


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in FIGURES.items():
        paths.append(folder / f"{name}.png")
        fill(results).savefig(paths[-1], dpi=110)
    return paths


def _loss_curve(results: Mapping[str, Any]) -> Any:
    """Losses and BLEU over the minutes of training."""
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 4.0), layout="constrained")
    axes = figure.add_subplot()
    points = results["curve"]
    minutes = [point["training_seconds"] / 60 for point in points]
    handles = []
    for name, label in (
        ("loss", "training, smoothed"),
        ("validation_loss", "validation"),
    ):
        handles += axes.plot(minutes, [point[name] for point in points], label=label)
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("loss, nats a piece")
    other = axes.twinx()
    bleu = [point["validation_bleu"] for point in points]
    style = {"color": "#1b9e77", "linestyle": "--", "label": "validation BLEU, greedy"}
    handles += other.plot(minutes, bleu, **style)
    other.set_ylabel("BLEU")
    other.set_ylim(bottom=0)
    axes.legend(handles=handles, frameon=False, fontsize=8, loc="center right")
    axes.grid(alpha=0.25, linewidth=0.5)
    return figure


def _attention(results: Mapping[str, Any]) -> Any:
    """What some heads of the last layers attend to, in one test sentence."""
    from matplotlib.figure import Figure

    attention = results["attention"]
    maps = attention["maps"]
    columns = max(1, len(maps) // 3)
    figure = Figure(figsize=(4.6 * columns, 13.0), layout="constrained")
    for i, panel in enumerate(maps):
        axes = figure.add_subplot(3, columns, i + 1)
        axes.imshow(panel["weights"], vmin=0, cmap="Greys", aspect="equal")
        for axis, side in ((axes.xaxis, "keys"), (axes.yaxis, "queries")):
            pieces = [_visible(piece) for piece in attention[panel[side]]]
            axis.set_ticks(range(len(pieces)), pieces, fontsize=6)
        axes.tick_params(axis="x", rotation=90)
        axes.set_title(panel["name"], fontsize=9)
    return figure


def _visible(piece: str) -> str:
    """A piece with its blanks shown, and no formula read into a dollar sign."""
    return piece.replace(" ", "·").replace("$", r"\$")


FIGURES = {"loss_curve": _loss_curve, "attention": _attention}


if __name__ == "__main__":
    sys.exit(redraw("translation", draw))
