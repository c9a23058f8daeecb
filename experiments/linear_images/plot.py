"""Three figures, drawn from results.json alone.

python -m experiments.linear_images.plot runs/linear_images/digits/results.json
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attn_jax.analysis import plots
from experiments.common.figures import fill_and_save, mechanism_styles, redraw
from experiments.linear_images.rows import unpacked

# Written images that are shown of each model.
SHOWN = 16
GAP = 2


def draw(results: Mapping[str, Any], folder: Path) -> list[Path]:
    """Draw the figures into a folder, and return their paths."""
    return fill_and_save(FIGURES, results, folder)


def _loss_curves(results: Mapping[str, Any]) -> Any:
    """Bits a dimension on held-out images over updates."""
    curves = {row["model"]: [row["training"]["curve"]] for row in results["rows"]}
    figure, axes = plots.panels()
    plots.loss_curves(curves, styles=mechanism_styles(curves), axes=axes)
    images = results["images"]
    label = f"table of neighbouring pixels, on {images['counted_images']:,} images"
    neighbours = results["reference"]["neighbours_bits_per_dim"]
    axes.axhline(neighbours, label=label, color="0.5", linewidth=1.0, linestyle=":")
    count = min(results["config"]["eval_images"], images["held_out_images"])
    axes.set(
        xlabel=f"updates of {results['config']['batch_size']} images",
        ylabel=f"bits/dim, {count:,} held-out images",
    )
    axes.legend(frameon=False, fontsize=9)
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
    rows, columns, _ = shape
    # As high as the images are, once they are as wide as the figure.
    height = 0.84 * plots.WIDTH * rows / (width * (columns + GAP))
    figure, places = plots.panels(len(lines), height=height + 0.05)
    for axes, (name, texts) in zip(np.ravel(places), lines, strict=True):
        axes.imshow(
            _strip(texts, width, shape, levels),
            cmap="gray",
            vmin=0,
            vmax=1,
            interpolation="nearest",
        )
        axes.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        axes.grid(visible=False)
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


FIGURES = {
    "loss_curves": _loss_curves,
    "samples": _samples,
    "completions": _completions,
}


if __name__ == "__main__":
    sys.exit(redraw("linear_images", draw))
