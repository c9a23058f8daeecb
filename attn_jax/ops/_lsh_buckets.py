"""Which tokens meet in LSH attention: rotations, buckets, sorted chunks.

Everything here is about one head and integers, but for the hash itself. Places are
those of the sorted order, positions those of the tokens.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key


class Runs(NamedTuple):
    """Of each token: the tokens that it may be sorted among, and cut in chunks with.

    These are the real tokens of its segment. Runs stand one after the other in the
    sorted order, padding behind them all, each padded token a run of its own.

    run: its number, counted in the sorted order.
    start: tokens in the runs before it.
    size: tokens in it.
    """

    run: Int[Array, "*b t"]
    start: Int[Array, "*b t"]
    size: Int[Array, "*b t"]


def find_runs(
    real: Bool[Array, "*b t"] | None,
    ids: list[Int[Array, "*b t"]],
    leading: tuple[int, ...],
    t: int,
) -> Runs:
    """The runs of tokens that are real and, by every one of `ids`, of one segment."""
    shape, axis = (*leading, t), len(leading)
    zeros = jnp.zeros(shape, jnp.int32)
    if real is None and not ids:
        return Runs(zeros, zeros, zeros + t)
    here = jnp.broadcast_to(jnp.arange(t, dtype=jnp.int32), shape)
    hidden = zeros if real is None else (~real).astype(jnp.int32)
    keys = (hidden, *ids, here)
    hidden, *ids, order = jax.lax.sort(keys, dimension=axis, num_keys=len(keys))
    begins = (hidden > 0) | (here == 0)
    for each in ids:
        begins |= jnp.diff(each, axis=-1, prepend=each[..., :1]) != 0
    run = jnp.cumsum(begins, axis=-1, dtype=jnp.int32) - 1
    start = jax.lax.cummax(jnp.where(begins, here, 0), axis=axis)
    later = jnp.where(begins, here, t)[..., 1:]
    later = jnp.concatenate([later, jnp.full((*leading, 1), t, jnp.int32)], axis=-1)
    end = jax.lax.cummin(later, axis=axis, reverse=True)
    back = jnp.argsort(order, axis=-1)
    run, start, size = (
        jnp.take_along_axis(x, back, axis=-1) for x in (run, start, end - start)
    )
    return Runs(run, start, size)


def draw_rotations(
    rng: Key[Array, ""], columns: int, width: int, num_rounds: int, h: int, d: int
) -> Float[Array, "blocks c r h d"]:
    """Standard normal columns of the rotations, in blocks of `width`.

    Column i of every round and head is drawn from fold_in(rng, i): a longer sequence,
    which has more buckets, adds columns and moves none.
    """
    blocks = -(-columns // width)

    def column(i: Any) -> Float[Array, "r h d"]:
        key = jax.random.fold_in(rng, i)
        return jax.random.normal(key, (num_rounds, h, d), jnp.float32)

    drawn = jax.vmap(column)(jnp.arange(blocks * width))
    return drawn.reshape(blocks, width, num_rounds, h, d)


def hash_tokens(
    u: Float[Array, "t d"],
    rotations: Float[Array, "blocks c r d"],
    half: Int[Array, "t"],
) -> Int[Array, "r t"]:
    """b(x) = argmax [x R; -x R], R being the first `half` columns of the rotation.

    By blocks of columns, so that no array has an axis of all buckets. A product in less
    than full precision would put a token into another bucket.
    """
    blocks, c, r, _ = rotations.shape

    def step(carry: Any, block: Any) -> tuple[Any, None]:
        greatest, bucket = carry
        first, columns = block
        scores = jnp.einsum("td,crd->rtc", u, columns, precision="highest")
        column = (first + jnp.arange(c, dtype=jnp.int32))[None, None, :]
        halves = half[None, :, None]
        size = jnp.where(column < halves, jnp.abs(scores), -1)
        peak = jnp.max(size, axis=-1)
        # A maximum and a minimum are faster than an argmax.
        signed = column + jnp.where(scores < 0, halves, 0)
        last = jnp.iinfo(jnp.int32).max
        new = jnp.min(jnp.where(size == peak[..., None], signed, last), axis=-1)
        better = peak > greatest
        carry = jnp.where(better, peak, greatest), jnp.where(better, new, bucket)
        return carry, None

    t = u.shape[0]
    start = jnp.full((r, t), -1, u.dtype), jnp.zeros((r, t), jnp.int32)
    firsts = c * jnp.arange(blocks, dtype=jnp.int32)
    columns = rotations.astype(u.dtype)
    return jax.lax.scan(step, start, (firsts, columns))[0][1]


class Sorted(NamedTuple):
    """The tokens of one round, in the order of run, bucket and position.

    order: the position of the token at each place.
    place: the place of each token.
    chunk: of each token; those of a run are numbered one by one, and between the last
      chunk of a run and the first of the next lies an unused number at least.
    """

    order: Int[Array, "t"]
    place: Int[Array, "t"]
    chunk: Int[Array, "t"]


def sort_tokens(bucket: Int[Array, "t"], runs: Runs, size: int) -> Sorted:
    """Sorts tokens by bucket and cuts every run in chunks of `size`."""
    here = jnp.arange(bucket.shape[0], dtype=jnp.int32)
    order = jax.lax.sort((runs.run, bucket, here), num_keys=3)[2]
    place = jnp.zeros_like(here).at[order].set(here, unique_indices=True)
    # The first chunk of a run has a number above those of all chunks before it.
    first = runs.start // size + 2 * runs.run
    return Sorted(order, place, first + (place - runs.start) // size)


def meet(query: Int[Array, "..."], key: Int[Array, "..."]) -> Bool[Array, "..."]:
    """Whether a query in one chunk sees a key in the other: its own, or one back."""
    return (key == query) | (key == query - 1)
