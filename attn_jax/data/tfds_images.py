"""Images of TensorFlow Datasets, without TensorFlow and without a download."""

import os
from typing import Any

import numpy as np
from jaxtyping import UInt8

from attn_jax.data._checks import fail
from attn_jax.data._tfds import PreparedSet
from attn_jax.data.images import ImageSet

_FEATURE = "image"


def load_tfds_images(
    name: str, data_dir: str | os.PathLike[str] | None = None
) -> ImageSet:
    """The images of a prepared set, such as mnist or cifar10.

    Its split "train" is to train on, "test" is held out. Nothing is downloaded: a set
    that isn't prepared raises at once, and the message is the command that prepares it.

    Args:
        name: the set and its config, as TensorFlow Datasets names them.
        data_dir: where sets are prepared (None: TensorFlow Datasets' own place).

    Raises:
        ImportError: the extra `data` isn't installed.
        FileNotFoundError: the set isn't prepared.
        ValueError: there is no such set or config, it has no images of one size and
            8 bits, or it is prepared in a format that needs TensorFlow.
    """
    prepared = PreparedSet(name, data_dir, such_as="mnist or cifar10")
    feature: Any = prepared.features.get(_FEATURE)
    shape = getattr(feature, "shape", None)
    if (
        shape is None
        or len(shape) != 3
        or None in shape
        or feature.np_dtype != np.uint8
    ):
        there = ", ".join(f"{key}: {value}" for key, value in prepared.features.items())
        fail(
            "name",
            f"{name!r}, with {there}",
            f"a feature {_FEATURE!r} of one shape (height, width, channels) and uint8",
            "pass a set such as mnist or cifar10",
        )
    sides = [_stack(prepared.rows(split), shape) for split in ("train", "test")]
    return ImageSet.from_arrays(name, *sides)


def _stack(rows: Any, shape: tuple[int, ...]) -> UInt8[np.ndarray, "n h w c"]:
    """The images of all rows in one array."""
    images = np.empty((len(rows), *shape), np.uint8)
    for i in range(len(rows)):
        images[i] = rows[i][_FEATURE]
    return images
