"""The two layers of a dense Synthesizer, from tokens to logits."""

import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._shapes import compute_dtype, lift


def first_layer(
    x: Float[Array, "*b t m"],
    w: Float[Array, "h m d"],
    b: Float[Array, "h d"] | None,
) -> Float[Array, "*b h t d"]:
    """x_i W + b, one hidden vector a head, in at least float32."""
    return _affine("...tm,hmd->...htd", x, w, b)


def second_layer(
    hidden: Float[Array, "*b h t d"],
    w: Float[Array, "h d n"],
    b: Float[Array, "h n"] | None,
) -> Float[Array, "*b h t n"]:
    """hidden W + b, one logit a position, in at least float32."""
    return _affine("...htd,hdn->...htn", hidden, w, b)


def _affine(product: str, x: Array, w: Array, b: Array | None) -> Array:
    dtype = compute_dtype(*(a for a in (x, w, b) if a is not None))
    y = jnp.einsum(product, x.astype(dtype), w.astype(dtype))
    return y if b is None else y + lift(b[:, None].astype(dtype), y.ndim)
