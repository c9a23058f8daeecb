"""Exclusive self attention (XSA, Zhai 2026): attention without the self direction."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from attn_jax.ops._entry import op
from attn_jax.ops._shapes import check_heads, compute_dtype
from attn_jax.ops._vectors import leveled


@op()
def exclude_self(
    y: Float[Array, "*b t h e"],
    v: Float[Array, "*b t g e"],
    *,
    strength: float | Float[Array, "..."] | None = None,
) -> Float[Array, "*b t h e"]:
    """Takes out of each attention output what points along the token's own value.

        z_i = y_i - strength (y_i . v_i) v_i / |v_i|^2

    so that z_i . v_i = 0 and |z_i| <= |y_i| at strength 1. It is local to a token:
    any mask, window or sharding of the sequence before it is unaffected, and decoding
    needs the current token's value only.

    Reduces to y when strength = 0, and at a token whose v_i has no direction: where
    |v_i|^2 is 0, underflows or is not finite; the gradient there is finite. With y
    from `softmax_attention` it equals the same projection of weights whose diagonal
    is zeroed after the softmax: a token that sees itself alone gives 0 to rounding.

    Cost: O(t h e) time and memory per example.

    Reference: Zhai 2026, equation 2 and algorithm 1, which divides by the length of v
    clamped at 1e-12; the clamp here lies at the smallest normal number of the compute
    dtype. Grouped heads: query head j is projected on value head j // (h / g).

    Args:
      y: attention outputs.
      v: the values that entered attention, of the same tokens; g divides h.
      strength: how much of the projection is taken out, broadcast to *b t h 1; None
        is 1, the paper's.

    Returns:
      One vector a query and head, in the dtype of v, computed in at least float32.

    Raises:
      ValueError, TypeError: shapes or dtypes that do not fit, cross-attention among
      them: its queries have no value of their own.
    """
    _check_self(y, v)
    dtype = compute_dtype(y, v)
    h, g = y.shape[-2], v.shape[-2]
    strength = _per_vector(strength, y.shape).astype(dtype)
    # An axis for the heads of a group would keep XLA's fast reductions from being used.
    own = v if g == h else jnp.repeat(v, h // g, axis=-2)
    project = _project_out
    for _ in range(v.ndim - 1):
        project = jax.vmap(project)
    return project(y.astype(dtype), own.astype(dtype), strength).astype(v.dtype)


def _project_out(
    y: Float[Array, " e"], v: Float[Array, " e"], strength: Float[Array, ""]
) -> Float[Array, " e"]:
    """y - strength (y . v) v / |v|^2, and y where v has no direction.

    The length of v cancels, so that of `leveled(v)` does as well.
    """
    u, peak, ranged = leveled(v)
    square = jnp.sum(u * u)
    directed = ranged & (peak * jnp.sqrt(square) >= jnp.finfo(v.dtype).tiny ** 0.5)
    along = jnp.sum(y * u) / jnp.where(ranged, square, 1)
    return y - jnp.where(directed, strength * along, 0) * u


def _per_vector(
    strength: float | Array | None, shape: tuple[int, ...]
) -> Float[Array, "*b t h"]:
    strength = jnp.asarray(1.0 if strength is None else strength)
    expected = (*shape[:-1], 1)
    fits = strength.ndim <= len(expected) and all(
        m in (1, n) for m, n in zip(strength.shape[::-1], expected[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"strength: got shape {strength.shape}; expected one that broadcasts to "
            f"(*b, t, h, 1) = {expected}; one number a head is strength[:, None]"
        )
    return jnp.broadcast_to(strength, expected)[..., 0]


def _check_self(y: Array, v: Array) -> None:
    check_heads("v", v, "y", y)
    if v.shape[-3] != y.shape[-3]:
        raise ValueError(
            f"v: got {v.shape[-3]} tokens (shape {v.shape}) for y's {y.shape[-3]} "
            f"(shape {y.shape}); expected the values of the same tokens in the layout "
            "*b t g e: cross-attention has no self to exclude, and in decoding v is "
            "that of the new tokens alone, v[..., -t:, :, :]"
        )
    if v.shape[-1] != y.shape[-1]:
        raise ValueError(
            f"v: got {v.shape[-1]} features (last axis of {v.shape}) for y's "
            f"{y.shape[-1]} (shape {y.shape}); expected the same e: project before the "
            "output matrix, while y is still a sum of values"
        )
