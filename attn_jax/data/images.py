"""Images as sequences of pixel values, for models that write one after the other."""

import dataclasses
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int64, UInt8

from attn_jax.data._checks import example_arguments, fail, integer, resolve_rows
from attn_jax.data._random import below, random_words
from attn_jax.data.batch import Batch
from attn_jax.data.idx import read_idx

_HELD_OUT_DIGITS = 297
_PARTS = ("train", "t10k")


@dataclasses.dataclass(frozen=True, eq=False)
class ImageSet:
    """Images to train on and others that are held out, each a row of pixel values.

    name: where they are from.
    train, test: values row by row; the channels of a place follow each other, r, g, b.
    shape: height, width and channels of an image.
    levels: how many values a pixel can have: 0 (black) .. levels - 1.
    fingerprint: SHA-256 of both sides; other images have another.
    """

    name: str
    train: UInt8[np.ndarray, "n t"] = dataclasses.field(repr=False)
    test: UInt8[np.ndarray, "v t"] = dataclasses.field(repr=False)
    shape: tuple[int, int, int]
    levels: int
    fingerprint: str

    @classmethod
    def from_arrays(
        cls,
        name: str,
        train: UInt8[np.ndarray, "n h w c"],
        test: UInt8[np.ndarray, "v h w c"],
        *,
        levels: int = 256,
    ) -> "ImageSet":
        """The set of images in two arrays.

        Args:
            name: where they are from, for messages and records.
            train, test: images of one size.
            levels: values that a pixel can have, from 2 to 256.

        Raises:
            TypeError, ValueError: arrays of other types or shapes, without an image,
                or with a value that is no level.
        """
        levels = integer("levels", levels, minimum=2)
        if levels > 256:
            fail("levels", str(levels), "at most 256, a byte", "pass fewer")
        for side, images in (("train", train), ("test", test)):
            _check_images(f"{side} ({name})", images, levels)
        if train.shape[1:] != test.shape[1:]:
            fail(
                f"test ({name})",
                f"images of {size(test.shape[1:])}",
                f"{size(train.shape[1:])}, as the training images are",
                "pass images of one size",
            )
        digest = hashlib.sha256(repr((train.shape, levels)).encode())
        digest.update(train.tobytes())
        digest.update(test.tobytes())
        height, width, channels = train.shape[1:]
        return cls(
            name=name,
            train=train.reshape(len(train), -1),
            test=test.reshape(len(test), -1),
            shape=(height, width, channels),
            levels=levels,
            fingerprint=digest.hexdigest(),
        )

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"{self.name}: {len(self.train):,} images to train on, {len(self.test):,} "
            f"held out, {size(self.shape)}, {self.levels} levels, sha256 "
            f"{self.fingerprint[:12]}"
        )


