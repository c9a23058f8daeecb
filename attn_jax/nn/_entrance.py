"""What comes into a layer: clean tokens, who attends to whom, and positions."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.nn._checks import (
    check_context,
    check_mask,
    check_tokens,
    clean_positions,
)
from attn_jax.nn.attention_config import AttentionConfig
from attn_jax.nn.token_positions import cross_positions, token_positions
from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops.masks import Mask, as_mask


class Entered(NamedTuple):
    """The arguments of a layer's call, checked, with nothing left at padding."""

    x: Float[Array, "*b t m"]
    attended: Float[Array, "*b s m"]  # x itself, or the context
    mask: Mask
    where: dict[str, Any]  # positions of the queries, and those of the keys: seen
    queries: Bool[Array, "*b t"] | None  # the real ones; None is all


def enter(
    config: AttentionConfig,
    x: Float[Array, "*b t m"],
    context: Float[Array, "*b s m"] | None,
    mask: Mask | None,
    positions: Int[Array, "*b t"] | None,
) -> Entered:
    """Check and clean the arguments of a call; see `Attention`."""
    mask = as_mask(mask)
    check_tokens("x", x, config.d_model)
    check_mask(mask, config.mechanism)
    if context is not None:
        check_context(context, x, config.mechanism, config.exclusive)
    t, leading = x.shape[-2], x.shape[:-2]
    s = t if context is None else context.shape[-2]
    real, queries = real_tokens(mask, leading, t, s)
    if context is None:
        seen = counted = token_positions(mask, leading, t)
        x = attended = clean(x, real)
    else:
        counted, seen = cross_positions(mask, leading, t, s)
        x, attended = clean(x, queries), clean(context, real)
    if positions is None:
        positions = counted
    else:
        mine = real if context is None else queries
        limit = config.mechanism.limit
        positions = clean_positions(positions, x.shape[:-1], mine, limit, mask)
        seen = positions if context is None else seen
    return Entered(x, attended, mask, {"positions": positions, "seen": seen}, queries)


def clean(x: Array, real: Array | None) -> Array:
    """x, and 0 at the tokens that are not real; None is all of them."""
    return x if real is None else jnp.where(real[..., None], x, 0)
