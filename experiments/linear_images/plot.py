"""Three figures, drawn from results.json alone.

python -m experiments.linear_images.plot runs/linear_images/digits/results.json
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common.figures import redraw
from experiments.linear_images.rows import unpacked

COLOURS = {
    "softmax": "#1f77b4",
    "linear": "#d95f02",
    "lsh-1": "#56b4e9",
    "lsh-4": "#009e73",
}
OTHERS = ("#7570b3", "#e7298a", "#66a61e", "#a6761d")
# Written images that are shown of each model.
SHOWN = 16
GAP = 2


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, fill in FIGURES.items():
        paths.append(folder / f"{name}.png")
        # Around what is drawn: images keep their shape and push names off the edge.
        fill(results).savefig(paths[-1], dpi=110, bbox_inches="tight")
    return paths


def _loss_curves(results: Mapping[str, Any]) -> Any:
    """Bits a dimension on held-out images over updates."""
    figure = _figure(7.2, 4.0)
    axes = figure.add_subplot()
    others = iter(OTHERS * len(results["rows"]))
    for row in results["rows"]:
        model, curve = row["model"], row["training"]["curve"]
        style = {"color": COLOURS.get(model) or next(others), "marker": "."}
        axes.plot(*zip(*curve, strict=True), label=model, **style)
    neighbours = results["reference"]["neighbours_bits_per_dim"]
    style = {"color": "0.5", "linewidth": 0.8, "linestyle": ":"}
    images = results["images"]
    label = f"table of neighbouring pixels, on {images['counted_images']:,} images"
    axes.axhline(neighbours, label=label, **style)
    axes.set_xlabel(f"updates of {results['config']['batch_size']} images")
    count = min(results["config"]["eval_images"], images["held_out_images"])
    axes.set_ylabel(f"bits/dim, {count:,} held-out images")
    axes.legend(frameon=False, fontsize=8)
    axes.grid(alpha=0.25, linewidth=0.5)
    return figure


def _samples(results: Mapping[str, Any]) -> Any:
    """Images that each model wrote by itself, the first ones."""
    lines = [
        (row["model"], _written(row)[begin : begin + SHOWN // 2])
        for row in results["rows"]
        for begin in (0, SHOWN // 2)
    ]
    return _grid(results, [(name, texts) for name, texts in lines if texts])


def _completions(results: Mapping[str, Any]) -> Any:
    """Held-out images, their upper half, and what each model makes of it."""
    lines = [
        ("original", results["originals"]),
        ("given", results["occluded"]),
        *((row["model"], row["completions"]) for row in results["rows"]),
    ]
    return _grid(results, [(name, texts[:SHOWN]) for name, texts in lines])


def _written(row: Mapping[str, Any]) -> Sequence[str]:
    """What was written many at a time, the quickest way."""
    return max(row["writing"][-2:], key=lambda timed: timed["images"])["pixels"]


def _grid(
    results: Mapping[str, Any], lines: Sequence[tuple[str, Sequence[str]]]
) -> Any:
    """Lines of images, each with its name in front."""
    shape, levels = results["images"]["shape"], results["config"]["levels"]
    width = max(len(texts) for _, texts in lines)
    figure = _figure(0.9 + 0.9 * width, 0.95 * len(lines))
    for place, (name, texts) in enumerate(lines):
        axes = figure.add_subplot(len(lines), 1, place + 1)
        axes.imshow(
            _strip(texts, width, shape, levels),
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        axes.set_xticks([])
        axes.set_yticks([])
        for side in axes.spines.values():
            side.set_visible(False)
    return figure


def _strip(
    texts: Sequence[str], width: int, shape: Sequence[int], levels: int
) -> np.ndarray:
    """Images side by side on white, their values from 0 to 1; what lacks is white."""
    rows, columns, channels = shape
    strip = np.ones((rows, width * (columns + GAP) - GAP, channels))
    for i, text in enumerate(texts):
        begin = i * (columns + GAP)
        image = unpacked(text, list(shape)) / (levels - 1)
        strip[:, begin : begin + columns] = image
    return strip[..., 0] if channels == 1 else strip


def _figure(width: float, height: float) -> Any:
    # A figure without pyplot opens no window, whatever the machine offers.
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


FIGURES = {
    "loss_curves": _loss_curves,
    "samples": _samples,
    "completions": _completions,
}


if __name__ == "__main__":
    sys.exit(redraw("linear_images", draw))
