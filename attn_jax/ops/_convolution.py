"""A causal convolution over tokens that keeps to segments, padding and masks."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops._linear_masks import real_tokens
from attn_jax.ops._shapes import lift
from attn_jax.ops._synthesizer_layers import first_layer
from attn_jax.ops.masks import Mask


def convolved(
    x: Float[Array, "*b t m"],
    w: Float[Array, "c h m d"],
    b: Float[Array, "h d"] | None,
    *,
    mask: Mask,
    positions: Int[Array, "*b t"] | None = None,
    cached: Float[Array, "*b s m"] | None = None,
) -> Float[Array, "*b h t d"]:
    """sum_c x_{i-c} W_c + b over the tokens up to i, in at least float32.

    x_{i-c} is the c-th real token before i, of the position c before its own. It counts
    as 0 where there is none, or where the mask hides it from query i.

    Args:
      positions: of x; None takes the tokens as they stand.
      cached: tokens by position, among them those of x; None takes those of x.
    """
    y, taps = first_layer(x, w[0], b), w.shape[0] - 1
    if taps == 0 or x.shape[-2] == 0:
        return y
    index = _index(x, taps, mask, positions, cached)
    s = x.shape[-2] if cached is None else cached.shape[-2]
    seen = _seen(index, mask, x.shape[-2], s)
    if cached is None and real_tokens(mask, x.shape[:-2], s, s)[0] is None:
        before = _shifted(x, taps)
    else:
        before = _taken(x if cached is None else cached, index)
    for c in range(taps):
        heads = seen[..., c]
        tap = jnp.where(jnp.any(heads, axis=-2)[..., None], before[..., c, :], 0)
        more = first_layer(tap, w[c + 1], None)
        y = y + (more if heads.shape[-2] == 1 else jnp.where(heads[..., None], more, 0))
    return y


def _index(
    x: Array, taps: int, mask: Mask, positions: Array | None, cached: Array | None
) -> Int[Array, "*b t c"]:
    """Where the tokens 1 .. taps before each stand; negative where there is none."""
    *leading, t, _ = x.shape
    back = jnp.arange(1, taps + 1).reshape((1,) * (x.ndim - 1) + (taps,))
    if cached is not None and positions is not None:
        return positions[..., None] - back
    real, _ = real_tokens(mask, tuple(leading), t, t)
    if real is None:
        at = lift(jnp.arange(t)[:, None], x.ndim) - back
        index = jnp.broadcast_to(at, (*leading, t, taps))
    else:
        rank = jnp.cumsum(real, axis=-1) - real
        order = jnp.argsort(~real, axis=-1, stable=True)
        at = rank[..., None] - back
        index = jnp.where(at < 0, -1, _at(order, at))
    if positions is None:
        return index
    return jnp.where(_at(positions, index) == positions[..., None] - back, index, -1)


def _at(numbers: Int[Array, "*b t"], index: Int[Array, "*b t c"]) -> Array:
    """numbers[index], and anything where the index is negative."""
    flat = jnp.maximum(index, 0).reshape(*index.shape[:-2], -1)
    return jnp.take_along_axis(numbers, flat, axis=-1).reshape(index.shape)


def _seen(
    index: Int[Array, "*b t c"], mask: Mask, t: int, s: int
) -> Bool[Array, "*b #h t c"]:
    """Whether the query may see what it finds there."""
    there = (index >= 0)[..., None, :, :]
    if not mask.rules:
        return there
    allowed = lift(mask.allowed(t, s), there.ndim)
    at = jnp.clip(index, 0, max(s - 1, 0))[..., None, :, :]
    return there & jnp.take_along_axis(allowed, at, axis=-1)


def _shifted(x: Float[Array, "*b t m"], taps: int) -> Float[Array, "*b t c m"]:
    """The tokens before each as they stand: slices, whose gradient is a sum."""
    t = x.shape[-2]
    x = jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(taps, 0), (0, 0)])
    starts = range(taps - 1, -1, -1)
    return jnp.stack([x[..., i : i + t, :] for i in starts], axis=-2)


def _taken(
    x: Float[Array, "*b s m"], index: Int[Array, "*b t c"]
) -> Float[Array, "*b t c m"]:
    """x[index], 0 where the index is out of range."""
    *leading, t, taps = index.shape
    flat = jnp.where(index < 0, x.shape[-2], index).reshape(*leading, t * taps, 1)
    taken = jnp.take_along_axis(x, flat, axis=-2, mode="fill", fill_value=0)
    return taken.reshape(*leading, t, taps, x.shape[-1])