def load_digit_images() -> ImageSet:
    """The 1,797 handwritten digits that come with scikit-learn, 8 x 8, 17 levels.

    The last 297 are held out.

    Raises:
        ImportError: the extra `images` isn't installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError(
            "The digits come with the package scikit-learn: "
            "pip install 'attn_jax[images]'"
        ) from error
    digits: Any = load_digits()
    images = np.asarray(digits["images"]).astype(np.uint8)[..., None]
    train, test = images[:-_HELD_OUT_DIGITS], images[-_HELD_OUT_DIGITS:]
    return ImageSet.from_arrays("scikit-learn's digits", train, test, levels=17)


def load_idx_images(folder: str | os.PathLike[str]) -> ImageSet:
    """MNIST, Fashion-MNIST and others that come as idx files, grey, 256 levels.

    Args:
        folder: has train-images-idx3-ubyte and t10k-images-idx3-ubyte, each as it is or
            packed with gzip (.gz).

    Raises:
        FileNotFoundError: a file isn't there.
        ValueError: a file can't be read, is damaged, or doesn't hold images.
    """
    where = Path(os.path.expanduser(folder))
    sides = []
    for path in _idx_files(where):
        images = read_idx(path)
        if images.ndim != 3:
            expected = "3: images, rows, columns"
            remedy = "pass the images, not their labels"
            fail("folder", f"{path}, with {images.ndim} axes", expected, remedy)
        sides.append(images[..., None])
    # Of "." too, whose own name is empty.
    name = where.absolute().name or str(where)
    return ImageSet.from_arrays(name, *sides)


def image_batch(
    pixels: UInt8[np.ndarray, "n t"],
    *,
    seed: int,
    step: int,
    batch_size: int,
    rows: slice | None = None,
) -> Batch:
    """Images drawn at random: a pure function of (seed, step).

        tokens = [0, x_1 .. x_{t-1}],  targets = [x_1 .. x_t]

    Each sequence begins with a black pixel, which tells nothing, so that all pixels are
    predicted and counted. Row i of a step is the same however the batch is divided
    among hosts or micro-batches. Cost: O(b t) time and memory.

    Args:
        pixels: rows of an ImageSet.
        seed: names the order of the run, any integer.
        step: global step, from 0.
        batch_size: rows of the global batch.
        rows: the rows of the global batch that are wanted (None: all of them).

    Returns:
        The batch, every weight 1.

    Raises:
        ValueError: an argument is out of range.
    """
    seed, step, wanted = example_arguments(seed, step, batch_size, rows)
    _check_pixels(pixels)
    words = random_words("images", seed=seed, step=step, rows=wanted, num_words=1)
    chosen = below(words[:, 0], len(pixels))
    return _batch(pixels, chosen, np.ones(len(wanted), bool))


def image_batches_in_order(
    pixels: UInt8[np.ndarray, "n t"], *, batch_size: int, rows: slice | None = None
) -> Iterator[Batch]:
    """Every image once, as in `image_batch`; the last batch is filled at weight 0.

    All batches have one shape. Bits per dimension are Σ loss / Σ weights / ln 2.

    Args:
        pixels: rows of an ImageSet.
        batch_size: rows of the global batch.
        rows: the rows of each global batch that are wanted (None: all of them).

    Returns:
        An iterator of batches; the arguments are checked before it is returned.

    Raises:
        ValueError: an argument is out of range.
    """
    batch_size = integer("batch_size", batch_size, minimum=1)
    _check_pixels(pixels)
    wanted = np.asarray(resolve_rows(rows, batch_size), np.int64)
    places = (begin + wanted for begin in range(0, len(pixels), batch_size))
    last = len(pixels) - 1
    return (_batch(pixels, np.minimum(i, last), i <= last) for i in places)


def size(shape: tuple[int, ...]) -> str:
    """Height, width and channels in words."""
    return " x ".join(map(str, shape))


def _batch(pixels: np.ndarray, chosen: Int64[np.ndarray, " b"], real: Any) -> Batch:
    targets = pixels[chosen].astype(np.int32)
    tokens = np.pad(targets[:, :-1], ((0, 0), (1, 0)))
    weights = np.broadcast_to(real[:, None], targets.shape).astype(np.float32)
    return Batch(tokens, targets, weights)


def _check_images(argument: str, images: Any, levels: int) -> None:
    """Raise unless there are images of bytes, each of them a level."""
    expected = "a NumPy array of bytes, uint8[n, height, width, channels]"
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        kind = getattr(images, "dtype", type(images).__name__)
        fail(argument, f"{kind}", expected, "pass levels from 0 to 255", TypeError)
    if images.ndim != 4 or not images.size:
        remedy = "grey images have one channel: images[..., None]"
        fail(argument, f"shape {images.shape}", expected, remedy)
    if images.max() >= levels:
        remedy = "pass as many levels as the images have"
        fail(argument, f"a pixel of {images.max()}", f"0 to {levels - 1}", remedy)


def _check_pixels(pixels: Any) -> None:
    """Raise unless pixels are rows of bytes, as in an ImageSet."""
    rows = isinstance(pixels, np.ndarray) and pixels.dtype == np.uint8
    if not rows or pixels.ndim != 2 or not pixels.size:
        got = f"{getattr(pixels, 'dtype', '')}{getattr(pixels, 'shape', '')}"
        got = got or type(pixels).__name__
        expected = "uint8[n, t] with a row and a pixel at least"
        fail("pixels", got, expected, "pass the train or test of an ImageSet")


def _idx_files(folder: Path) -> list[Path]:
    """The files of the training and of the held-out images."""
    names = [f"{part}-images-idx3-ubyte" for part in _PARTS]
    found = [
        path
        for name in names
        for path in (folder / name, folder / f"{name}.gz")
        if path.is_file()
    ]
    missing = [n for n in names if not any(path.name.startswith(n) for path in found)]
    if missing:
        fail(
            "folder",
            f"{str(folder)!r}, without {' and '.join(missing)}",
            "idx files, packed (.gz) or not",
            "pass their folder; Fashion-MNIST is in Debian's dataset-fashion-mnist: "
            "apt-get download dataset-fashion-mnist && dpkg -x dataset-fashion-mnist_*"
            ".deb DIR, then DIR/usr/share/datasets/fashion-mnist",
            FileNotFoundError,
        )
    return [next(path for path in found if path.name.startswith(n)) for n in names]
