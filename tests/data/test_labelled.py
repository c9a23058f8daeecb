"""Texts with classes: files, splits by a hash, batches."""

import numpy as np
import pytest

from attn_jax.data import (
    LabelledBatches,
    LabelledText,
    load_labelled,
    split_labelled,
)

PARTS = [[[5, 6, 7]], [[8]], [[9, 9, 9, 9, 9]]]


def write(tmp_path, content):
    path = tmp_path / "texts.tsv"
    path.write_bytes(content)
    return path


def batches(parts=PARTS, labels=(1, 0, 1), length=6):
    return LabelledBatches(parts, labels, bos_id=1, eos_id=2, length=length)


def test_a_file_of_classes_and_texts(tmp_path):
    path = write(tmp_path, "good\t Fine  film \r\n\nbad\tÖde\ngood\tgreat\n".encode())
    data = load_labelled(path)
    assert data.texts == [("Fine  film",), ("Öde",), ("great",)]
    assert data.labels == [1, 0, 1]
    assert data.classes == ("bad", "good")
    assert data.largest_share == 2 / 3


def test_an_example_may_have_several_texts(tmp_path):
    data = load_labelled(write(tmp_path, b"yes\ta\tb\nno\tc\td\n"))
    assert data.texts == [("a", "b"), ("c", "d")]
    assert data.num_parts == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"good\ta\nbad\n", "line 2.*one column"),
        (b"good\ta\nbad\tb\tc\n", "line 2.*3 columns; expected 2"),
        (b"good\ta\n\tb\n", "line 2.*empty column 1"),
        (b"good\ta\nbad\t \n", "line 2.*empty column 2"),
        (b"good\ta\ngood\tb\n", "2 lines of the class 'good' alone"),
        (b"good\ta\nbad\t\xff\n", "line 2, byte offset 11"),
        (b" \n", "empty file"),
    ],
    ids=["column", "columns", "class", "text", "classes", "bytes", "file"],
)
def test_mistakes_name_the_line(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        load_labelled(write(tmp_path, content))


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="check the spelling"):
        load_labelled(tmp_path / "nowhere.tsv")


def test_a_text_is_on_one_side_wherever_it_occurs():
    texts = [(f"text {i % 300}",) for i in range(600)]
    data = LabelledText(texts, [i % 2 for i in range(600)], ("a", "b"), "made up")
    sides = split_labelled(data, validation_fraction=0.2, test_fraction=0.3)
    assert sum(map(len, sides)) == 600
    seen = [set(side.texts) for side in sides]
    assert len(seen[0] | seen[1] | seen[2]) == sum(map(len, seen))
    shares = [len(side) / 600 for side in sides]
    np.testing.assert_allclose(shares, (0.5, 0.2, 0.3), atol=0.08)
    later = LabelledText([("first",), *texts], [0, *data.labels], ("a", "b"), "")
    more = split_labelled(later, validation_fraction=0.2, test_fraction=0.3)
    assert seen[2] <= set(more[2].texts)


@pytest.mark.parametrize(
    ("fractions", "message"),
    [((0.5, 0.5), "sum is below 1"), ((0.0, 0.1), "above 0"), ((0.1, 0.1), "empty")],
    ids=["all", "none", "few"],
)
def test_splits_that_leave_nothing_are_refused(fractions, message):
    few = LabelledText([("a",), ("b",)], [0, 1], ("a", "b"), "two")
    with pytest.raises(ValueError, match=message):
        split_labelled(
            few, validation_fraction=fractions[0], test_fraction=fractions[1]
        )


def test_rows_are_bos_parts_and_eos():
    (batch,) = batches().in_order(batch_size=4)
    np.testing.assert_array_equal(
        batch.tokens,
        [[1, 5, 6, 7, 2, 0], [1, 8, 2, 0, 0, 0], [1, 9, 9, 9, 9, 2], [0] * 6],
    )
    np.testing.assert_array_equal(batch.real, batch.tokens > 0)
    np.testing.assert_array_equal(batch.labels, [1, 0, 1, 0])
    np.testing.assert_array_equal(batch.weights, [1, 1, 1, 0])
    assert batches().num_cut == 1


def test_parts_have_types_and_the_longest_are_cut():
    pair = batches([[[5] * 9, [6], [7] * 8]], [0], length=13)
    (batch,) = pair.in_order(batch_size=1)
    np.testing.assert_array_equal(batch.tokens[0], [1, *[5] * 4, 2, 6, 2, *[7] * 4, 2])
    np.testing.assert_array_equal(batch.types[0], [0] * 6 + [1] * 2 + [2] * 5)


def test_a_batch_is_a_function_of_seed_and_step():
    data = batches()
    one = data.batch(3, seed=1, batch_size=8)
    again = data.batch(3, seed=1, batch_size=8, rows=slice(2, 5))
    np.testing.assert_array_equal(one.tokens[2:5], again.tokens)
    np.testing.assert_array_equal(one.labels[2:5], again.labels)
    others = [data.batch(4, seed=1, batch_size=8), data.batch(3, seed=2, batch_size=8)]
    for other in others:
        assert (one.tokens != other.tokens).any()
    drawn = np.concatenate(
        [data.batch(step, seed=0, batch_size=8).tokens[:, 1] for step in range(20)]
    )
    assert set(drawn.tolist()) == {5, 8, 9}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": (1,)}, "3 and 1"),
        ({"parts": [], "labels": []}, "0 and 0"),
        ({"length": 2}, "at least 3"),
    ],
    ids=["labels", "none", "length"],
)
def test_batches_that_cannot_be_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        batches(**options)
