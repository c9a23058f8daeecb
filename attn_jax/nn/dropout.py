"""Dropout whose randomness is an argument."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key


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
    check_rng(rng)
    if rate == 0.0:
        return x
    keep = jax.random.bernoulli(rng, 1.0 - rate, x.shape)
    return jnp.where(keep, x / (1.0 - rate), jnp.zeros_like(x))


def check_rng(rng: Any) -> None:
    """One typed key."""
    dtype = getattr(rng, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jax.dtypes.prng_key):
        raise TypeError(
            f"rng: got {type(rng).__name__}; expected a typed key such as "
            "jax.random.key(0), or None for evaluation"
        )
