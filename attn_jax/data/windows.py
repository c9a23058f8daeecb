"""Windows of a long array of tokens: random ones to train, every one to validate."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Integer

from attn_jax.data._checks import example_arguments, fail, integer, resolve_rows
from attn_jax.data._random import below, random_words
from attn_jax.data.batch import Batch


def window_batch(
    data: Integer[np.ndarray, " n"],
    *,
    seed: int,
    step: int,
    batch_size: int,
    length: int,
    rows: slice | None = None,
) -> Batch:
    """Windows at uniformly random places: a pure function of (seed, step).

        tokens[i] = data[o : o + length],  targets[i] = data[o + 1 : o + length + 1]
        o = o(seed, step, i) uniform on 0 .. n - length - 1

    Row i of a step is the same however the batch is divided among hosts or
    micro-batches, and no state is kept: a run resumes by asking for its next step.
    Cost: O(b t) time and memory.

    Args:
        data: bytes of a corpus, or any array of token ids.
        seed: names the order of the run, any integer.
        step: global step, from 0.
        batch_size: rows of the global batch.
        length: tokens of a row; each row reads length + 1 items of data.
        rows: the rows of the global batch that are wanted (None: all of them).

    Returns:
        The batch, every weight 1.

    Raises:
        ValueError: an argument is out of range, or data is shorter than one batch.
    """
    seed, step, wanted = example_arguments(seed, step, batch_size, rows)
    length = integer("length", length, minimum=1)
    check_tokens("data", data)
    check_batch_fits("data", len(data), batch_size=batch_size, length=length)
    words = random_words("windows", seed=seed, step=step, rows=wanted, num_words=1)
    starts = below(words, len(data) - length)
    windows = data[starts + np.arange(length + 1)].astype(np.int32)
    weights = np.ones((len(wanted), length), np.float32)
    return Batch(windows[:, :-1], windows[:, 1:], weights)


def validation_batches(
    data: Integer[np.ndarray, " n"],
    *,
    batch_size: int,
    length: int,
    limit: int | None = None,
    rows: slice | None = None,
) -> Iterator[Batch]:
    """Consecutive windows that make every item a target exactly once.

        tokens of window i = data[i·length : (i + 1)·length]

    Each item but the first, which nothing precedes, is a target of weight 1 once, so
    Σ weights = n - 1 and bits per byte is Σ loss / (n - 1) / ln 2. What is missing in
    the last window and the last batch is filled with token 0 at weight 0: every batch
    has the same shape, and every host gets the same number of batches.

    Args:
        data: bytes of a corpus, or any array of token ids.
        batch_size: rows of the global batch.
        length: tokens of a row.
        limit: at most this many batches, from the start of data (None: all).
        rows: the rows of each global batch that are wanted (None: all of them).

    Returns:
        An iterator of batches; the arguments are checked before it is returned.

    Raises:
        ValueError: an argument is out of range, or data has no target.
    """
    batch_size = integer("batch_size", batch_size, minimum=1)
    length = integer("length", length, minimum=1)
    check_tokens("data", data)
    if len(data) < 2:
        fail(
            "data",
            f"{len(data)} items",
            "at least 2, one to read and one to predict",
            "validate on a longer text",
        )
    num_windows = -(-(len(data) - 1) // length)
    num_batches = -(-num_windows // batch_size)
    if limit is not None:
        num_batches = min(num_batches, integer("limit", limit, minimum=1))
    wanted = resolve_rows(rows, batch_size)
    return (
        _consecutive(data, index * batch_size + np.asarray(wanted, np.int64), length)
        for index in range(num_batches)
    )


def _consecutive(data: np.ndarray, windows: np.ndarray, length: int) -> Batch:
    places = windows[:, None] * length + np.arange(length + 1)
    items = np.where(places < len(data), data[np.minimum(places, len(data) - 1)], 0)
    items = items.astype(np.int32)
    weights = (places[:, 1:] < len(data)).astype(np.float32)
    return Batch(np.where(weights > 0, items[:, :-1], 0), items[:, 1:], weights)


def check_tokens(argument: str, data: Any) -> None:
    """Raise unless data is a one-dimensional NumPy array of integers."""
    got = f"{type(data).__name__}"
    if isinstance(data, np.ndarray):
        if data.ndim == 1 and data.dtype.kind in "iu":
            return
        got = f"an array of shape {data.shape} and dtype {data.dtype}"
    fail(
        argument,
        got,
        "a one-dimensional NumPy array of integers",
        "turn text into one with attn_jax.data.load_corpus or encode_text",
        TypeError,
    )


def check_batch_fits(
    argument: str, count: int, *, batch_size: int, length: int
) -> None:
    """Raise unless `count` items hold one batch of windows that do not overlap."""
    needed = batch_size * length + 1
    if count < needed:
        fail(
            argument,
            f"{count} items",
            f"at least one batch: batch_size {batch_size} x length {length} + 1 "
            f"= {needed}",
            "use a longer text, or a smaller batch_size or length",
        )
