"""Counter-based random numbers: a pure function of (stream, seed, step, row).

Only raw Philox words are used. NumPy guarantees those across versions, whereas the
methods of `np.random.Generator` may change with a release.
"""

import hashlib

import numpy as np
from jaxtyping import Float64, Int64, UInt64

_WORDS_PER_BLOCK = 4  # a Philox 4x64 counter yields four words
_ROUNDS = 8  # of a Feistel network; four are enough for a strong round function


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


def below(
    words: UInt64[np.ndarray, "..."], bound: int | Int64[np.ndarray, "..."]
) -> Int64[np.ndarray, "..."]:
    """Uniform integers 0 .. bound - 1; the bias is below bound / 2**64."""
    return (words % np.asarray(bound, np.uint64)).astype(np.int64)


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


def shuffled(
    stream: str, *, seed: int, epoch: int, places: Int64[np.ndarray, " b"], count: int
) -> Int64[np.ndarray, " b"]:
    """What stands at these places of a random permutation of 0 .. count - 1.

    The permutation isn't stored: a Feistel network permutes the numbers of 2k bits, the
    fewest that hold count, and a number that leads out of the range is followed until
    it comes back into it. Cost: O(b) time and memory, whatever count is.

    Args:
        stream: a name; two names give independent permutations for one seed.
        seed: any integer.
        epoch: which permutation, at least 0.
        places: from 0 to count - 1.
        count: how many numbers are permuted.
    """
    bits = -(-max(count - 1, 1).bit_length() // 2)
    words = random_words(
        stream, seed=seed, step=epoch, rows=range(1), num_words=_ROUNDS
    )
    numbers = _network(places.astype(np.uint64), words[0], bits)
    while np.any(out := numbers >= count):
        numbers[out] = _network(numbers[out], words[0], bits)
    return numbers.astype(np.int64)


def _network(
    numbers: UInt64[np.ndarray, " b"], keys: UInt64[np.ndarray, " r"], bits: int
) -> UInt64[np.ndarray, " b"]:
    """A permutation of the numbers of twice so many bits."""
    half, mask = np.uint64(bits), np.uint64((1 << bits) - 1)
    left, right = numbers >> half, numbers & mask
    for key in keys:
        left, right = right, left ^ (_mixed(right + key) & mask)
    return left << half | right


def _mixed(x: UInt64[np.ndarray, " b"]) -> UInt64[np.ndarray, " b"]:
    """Every bit of the result depends on every bit of x (the finish of SplitMix64)."""
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return x ^ x >> np.uint64(31)
