"""Images: read from idx files and scikit-learn, checked, and cut into batches."""

import gzip
import struct
import sys

import numpy as np
import pytest

from attn_jax.data import (
    Batch,
    ImageSet,
    image_batch,
    image_batches_in_order,
    load_digit_images,
    load_idx_images,
    read_idx,
)

PINNED = [[1, 16, 11, 17], [17, 12, 15, 22], [2, 19, 33, 15]]
# Row i holds i, i + 1, ..: each pixel says where it is from.
PIXELS = (np.arange(37)[:, None] + np.arange(5)).astype(np.uint8)


def idx(array, kind=0x08, sizes=None):
    """The bytes of an idx file."""
    sizes = array.shape if sizes is None else sizes
    header = struct.pack(f">HBB{len(sizes)}I", 0, kind, len(sizes), *sizes)
    return header + array.tobytes()


def images_of(seed, count, side=3):
    rng = np.random.default_rng(seed)
    return rng.integers(256, size=(count, side, side), dtype=np.uint8)


def batch_at(step, seed=3, **changes):
    return image_batch(
        PIXELS, **{"seed": seed, "step": step, "batch_size": 6} | changes
    )


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
@pytest.mark.parametrize("shape", [(4,), (2, 3, 5), (0, 2)])
def test_an_idx_file_gives_its_array(tmp_path, pack, shape):
    array = np.arange(np.prod(shape), dtype=np.uint8).reshape(shape)
    path = tmp_path / "any-name"
    path.write_bytes(pack(idx(array)))
    found = read_idx(path)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, array)


ARRAY = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "begins with nothing; expected an idx file"),
        (b"\x89PNG\r\n", "begins with 89 50 4e 47; expected an idx file"),
        (b"\0\0\x07\1\0\0\0\0", "begins with 00 00 07 01"),
        (idx(ARRAY, kind=0x0D), "holds 32-bit floats; expected unsigned bytes"),
        (idx(ARRAY)[:9], "ends after 9 bytes; expected 16 bytes, for 3 axes"),
        (idx(ARRAY)[:-1], "23 bytes of data; expected 2 x 3 x 4 = 24, as its header"),
        (idx(ARRAY) + b"!", "25 bytes of data; expected 2 x 3 x 4 = 24"),
        (
            idx(ARRAY, sizes=(2**32 - 1, 2**32 - 1, 4)),
            "24 bytes of data; expected 4294967295 x 4294967295 x 4",
        ),
        (gzip.compress(idx(ARRAY))[:-9], "can't be unpacked"),
        (b"\x1f\x8bno gzip at all", "can't be unpacked"),
        (gzip.compress(idx(ARRAY)[:-3]), "21 bytes of data"),
    ],
    # What gzip packs holds the time of day, which may be in no name.
    ids=lambda x: x.split(";")[0] if isinstance(x, str) else "",
)
def test_a_damaged_idx_file_is_named(tmp_path, content, message):
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as error:
        read_idx(path)
    assert str(path) in str(error.value)


def test_a_missing_idx_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path: got .*nowhere"):
        read_idx(tmp_path / "nowhere")


def test_a_folder_of_idx_files(tmp_path, monkeypatch):
    train, test = images_of(0, 7), images_of(1, 2)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(train)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(test))
    images = load_idx_images(tmp_path)
    np.testing.assert_array_equal(images.train, train.reshape(7, 9))
    np.testing.assert_array_equal(images.test, test.reshape(2, 9))
    assert (images.shape, images.levels) == ((3, 3, 1), 256)
    assert images.name == tmp_path.name
    assert "7 images to train on, 2 held out, 3 x 3 x 1" in images.summary
    monkeypatch.chdir(tmp_path)
    assert load_idx_images(".").name == tmp_path.name


def test_what_a_folder_lacks_is_named(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(images_of(0, 7)))
    with pytest.raises(FileNotFoundError) as error:
        load_idx_images(tmp_path)
    said = str(error.value)
    assert "without t10k-images-idx3-ubyte;" in said
    assert "apt-get download dataset-fashion-mnist" in said


def test_labels_in_the_place_of_images_are_refused(tmp_path):
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(np.zeros(7, np.uint8)))
    (tmp_path / "t10k-images-idx3-ubyte").write_bytes(idx(images_of(0, 7)))
    with pytest.raises(ValueError, match=r"with 1 axes; expected 3: images, rows"):
        load_idx_images(tmp_path)


def test_colours_follow_each_other():
    """Row by row, and red, green, blue of a place before its neighbour's."""
    rng = np.random.default_rng(0)
    train = rng.integers(256, size=(4, 2, 3, 3), dtype=np.uint8)
    images = ImageSet.from_arrays("memory", train, train[:1])
    assert images.shape == (2, 3, 3)
    want = [train[1, y, x, c] for y in range(2) for x in range(3) for c in range(3)]
    np.testing.assert_array_equal(images.train[1], want)


