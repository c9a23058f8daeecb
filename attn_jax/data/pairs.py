"""Batches of sentence pairs with about as many tokens each, bucketed by length."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64, Integer

from attn_jax.data._checks import fail, integer
from attn_jax.data._random import random_words

Tokens = Sequence[int] | Integer[np.ndarray, " _"]
_FIRST_LENGTH = 16
_MULTIPLE = 8


class PairBatch(NamedTuple):
    """Sentence pairs of one step, padded with 0 to one length.

    source: the sentences, each ended by eos.
    source_real: True at the tokens of a sentence, its eos included.
    target_in: bos and the translation: what the decoder reads.
    labels: the translation and eos: what it has to say at each position.
    weights: 1 where a label counts and 0 at padding, so the loss is
        Σ weights · loss / Σ weights.
    indices: the place of each pair among those that were passed, -1 in an empty row.
    """

    source: Int32[np.ndarray, "b s"]
    source_real: Bool[np.ndarray, "b s"]
    target_in: Int32[np.ndarray, "b t"]
    labels: Int32[np.ndarray, "b t"]
    weights: Float32[np.ndarray, "b t"]
    indices: Int32[np.ndarray, " b"]


class Shape(NamedTuple):
    """The batches of one bucket: rows, and the length of source and target."""

    rows: int
    length: int


class _Side(NamedTuple):
    """Sequences one after another, and where each begins and the last one ends."""

    tokens: Int32[np.ndarray, " n"]
    ends: Int64[np.ndarray, " i"]


class PairBatches:
    """Sentence pairs in batches that hold about as many tokens each.

        rows · 2 · length <= max_tokens

    is the budget: what a batch costs after padding, source and target together. A pair
    goes to the first bucket whose length holds the longer of its sides and its eos. All
    batches of a bucket have one shape, so a jitted step compiles once a bucket; the
    last of each is filled with empty rows of weight 0.

    An epoch is a fresh permutation of the pairs of each bucket and of the batches of
    all, and every pair occurs once in it. A batch is a pure function of (seed, step):
    a run resumes by asking for its next step, which costs no more than one permutation.

    Attributes:
        shapes: of the buckets that hold a pair, shortest first.
        num_pairs: pairs that are kept.
        num_dropped: pairs that were longer than max_length.
        batches_per_epoch: steps in which every pair occurs once.
        fill: the part of the tokens of an epoch that isn't padding.
    """

    def __init__(
        self,
        source: Sequence[Tokens],
        target: Sequence[Tokens],
        *,
        bos_id: int,
        eos_id: int,
        buckets: list[tuple[Shape, Int64[np.ndarray, " _"]]],
        num_dropped: int,
    ) -> None:
        self._source, self._target = _flat("source", source), _flat("target", target)
        self._ends_with, self._begins_with = eos_id, bos_id
        self._members = [members for _, members in buckets]
        self.shapes = tuple(shape for shape, _ in buckets)
        counts = [-(-len(members) // shape.rows) for shape, members in buckets]
        self._bucket_of = np.repeat(np.arange(len(buckets)), counts)
        self._place_of = np.concatenate([np.arange(count) for count in counts])
        self.num_pairs = sum(map(len, self._members))
        self.num_dropped = num_dropped
        self.batches_per_epoch = len(self._bucket_of)
        self._memo: tuple[tuple[int, int], _Epoch] | None = None

    @property
    def fill(self) -> float:
        """The part of the tokens of an epoch that isn't padding."""
        kept = np.concatenate(self._members)
        real = sum(
            int(np.sum(np.diff(side.ends)[kept] + 1))
            for side in (self._source, self._target)
        )
        shapes = [self.shapes[bucket] for bucket in self._bucket_of]
        return real / sum(2 * shape.rows * shape.length for shape in shapes)

    @property
    def summary(self) -> str:
        """One line on what there is, for the start of a run."""
        shapes = ", ".join(f"{shape.rows} x {shape.length}" for shape in self.shapes)
        return (
            f"{self.num_pairs} pairs ({self.num_dropped} too long, left out) in "
            f"{self.batches_per_epoch} batches an epoch, {self.fill:.0%} of their "
            f"tokens real; shapes {shapes}"
        )

    def batch(
        self, step: int, *, seed: int, part: tuple[int, int] | None = None
    ) -> PairBatch:
        """The batch of a step: a pure function of (seed, step).

        Args:
            step: global step, from 0; epoch e begins at step e · batches_per_epoch.
            seed: names the order of the run, any integer.
            part: (i, n) for the i-th of n equal parts of the rows, which is what one of
                n hosts needs (None: all rows).

        Returns:
            The batch.

        Raises:
            ValueError: an argument is out of range, or rows don't divide by n.
        """
        step, seed = integer("step", step, minimum=0), integer("seed", seed)
        epoch, place = divmod(step, self.batches_per_epoch)
        order = self._epoch(seed, epoch)
        number = int(order.batches[place])
        bucket = int(self._bucket_of[number])
        return self._make(bucket, number, order.members[bucket], part)

    def in_order(self, *, part: tuple[int, int] | None = None) -> Iterator[PairBatch]:
        """Every pair once, short ones first and else as they came: to validate.

        Over all batches, the loss of a token is Σ loss / Σ weights; `indices` say which
        pair a row is, to put translations back into the order of the text.

        Args:
            part: as for `batch`.
        """
        for rows, _ in self.shapes:
            _part_of(part, rows)
        return (
            self._make(int(bucket), number, self._members[bucket], part)
            for number, bucket in enumerate(self._bucket_of)
        )

    def _epoch(self, seed: int, epoch: int) -> "_Epoch":
        """The permutations of an epoch; those asked for last are kept, for speed."""
        memo = self._memo
        if memo is None or memo[0] != (seed, epoch):
            members = [
                chosen[_permutation(f"pairs/{i}", seed, epoch, len(chosen))]
                for i, chosen in enumerate(self._members)
            ]
            batches = _permutation("pairs", seed, epoch, self.batches_per_epoch)
            memo = self._memo = ((seed, epoch), _Epoch(members, batches))
        return memo[1]

    def _make(
        self,
        bucket: int,
        number: int,
        members: Int64[np.ndarray, " i"],
        part: tuple[int, int] | None,
    ) -> PairBatch:
        rows, length = self.shapes[bucket]
        begin = int(self._place_of[number]) * rows
        chosen = members[begin : begin + rows]
        chosen = np.pad(chosen, (0, rows - len(chosen)), constant_values=-1)
        return self._fill_in(chosen[_part_of(part, rows)], length)

    def _fill_in(self, chosen: Int64[np.ndarray, " b"], length: int) -> PairBatch:
        source, target_in, labels = (
            np.zeros((len(chosen), length), np.int32) for _ in range(3)
        )
        real = np.zeros((2, len(chosen)), np.int64)
        for row, index in enumerate(chosen.tolist()):
            if index < 0:
                continue
            sentence, translation = _get(self._source, index), _get(self._target, index)
            n, k = len(sentence), len(translation)
            source[row, :n], source[row, n] = sentence, self._ends_with
            target_in[row, 0], target_in[row, 1 : k + 1] = (
                self._begins_with,
                translation,
            )
            labels[row, :k], labels[row, k] = translation, self._ends_with
            real[:, row] = n + 1, k + 1
        source_real, counts = np.arange(length) < real[:, :, None]
        return PairBatch(
            source=source,
            source_real=source_real,
            target_in=target_in,
            labels=labels,
            weights=counts.astype(np.float32),
            indices=chosen.astype(np.int32),
        )


