"""One side of token shards: batches of windows that are mapped into memory."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float32, Int32, Int64

from attn_jax.data._checks import example_arguments, fail, integer
from attn_jax.data._random import below, random_words, shuffled
from attn_jax.data._shard_index import Shard
from attn_jax.data.batch import Batch
from attn_jax.data.windows import validation_batches


class ShardBatch(NamedTuple):
    """Windows of packed documents.

    tokens, targets, weights: as in `Batch`.
    segments: which document of its row a token belongs to, counted from 0, or from 1
        where the row begins with a document. `masks.segments(segments)` keeps documents
        apart; without it a token sees everything before it in the row.
    """

    tokens: Int32[np.ndarray, "b t"]
    targets: Int32[np.ndarray, "b t"]
    weights: Float32[np.ndarray, "b t"]
    segments: Int32[np.ndarray, "b t"]


class TokenSplit:
    """One side of token shards.

    A separator stands before each document: it is the first token of its document, from
    which the next one is predicted, and the target at the last token of the document
    before.

    Attributes:
        name: "train" or "validation".
        num_tokens: tokens of all shards, separators included.
        num_documents: documents of all shards.
    """

    def __init__(
        self,
        name: str,
        shards: Sequence[Shard],
        arrays: Sequence[np.ndarray],
        separator: int,
    ) -> None:
        self.name = name
        self.num_tokens = sum(shard.tokens for shard in shards)
        self.num_documents = sum(shard.documents for shard in shards)
        self._shards, self._arrays, self._separator = shards, arrays, separator
        self._sizes = np.array([shard.tokens for shard in shards], np.int64)

    def num_windows(self, length: int) -> int:
        """Windows of an epoch.

        Raises:
            ValueError: a shard is shorter than one window.
        """
        return int(self._windows(length).sum())

    def batch(
        self,
        step: int,
        *,
        seed: int,
        batch_size: int,
        length: int,
        rows: slice | None = None,
    ) -> ShardBatch:
        """Windows in random order, each once an epoch: a pure function of (seed, step).

            row i of step s is window π_e(n mod W) of epoch e = n // W,  n = s·b + i

        W counts the windows of length + 1 tokens that follow one another, the last
        token of one being the first of the next, in every shard. π_e is a permutation
        that is computed, not stored. What of a shard doesn't fill a window is left out
        in front and behind, in parts that each epoch draws anew. No state is kept: a
        run resumes by asking for its next step. Cost: O(b t) time and memory.

        Args:
            step: global step, from 0.
            seed: names the order of the run, any integer.
            batch_size: rows of the global batch.
            length: tokens of a row; each row reads length + 1 of a shard.
            rows: the rows of the global batch that are wanted (None: all of them); host
                i of h takes slice(i·b // h, (i + 1)·b // h).

        Raises:
            ValueError: an argument is out of range, a shard is shorter than a window,
                or there are fewer windows than rows.
        """
        seed, step, wanted = example_arguments(seed, step, batch_size, rows)
        counts = self._windows(length)
        total = int(counts.sum())
        if total < batch_size:
            fail(
                f"batch_size ({self.name})",
                str(batch_size),
                f"at most {total}, the windows of {length} + 1 tokens",
                "use more text, or a smaller batch_size or length",
            )
        numbers = [step * batch_size + row for row in wanted]
        windows = np.empty((len(numbers), length + 1), np.int32)
        for epoch in sorted({number // total for number in numbers}):
            chosen = [i for i, number in enumerate(numbers) if number // total == epoch]
            places = np.array([numbers[i] % total for i in chosen], np.int64)
            found = shuffled(
                "shards", seed=seed, epoch=epoch, places=places, count=total
            )
            windows[chosen] = self._read(found, counts, seed, epoch, length)
        weights = np.ones((len(numbers), length), np.float32)
        return self._segmented(Batch(windows[:, :-1], windows[:, 1:], weights))

    def in_order(
        self,
        *,
        batch_size: int,
        length: int,
        limit: int | None = None,
        rows: slice | None = None,
    ) -> Iterator[ShardBatch]:
        """Every token but the first of a shard as a target once, to validate.

        Args:
            batch_size, length, limit, rows: as in `validation_batches`, which reads
                each shard; limit counts batches of all of them.
        """
        each = [
            validation_batches(array, batch_size=batch_size, length=length, rows=rows)
            for array in self._arrays
        ]
        stop = None if limit is None else integer("limit", limit, minimum=1)
        joined = itertools.islice(itertools.chain.from_iterable(each), stop)
        return map(self._segmented, joined)

    def _windows(self, length: int) -> Int64[np.ndarray, " k"]:
        """Windows of each shard."""
        length = integer("length", length, minimum=1)
        shortest = self._shards[int(np.argmin(self._sizes))]
        if shortest.tokens <= length:
            fail(
                "length",
                str(length),
                f"less than the {shortest.tokens} tokens of {shortest.file}, so that a "
                "window of length + 1 fits into every shard",
                "pass a smaller one, or prepare larger shards",
            )
        return (self._sizes - 1) // length

    def _read(
        self,
        windows: Int64[np.ndarray, " b"],
        counts: Int64[np.ndarray, " k"],
        seed: int,
        epoch: int,
        length: int,
    ) -> Int32[np.ndarray, "b n"]:
        """The length + 1 tokens of some windows of an epoch."""
        ends = np.cumsum(counts)
        shards = np.searchsorted(ends, windows, side="right")
        every = range(len(counts))
        words = random_words(
            "shards/first", seed=seed, step=epoch, rows=every, num_words=1
        )
        firsts = below(words[:, 0], (self._sizes - 1) % length + 1)
        read = np.empty((len(windows), length + 1), np.int32)
        for row, (shard, window) in enumerate(zip(shards, windows, strict=True)):
            place = window - (ends[shard] - counts[shard])
            start = firsts[shard] + place * length
            read[row] = self._arrays[shard][start : start + length + 1]
        return read

    def _segmented(self, batch: Batch) -> ShardBatch:
        begins = batch.tokens == self._separator
        return ShardBatch(*batch, np.cumsum(begins, axis=1, dtype=np.int32))
