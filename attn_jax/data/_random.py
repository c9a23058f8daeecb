"""Counter-based random numbers: a pure function of (stream, seed, step, row).

Only raw Philox words are used. NumPy guarantees those across versions, whereas the
methods of `np.random.Generator` may change with a release.
"""

import hashlib

import numpy as np
from jaxtyping import Float64, Int64, UInt64

_WORDS_PER_BLOCK = 4  # a Philox 4x64 counter yields four words


def random_words(
    stream: str, *, seed: int, step: int, rows: range, num_words: int
) -> UInt64[np.ndarray, "b w"]:
    """Random 64-bit words, the same for a row whichever other rows are asked for.

    Args:
        stream: a name; two names give independent numbers for one seed.
        seed: any integer.
        step: the global step, at least 0.
        rows: consecutive rows of the global batch.
        num_words: words a row; changing it changes all of them.

    Returns:
        One line of words for each row.
    """
    digest = hashlib.blake2b(f"attn_jax.data/{stream}/{seed}".encode(), digest_size=16)
    blocks = -(-num_words // _WORDS_PER_BLOCK)
    philox = np.random.Philox(
        key=int.from_bytes(digest.digest(), "little"),
        counter=(step << 128) + rows.start * blocks,
    )
    words = philox.random_raw(len(rows) * blocks * _WORDS_PER_BLOCK)
    return words.reshape(len(rows), blocks * _WORDS_PER_BLOCK)[:, :num_words]


def below(words: UInt64[np.ndarray, "..."], bound: int) -> Int64[np.ndarray, "..."]:
    """Uniform integers 0 .. bound - 1; the bias is below bound / 2**64."""
    return (words % np.uint64(bound)).astype(np.int64)


def unit(words: UInt64[np.ndarray, "..."]) -> Float64[np.ndarray, "..."]:
    """Uniform numbers strictly between 0 and 1."""
    return ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52


def choose(
    words: UInt64[np.ndarray, "b k"], population: int
) -> Int64[np.ndarray, "b k"]:
    """Distinct integers of 0 .. population - 1, k a row, in random order.

    A Fisher-Yates shuffle that stops after k places, on all rows at once.
    """
    num_rows, count = words.shape
    pool = np.tile(np.arange(population), (num_rows, 1))
    row = np.arange(num_rows)
    for place in range(count):
        other = place + below(words[:, place], population - place)
        pool[row, place], pool[row, other] = pool[row, other], pool[row, place]
    return pool[:, :count]
