"""Where tokens stand: positions counted from what a mask says is real."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int

from attn_jax.ops._linear_masks import per_token, real_tokens
from attn_jax.ops._mask_rules import Segments
from attn_jax.ops.masks import Mask


def token_positions(
    mask: Mask, leading: tuple[int, ...], t: int
) -> Int[Array, "*b t"] | None:
    """Real tokens before each token, in its own segment; None is 0 .. t - 1.

    Padding does not count, on the left or on the right, so a padded row has the
    positions of the same row without padding; a packed segment starts at 0. What stands
    at padding is a valid index without meaning, and ids there have none either.
    """
    real, _ = real_tokens(mask, leading, t, t)
    ids = [rule.queries for rule in mask.find(Segments) if rule.queries.shape[-1] == t]
    return _count(real, ids, leading, t)


def cross_positions(
    mask: Mask, leading: tuple[int, ...], t: int, s: int
) -> tuple[Int[Array, "*b t"] | None, Int[Array, "*b s"] | None]:
    """The same for the queries of cross-attention, and for its keys."""
    real, queries = real_tokens(mask, leading, t, s)
    rules = mask.find(Segments)
    return (
        _count(queries, [rule.queries for rule in rules], leading, t),
        _count(real, [rule.key_ids for rule in rules], leading, s),
    )


def _count(
    real: Array | None, ids: list[Array], leading: tuple[int, ...], t: int
) -> Int[Array, "*b t"] | None:
    if (real is None and not ids) or t == 0:
        return None
    ids = [per_token(each, leading, t, "segments") for each in ids]
    counted = jnp.ones((*leading, t), jnp.int32) if real is None else real
    before = jnp.cumsum(counted, axis=-1, dtype=jnp.int32) - counted
    if real is not None:
        where = jnp.broadcast_to(jnp.arange(t), real.shape)
        last = jax.lax.cummax(jnp.where(real, where, 0), axis=real.ndim - 1)
        ids = [jnp.take_along_axis(each, last, axis=-1) for each in ids]
    for each in ids:
        begins = jnp.diff(each, axis=-1, prepend=each[..., :1]) != 0
        start = jax.lax.cummax(jnp.where(begins, before, 0), axis=before.ndim - 1)
        before = before - start
    return before
