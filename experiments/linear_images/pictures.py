"""The images of an experiment: idx files, a prepared data set, or digits."""

from typing import Any

from attn_jax.data import (
    ImageSet,
    load_digit_images,
    load_idx_images,
    load_tfds_images,
)
from attn_jax.data.images import size
from experiments.common.errors import fail
from experiments.linear_images.config import ImagesConfig


def load_images(config: ImagesConfig) -> ImageSet:
    """The images that a config names, of its size and levels."""
    if config.data is not None:
        images = load_idx_images(config.data)
    elif config.tfds is not None:
        images = load_tfds_images(config.tfds, config.tfds_dir)
    else:
        images = load_digit_images()
    if images.shape != config.shape:
        height, width, channels = images.shape
        remedy = (
            f"pass --side {height} --channels {channels}, or other images"
            if height == width
            else "pass square images"
        )
        expected = f"{size(config.shape)}, by --side and --channels"
        fail("images", f"{images.name}, of {size(images.shape)}", expected, remedy)
    greatest = max(int(images.train.max()), int(images.test.max()))
    if greatest >= config.levels:
        fail(
            "images",
            f"{images.name}, with a pixel of {greatest}",
            f"0 to {config.levels - 1}, by --levels {config.levels}",
            f"pass --levels {images.levels}, or other images",
        )
    return images


def describe(images: ImageSet) -> dict[str, Any]:
    """What results say of the images."""
    return {
        "name": images.name,
        "fingerprint": images.fingerprint,
        "training_images": len(images.train),
        "held_out_images": len(images.test),
        "shape": list(images.shape),
        "levels": images.levels,
    }