class _Epoch(NamedTuple):
    """The pairs of each bucket, and the batches of all, in the order of an epoch."""

    members: list[Int64[np.ndarray, " _"]]
    batches: Int64[np.ndarray, " n"]


def pair_batches(
    source: Sequence[Tokens],
    target: Sequence[Tokens],
    *,
    bos_id: int,
    eos_id: int,
    max_tokens: int,
    max_length: int,
    lengths: Sequence[int] | None = None,
    rows_multiple: int = 1,
    too_long: Literal["drop", "raise"] = "drop",
) -> PairBatches:
    """Sort encoded pairs into buckets, once, to take batches of any step from.

    Args:
        source: token ids of each sentence, without eos, all above 0, which is padding.
        target: token ids of each translation, without bos and eos, as many.
        bos_id: what begins a target.
        eos_id: what ends a source and a target.
        max_tokens: tokens of a batch at most, padding, source and target counted.
        max_length: longest side of a pair in tokens, its eos included.
        lengths: of the buckets, rising, the last one max_length (None: 16, then each
            half as long again, in multiples of 8: six buckets up to 128).
        rows_multiple: what the rows of every batch are a multiple of; the number of
            devices that share a batch.
        too_long: "drop" leaves longer pairs out and counts them, "raise" refuses them.

    Returns:
        The batches.

    Raises:
        ValueError: the sides differ in number, ids are out of range, no pair is short
            enough, or max_tokens doesn't hold rows_multiple pairs of max_length.
    """
    max_tokens = integer("max_tokens", max_tokens, minimum=1)
    max_length = integer("max_length", max_length, minimum=2)
    rows_multiple = integer("rows_multiple", rows_multiple, minimum=1)
    ids = [
        integer(n, i, minimum=1) for n, i in (("bos_id", bos_id), ("eos_id", eos_id))
    ]
    if too_long not in ("drop", "raise"):
        fail("too_long", repr(too_long), "'drop' or 'raise'", "pass one of them")
    bounds = bucket_lengths(max_length) if lengths is None else list(lengths)
    _check_lengths(bounds, max_length)
    needed = 2 * max_length * rows_multiple
    if max_tokens < needed:
        fail(
            "max_tokens",
            str(max_tokens),
            f"at least {needed} = {rows_multiple} rows of 2 x max_length {max_length}",
            "pass more, or a smaller max_length or rows_multiple",
        )
    longest = _longest_sides(source, target)
    buckets, num_dropped = _sort(longest, bounds, max_length, too_long)
    shapes = [
        (Shape(_rows(max_tokens, length, rows_multiple), length), members)
        for length, members in buckets
    ]
    return PairBatches(
        source,
        target,
        bos_id=ids[0],
        eos_id=ids[1],
        buckets=shapes,
        num_dropped=num_dropped,
    )


