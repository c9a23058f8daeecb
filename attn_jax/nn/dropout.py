"""Dropout whose randomness is an argument."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from attn_jax.ops._shapes import check_rng


def dropout(
    x: Float[Array, "*shape"], rate: float, rng: Key[Array, ""] | None
) -> Float[Array, "*shape"]:
    """x with entries set to 0 at the rate given, the rest divided by 1 - rate.

    Args:
      x: activations.
      rate: probability of dropping, in [0, 1).
      rng: typed key; None is evaluation and returns x.
    """
    if rng is None:
        return x
    check_rng(rng, ", or None for evaluation")
    if rate == 0.0:
        return x
    keep = jax.random.bernoulli(rng, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))
