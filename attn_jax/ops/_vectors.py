"""Lengths of vectors that neither overflow nor underflow."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def leveled(
    v: Float[Array, " e"],
) -> tuple[Float[Array, " e"], Float[Array, ""], Bool[Array, ""]]:
    """v over its greatest entry, that entry, and whether v has a direction.

    Where the length of v cancels, v may be divided by its greatest entry first: neither
    its square nor the gradient of the quotient can leave the range of the dtype. Two
    factors of peak^(-1/2) divide by a peak near the largest number too, and are faster.
    A v that is 0 or not finite has no direction: it becomes 0, and `where` stands
    before the product, so that a NaN reaches neither the result nor a gradient.
    """
    peak = jax.lax.stop_gradient(jnp.max(jnp.abs(v), initial=0))
    ranged = (peak > 0) & (peak < jnp.inf)
    peak = jnp.where(ranged, peak, 1)
    root = jax.lax.rsqrt(peak)
    u = jnp.where(ranged, v, 0) * root * root
    return u, peak, ranged


def unit(v: Float[Array, " d"]) -> Float[Array, " d"]:
    """v / |v|, and 0 where v has no direction."""
    u, _, ranged = leveled(v)
    return u / jnp.sqrt(jnp.where(ranged, jnp.sum(u * u), 1))