def bucket_lengths(max_length: int) -> list[int]:
    """16, then each half as long again in multiples of 8, and max_length at the end."""
    lengths = []
    length = _FIRST_LENGTH
    while length < max_length:
        lengths.append(length)
        length = -(-3 * length // (2 * _MULTIPLE)) * _MULTIPLE
    return [*lengths, max_length]


def _rows(max_tokens: int, length: int, multiple: int) -> int:
    return max_tokens // (2 * length) // multiple * multiple


def _check_lengths(lengths: Sequence[int], max_length: int) -> None:
    rising = all(a < b for a, b in itertools.pairwise(lengths))
    if not lengths or lengths[0] < 1 or not rising or lengths[-1] != max_length:
        expected = f"rising lengths from 1, the last one max_length {max_length}"
        fail("lengths", str(list(lengths)), expected, "or pass None for the default")


def _longest_sides(
    source: Sequence[Tokens], target: Sequence[Tokens]
) -> Int64[np.ndarray, " i"]:
    """Tokens of the longer side of each pair, its eos included."""
    if len(source) != len(target) or not len(source):
        fail(
            "source and target",
            f"{len(source)} and {len(target)} sentences",
            "as many of both, at least one",
            "encode both sides of the same pairs",
        )
    lengths = [[len(sentence) for sentence in side] for side in (source, target)]
    return np.max(np.asarray(lengths, np.int64), axis=0) + 1


def _sort(
    longest: Int64[np.ndarray, " i"],
    lengths: Sequence[int],
    max_length: int,
    too_long: str,
) -> tuple[list[tuple[int, Int64[np.ndarray, " _"]]], int]:
    """Length and pairs of each bucket that has some, and how many are longer."""
    over = np.flatnonzero(longest > max_length)
    if len(over) and too_long == "raise":
        fail(
            f"pair {over[0]}",
            f"{longest[over[0]]} tokens in its longer side, eos included",
            f"at most max_length {max_length} ({len(over)} pairs are longer)",
            "pass a larger max_length, or too_long='drop'",
        )
    if len(over) == len(longest):
        fail(
            "max_length",
            str(max_length),
            f"at least {longest.min()}, the length of the shortest pair",
            "pass a larger one",
        )
    bucket = np.searchsorted(np.asarray(lengths), longest)
    members = [np.flatnonzero(bucket == i) for i in range(len(lengths))]
    found = [(n, m) for n, m in zip(lengths, members, strict=True) if len(m)]
    return found, len(over)


def _part_of(part: tuple[int, int] | None, rows: int) -> slice:
    if part is None:
        return slice(0, rows)
    index, count = (integer("part", number, minimum=0) for number in part)
    if index >= count or rows % count:
        fail(
            "part",
            str(part),
            f"(i, n) with i < n and n a divisor of the {rows} rows of this batch",
            "build pair_batches with rows_multiple, a multiple of n",
        )
    return slice(index * rows // count, (index + 1) * rows // count)


def _permutation(
    stream: str, seed: int, epoch: int, count: int
) -> Int64[np.ndarray, " n"]:
    words = random_words(stream, seed=seed, step=epoch, rows=range(1), num_words=count)
    return np.argsort(words[0], kind="stable")


def _flat(argument: str, sentences: Sequence[Tokens]) -> _Side:
    ends = np.cumsum([0, *map(len, sentences)], dtype=np.int64)
    tokens = np.concatenate([np.asarray(one, np.int32) for one in sentences])
    if len(tokens) and tokens.min() < 1:
        place = int(np.searchsorted(ends, np.argmin(tokens), side="right")) - 1
        fail(
            f"{argument}[{place}]",
            f"id {tokens.min()}",
            "ids above 0, which is padding",
            "encode with a vocabulary whose padding has id 0",
        )
    return _Side(tokens, ends)


def _get(side: _Side, index: int) -> Int32[np.ndarray, " k"]:
    return side.tokens[side.ends[index] : side.ends[index + 1]]
