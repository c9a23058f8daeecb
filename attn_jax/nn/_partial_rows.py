"""Selected keys and maps of tokens that do not stand at their positions.

In padded and packed rows, keys are looked up by position, maps by that of the query.
"""

import math

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops._shapes import lift


def find(
    chosen: Int[Array, "..."],
    seen: Int[Array, "*b s"],
    allowed: Bool[Array, "*#b #h t s"] | None,
) -> tuple[Int[Array, "..."], Bool[Array, "..."]]:
    """Where the key stands that has a chosen position and may be seen; whether it does.

    In a packed row each segment has a key at position 0.
    """
    where = seen[..., None, None, None, :]
    found = lift(chosen[..., None], where.ndim) == where
    if allowed is not None:
        found = found & allowed[..., None, :]
    return jnp.argmax(found, axis=-1), jnp.any(found, axis=-1)


def map_rows(
    partial: Float[Array, "*b h t r"],
    matrix: Float[Array, "#h n s r"],
    positions: Int[Array, "*b t"],
) -> Float[Array, "*b h t s"]:
    """sum_a R_{p_i j a} partial_ia of queries at positions p_i.

    Each query fetches its own map. At positions that are not among the n nothing that
    comes out has a meaning.
    """
    *leading, h, t, r = partial.shape
    s = matrix.shape[2]
    if t == 0:
        return jnp.zeros((*leading, h, t, s), partial.dtype)
    partial = partial.reshape(math.prod(leading), h, t, r)
    places = jnp.broadcast_to(positions, (*leading, t)).reshape(len(partial), t)
    matrix = matrix.astype(partial.dtype)

    def fetch(row: tuple[Array, Array]) -> Array:
        scores, place = row
        own = jnp.take(matrix, place, axis=1, mode="clip")
        own = jnp.broadcast_to(own, (h, *own.shape[1:]))
        return jnp.einsum("bhr,hbsr->bhs", scores, own)

    rows = jnp.moveaxis(partial, 2, 0), places.T
    logits = jax.lax.map(jax.checkpoint(fetch), rows)
    return jnp.moveaxis(logits, 0, 2).reshape(*leading, h, t, s)
