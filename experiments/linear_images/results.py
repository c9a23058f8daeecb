"""results.json: everything that the tables and the figures are made from."""

import math
from typing import Any

import numpy as np

from attn_jax.data import ImageSet
from experiments.common import provenance
from experiments.common.bigrams import bits_of_pairs
from experiments.linear_images.config import ImagesConfig
from experiments.linear_images.pictures import describe
from experiments.linear_images.rows import chosen, halves, packed

# Images from which the table of neighbours is counted.
COUNTED_IMAGES = 10_000
# What may differ between two commands in a directory, and belongs to the numbers.
ALSO = ("steps", "test_images", "generate", "repeats", "recompute", "completions")


def assemble(
    rows: list[dict[str, Any]],
    parts: list[dict[str, Any]],
    config: ImagesConfig,
    images: ImageSet,
) -> dict[str, Any]:
    """The results of models that are all done.

    Args:
      parts: what the rows were made of, each with its origin.
    """
    counted = images.test[: config.test_images]
    return {
        "experiment": "linear_images",
        "preset": config.preset,
        "title": config.title,
        **provenance.joined(parts),
        "config": {
            **shared_config(config, images),
            **{name: getattr(config, name) for name in ALSO},
            "seeds": [config.seed],
        },
        "images": {**describe(images), "counted_images": len(counted)},
        "reference": {
            "uniform_bits_per_dim": math.log2(config.levels),
            "neighbours_bits_per_dim": bits_of_neighbours(images, config),
        },
        "rows": rows,
        "originals": packed(chosen(images, config.completions)),
        "occluded": packed(halves(images, config.completions)),
    }


def shared_config(config: ImagesConfig, images: ImageSet) -> dict[str, Any]:
    """What all models of a work directory have in common, and may not change."""
    return {**config.shared(), "images_fingerprint": images.fingerprint}


def bits_of_neighbours(images: ImageSet, config: ImagesConfig) -> float:
    """Bits a dimension of a table of what follows each level."""

    def pairs(pixels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.pad(pixels[:, :-1], ((0, 0), (1, 0))), pixels

    return bits_of_pairs(
        pairs(images.train[:COUNTED_IMAGES]),
        pairs(images.test[: config.test_images]),
        config.levels,
    )
