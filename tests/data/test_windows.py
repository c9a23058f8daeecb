"""Windows of a text: pure in (seed, step), and complete where they validate."""

import os
import runpy
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attn_jax.data import Batch, validation_batches, window_batch

PINNED = [
    [376, 847, 198, 831, 480, 68],
    [127, 513, 909, 227, 640, 688],
    [169, 651, 686, 924, 49, 838],
]
DATA = np.arange(1000, dtype=np.int64)  # each item says where it lies


def window(step: int, seed: int = 3, **changes) -> Batch:
    arguments = {"seed": seed, "step": step, "batch_size": 6, "length": 17} | changes
    return window_batch(DATA, **arguments)


def same(one: Batch, other: Batch) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_windows_are_consecutive_items_and_targets_follow():
    batch = window(5)
    starts = batch.tokens[:, :1]
    assert np.array_equal(batch.tokens, starts + np.arange(17))
    assert np.array_equal(batch.targets, starts + np.arange(1, 18))
    assert np.array_equal(batch.weights, np.ones((6, 17)))
    assert [a.dtype for a in batch] == [np.int32, np.int32, np.float32]


def test_batches_do_not_depend_on_the_order_of_asking():
    forward = [window(step) for step in range(8)]
    backward = [window(step) for step in reversed(range(8))][::-1]
    assert all(map(same, forward, backward))
    for i in range(8):
        for j in range(i):
            assert not same(forward[i], forward[j])
    assert not same(window(0, seed=3), window(0, seed=4))


def test_the_stream_is_pinned():
    """A stored run resumes only if these numbers never change."""
    starts = [window(step, seed=0).tokens[:, 0].tolist() for step in (0, 1, 2**40)]
    assert starts == PINNED


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**63))
def test_rows_are_those_of_the_global_batch(a, b, step):
    rows = slice(min(a, b), max(a, b))
    part, whole = window(step, batch_size=9, rows=rows), window(step, batch_size=9)
    assert same(part, Batch(*(array[rows] for array in whole)))


def test_a_row_does_not_depend_on_the_batch_size():
    small, large = window(4, batch_size=3), window(4, batch_size=12)
    assert same(small, Batch(*(array[:3] for array in large)))


def test_places_are_uniform_and_reach_both_ends():
    data = np.arange(21)
    starts = np.concatenate(
        [
            window_batch(data, seed=0, step=k, batch_size=1, length=16).tokens[:, 0]
            for k in range(4000)
        ]
    )
    counts = np.bincount(starts, minlength=5)
    assert len(counts) == 5
    assert np.all(np.abs(counts - 800) < 130)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 90), st.integers(1, 5), st.integers(1, 20))
def test_validation_makes_every_item_a_target_once(count, batch_size, length):
    data = np.arange(count)
    seen: Counter[tuple[int, int]] = Counter()
    for batch in validation_batches(data, batch_size=batch_size, length=length):
        assert [array.shape for array in batch] == [(batch_size, length)] * 3
        real = batch.weights == 1
        assert real.any()
        assert np.all(real | (batch.weights == 0))
        assert not batch.tokens[~real].any()
        assert not batch.targets[~real].any()
        seen.update(
            zip(batch.tokens[real].tolist(), batch.targets[real].tolist(), strict=True)
        )
    assert seen == Counter((i, i + 1) for i in range(count - 1))


def test_validation_windows_are_consecutive():
    batches = list(validation_batches(DATA, batch_size=3, length=100))
    tokens = np.concatenate([batch.tokens for batch in batches])
    assert tokens[:, 0].tolist() == [*range(0, 1000, 100), 0, 0]


def test_validation_rows_and_limit():
    arguments = {"batch_size": 4, "length": 13}
    whole = list(validation_batches(DATA, **arguments))
    limited = list(validation_batches(DATA, **arguments, limit=5))
    assert len(whole) == 20
    assert len(limited) == 5
    assert all(map(same, limited, whole))
    assert len(list(validation_batches(DATA, **arguments, limit=99))) == 20
    hosts = [
        list(validation_batches(DATA, **arguments, rows=rows))
        for rows in (slice(0, 1), slice(1, 4))
    ]
    assert [len(batches) for batches in hosts] == [20, 20]
    for one, other, batch in zip(*hosts, whole, strict=True):
        joined = [np.concatenate(pair) for pair in zip(one, other, strict=True)]
        assert same(Batch(*joined), batch)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"step": -1}, "step: got -1; expected an integer of at least 0; pass 0"),
        ({"batch_size": 0}, "batch_size: got 0; expected an integer of at least 1"),
        ({"length": 0}, "length: got 0; expected an integer of at least 1"),
        (
            {"batch_size": 59},
            r"data: got 1000 items; expected .* 59 x .* = 1004; use a",
        ),
        (
            {"rows": slice(4, 7)},
            r"rows: got slice\(4, 7, None\).*the 6 rows .*; divide",
        ),
        ({"rows": slice(-2, 6)}, r"rows: got slice\(-2, 6"),
        ({"rows": slice(3, 2)}, r"rows: got slice\(3, 2"),
        ({"rows": slice(0, 6, 2)}, r"rows: got slice\(0, 6, 2"),
    ],
)
def test_bad_arguments(changes, message):
    with pytest.raises(ValueError, match=message):
        window(**({"step": 0} | changes))


def test_bad_validation_arguments_raise_at_the_call():
    good = {"batch_size": 2, "length": 4}
    with pytest.raises(ValueError, match=r"limit: got 0; expected .* at least 1; pass"):
        validation_batches(DATA, **good, limit=0)
    with pytest.raises(
        ValueError, match=r"data: got 1 items; expected at least 2.*; val"
    ):
        validation_batches(DATA[:1], **good)
    with pytest.raises(ValueError, match="length: got 0"):
        validation_batches(DATA, batch_size=2, length=0)
    with pytest.raises(ValueError, match="rows: got"):
        validation_batches(DATA, **good, rows=slice(0, 3))


@pytest.mark.usefixtures("plain_errors")
@pytest.mark.parametrize("data", [b"bytes", DATA.astype(float), DATA.reshape(10, 100)])
def test_data_of_the_wrong_kind(data):
    message = "data: got .*; expected a one-dimensional NumPy array of integers; turn"
    with pytest.raises(TypeError, match=message):
        window_batch(data, seed=0, step=0, batch_size=1, length=2)
    with pytest.raises(TypeError, match=message):
        validation_batches(data, batch_size=1, length=2)


@pytest.mark.usefixtures("plain_errors")
def test_numbers_of_the_wrong_kind():
    with pytest.raises(TypeError, match=r"step: got 1\.5; expected an integer"):
        window(1.5)
    assert same(window(np.int64(5)), window(5))


def test_another_process_gets_the_same_batches_without_a_network():
    program = Path(__file__).with_name("digest.py")
    result = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": str(program.parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == runpy.run_path(str(program))["digest"]()
