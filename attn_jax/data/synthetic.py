"""Synthetic tasks: copying a sequence, and recalling values by their keys."""

import numpy as np
from jaxtyping import Int64, UInt64

from attn_jax.data._checks import example_arguments, fail, integer
from attn_jax.data._random import below, choose, random_words, unit
from attn_jax.data.batch import Batch

_MIN_COPY_LENGTH = 5  # the shortest length that leaves room for one w


def copy_batch(
    *,
    seed: int,
    step: int,
    batch_size: int,
    length: int = 128,
    num_symbols: int = 10,
    rows: slice | None = None,
) -> Batch:
    """The copy task: repeat a random sequence after a separator.

        n ~ Uniform{⌊L/4⌋ .. ⌊(L - 1)/2⌋ - 1},  w ∈ {1 .. num_symbols}ⁿ
        tokens = [w, 0, w, 0 ..],  targets = tokens shifted left by one
        weights = 1 at positions n - 1 .. 2n - 1

    The weighted positions predict the separator and then the copy, all of which the
    past determines: the lowest loss is 0. Token 0 is separator and padding, so the
    vocabulary has num_symbols + 1 tokens. Reference: Katharopoulos et al. 2020,
    section 4.1.1 (L = 128, 10 symbols); the range of n is that of the authors' code.

    Args:
        seed: names the stream of examples; take another one to validate.
        step: global step, from 0. A row is a pure function of (seed, step, row).
        batch_size: rows of the global batch.
        length: L, at least 5.
        num_symbols: symbols that w is drawn from.
        rows: the rows of the global batch that are wanted (None: all of them).

    Returns:
        The batch.

    Raises:
        ValueError: an argument is out of range.
    """
    seed, step, wanted = example_arguments(seed, step, batch_size, rows)
    length = integer("length", length, minimum=_MIN_COPY_LENGTH)
    num_symbols = integer("num_symbols", num_symbols, minimum=1)

    shortest, longest = length // 4, (length - 1) // 2 - 1
    words = random_words(
        "copy", seed=seed, step=step, rows=wanted, num_words=1 + longest
    )
    n = shortest + below(words[:, :1], longest - shortest + 1)
    w = 1 + below(words[:, 1:], num_symbols)
    place = np.arange(length + 1)
    in_w = np.clip(np.where(place < n, place, place - n - 1), 0, longest - 1)
    symbols = np.take_along_axis(w, in_w, axis=1)
    sequence = np.where((place != n) & (place <= 2 * n), symbols, 0).astype(np.int32)
    weighted = (place[:-1] >= n - 1) & (place[:-1] <= 2 * n - 1)
    return Batch(sequence[:, :-1], sequence[:, 1:], weighted.astype(np.float32))


def recall_batch(
    *,
    seed: int,
    step: int,
    batch_size: int,
    length: int = 64,
    num_pairs: int = 8,
    vocab_size: int = 8192,
    power: float = 0.01,
    random_filler: bool = False,
    rows: slice | None = None,
) -> Batch:
    """Multi-query associative recall: say the value that each key came with.

        tokens = [k₁ v₁ .. k_p v_p | queries],  a query k_j has target v_j, weight 1
        P(slot i holds a query) ∝ (i + 1)^(power - 1)  without replacement

    Keys are p different tokens of 1 .. vocab_size//2 - 1, values p different tokens of
    vocab_size//2 .. vocab_size - 1. Slot i is position 2p + 2i; every key is asked for
    once. The rest is filler, token 0: unlike in text, targets are not the shifted
    tokens, and no answer follows its query. Guessing among the values is right 1/p of
    the time. Reference: multi-query associative recall of Arora et al. 2023 (Zoology);
    there the first pair tends to be asked first, here the order tells nothing.

    Args:
        seed: names the stream of examples; take another one to validate.
        step: global step, from 0. A row is a pure function of (seed, step, row).
        batch_size: rows of the global batch.
        length: tokens of a row, odd or even, at least 4 * num_pairs - 1.
        num_pairs: p, key-value pairs and queries.
        vocab_size: at least 2 * num_pairs + 2.
        power: in (0, 1]; 1 spreads queries evenly, less puts them nearer to the pairs.
        random_filler: fill with random values instead of 0.
        rows: the rows of the global batch that are wanted (None: all of them).

    Returns:
        The batch.

    Raises:
        ValueError: an argument is out of range.
    """
    seed, step, wanted = example_arguments(seed, step, batch_size, rows)
    _check_recall(length, num_pairs, vocab_size, power)
    p, slots = num_pairs, (length - 2 * num_pairs + 1) // 2
    words = random_words(
        "recall", seed=seed, step=step, rows=wanted, num_words=3 * p + slots + length
    )
    words = np.split(words, np.cumsum([p, p, p, slots]), axis=1)
    keys = 1 + choose(words[0], vocab_size // 2 - 1)
    values = vocab_size // 2 + choose(words[1], (vocab_size + 1) // 2)
    asked = 2 * p + 2 * _query_slots(words[3], choose(words[2], p), power)
    filler = vocab_size // 2 + below(words[4], (vocab_size + 1) // 2)
    tokens = filler if random_filler else np.zeros_like(filler)
    tokens[:, 0 : 2 * p : 2], tokens[:, 1 : 2 * p : 2] = keys, values
    np.put_along_axis(tokens, asked, keys, axis=1)
    targets = np.zeros_like(tokens)
    np.put_along_axis(targets, asked, values, axis=1)
    weights = (targets > 0).astype(np.float32)
    return Batch(tokens.astype(np.int32), targets.astype(np.int32), weights)


def _query_slots(
    words: UInt64[np.ndarray, "b slots"], order: Int64[np.ndarray, "b p"], power: float
) -> Int64[np.ndarray, "b p"]:
    """The slot that asks for each pair: P(slot i) ∝ (i + 1)^(power - 1), all different.

    The p first arrivals of independent exponential clocks of rate P(i) are p draws
    without replacement. `order` is a random permutation that says which pair is asked
    for first, second and so on.
    """
    rate = np.arange(1.0, words.shape[1] + 1.0) ** (power - 1.0)
    arrival = -np.log(unit(words)) / rate
    slots = np.argsort(arrival, axis=1, kind="stable")[:, : order.shape[1]]
    return np.take_along_axis(np.sort(slots, axis=1), order, axis=1)


def _check_recall(length: int, num_pairs: int, vocab_size: int, power: float) -> None:
    p = integer("num_pairs", num_pairs, minimum=1)
    if integer("length", length) < 4 * p - 1:
        fail(
            "length",
            str(length),
            f"at least 4 * num_pairs - 1 = {4 * p - 1}, for num_pairs {p}",
            "use a longer sequence or fewer pairs",
        )
    if integer("vocab_size", vocab_size) < 2 * p + 2:
        fail(
            "vocab_size",
            str(vocab_size),
            f"at least 2 * num_pairs + 2 = {2 * p + 2}, for num_pairs {p}",
            "use more tokens or fewer pairs",
        )
    if not 0 < power <= 1:
        fail("power", repr(power), "a number in (0, 1]", "1 spreads queries evenly")