def test_a_fingerprint_tells_sets_apart():
    train, test = images_of(0, 4)[..., None] // 16, images_of(1, 2)[..., None] // 16
    prints = {
        ImageSet.from_arrays("a", *sides, levels=levels).fingerprint
        for sides, levels in (
            ((train, test), 256),
            ((train, test), 16),
            ((train[:3], test), 256),
            ((train.reshape(4, 9, 1, 1), test.reshape(2, 9, 1, 1)), 256),
            ((np.flip(train, 1), test), 256),
        )
    }
    assert len(prints) == 5
    again = ImageSet.from_arrays("b", train, test)
    assert again.fingerprint in prints


GREY = images_of(0, 4)[..., None]


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize(
    ("train", "test", "levels", "message"),
    [
        (
            GREY,
            GREY[:, :2],
            256,
            "test .*: got images of 2 x 3 x 1; expected 3 x 3 x 1",
        ),
        (GREY[..., 0], GREY, 256, r"train .*: got shape \(4, 3, 3\)"),
        (GREY[:0], GREY, 256, r"train .*: got shape \(0, 3, 3, 1\)"),
        (
            GREY,
            GREY / 255,
            256,
            "test .*: got float64; expected a NumPy array of bytes",
        ),
        (GREY, [[[0]]], 256, "test .*: got list"),
        (GREY, GREY, 17, r"train .*: got a pixel of \d+; expected 0 to 16"),
        (GREY, GREY, 257, "levels: got 257; expected at most 256"),
        (GREY, GREY, 1, "levels: got 1; expected an integer of at least 2"),
    ],
)
def test_arrays_that_are_no_images_are_refused(train, test, levels, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ImageSet.from_arrays("memory", train, test, levels=levels)


def test_the_digits_of_scikit_learn():
    images = load_digit_images()
    assert images.train.shape == (1500, 64)
    assert images.test.shape == (297, 64)
    assert (images.shape, images.levels) == ((8, 8, 1), 17)
    assert images.train.max() == 16
    # The first one is a zero, written around an empty middle.
    assert images.train[0].reshape(8, 8)[3:5, 3:5].max() == 0


def test_a_missing_package_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"attn_jax\[images\]"):
        load_digit_images()


def test_a_batch_reads_black_and_all_pixels_but_the_last():
    batch = batch_at(5)
    assert (batch.tokens[:, 0] == 0).all()
    np.testing.assert_array_equal(batch.tokens[:, 1:], batch.targets[:, :-1])
    first = batch.targets[:, :1]
    np.testing.assert_array_equal(batch.targets, first + np.arange(5))
    np.testing.assert_array_equal(batch.weights, np.ones((6, 5)))
    assert [a.dtype for a in batch] == [np.int32, np.int32, np.float32]


def test_batches_are_a_function_of_seed_and_step():
    forward = [batch_at(step) for step in range(8)]
    backward = [batch_at(step) for step in reversed(range(8))][::-1]
    assert all(map(same, forward, backward))
    assert not same(forward[0], forward[1])
    assert not same(batch_at(0, seed=3), batch_at(0, seed=4))


def test_rows_are_those_of_the_global_batch():
    whole = batch_at(2**40, batch_size=9)
    part = batch_at(2**40, batch_size=9, rows=slice(2, 5))
    assert same(part, Batch(*(array[2:5] for array in whole)))
    small = batch_at(2**40, batch_size=4)
    assert same(small, Batch(*(array[:4] for array in whole)))


def test_the_stream_is_pinned():
    """A stored run resumes only if these numbers never change."""
    chosen = [
        batch_at(step, seed=0, batch_size=4).targets[:, 0].tolist()
        for step in (0, 1, 2**40)
    ]
    assert chosen == PINNED


def test_every_image_is_drawn():
    drawn = {int(x) for step in range(60) for x in batch_at(step).targets[:, 0]}
    assert drawn == set(range(37))


@pytest.mark.parametrize("batch_size", [5, 37, 40])
def test_in_order_every_image_counts_once(batch_size):
    batches = list(image_batches_in_order(PIXELS, batch_size=batch_size))
    assert {batch.tokens.shape for batch in batches} == {(batch_size, 5)}
    counted = np.concatenate(
        [batch.targets[batch.weights[:, 0] > 0] for batch in batches]
    )
    np.testing.assert_array_equal(counted, PIXELS)
    assert sum(batch.weights.sum() for batch in batches) == PIXELS.size
    half = list(image_batches_in_order(PIXELS, batch_size=4, rows=slice(2, 4)))
    full = list(image_batches_in_order(PIXELS, batch_size=4))
    for part, whole in zip(half, full, strict=True):
        assert same(part, Batch(*(array[2:] for array in whole)))


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 0}, "batch_size: got 0"),
        ({"step": -1}, "step: got -1"),
        ({"rows": slice(0, 9)}, "rows: got"),
    ],
)
def test_arguments_out_of_range_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        batch_at(**{"step": 0} | changes)


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize("pixels", [PIXELS[:0], PIXELS[0], PIXELS / 255, [[1]]])
def test_pixels_are_rows_of_bytes(pixels):
    with pytest.raises(ValueError, match=r"pixels: got .*uint8\[n, t\]"):
        image_batch(pixels, seed=0, step=0, batch_size=1)
    with pytest.raises(ValueError, match="pixels: got"):
        image_batches_in_order(pixels, batch_size=1)
