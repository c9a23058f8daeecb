"""Factorized Synthesizers (Tay et al. 2021) by blocks of rows, never t x s at once."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from attn_jax.ops._entry import op
from attn_jax.ops._masking import allowed_for
from attn_jax.ops._rows import attend_by_rows
from attn_jax.ops._shapes import check_array, compute_dtype, lift
from attn_jax.ops._synthesizer_inputs import (
    check_layouts,
    check_leading,
    check_length,
    check_queries,
)
from attn_jax.ops.masks import Mask, as_mask
from attn_jax.ops.synthesizer import factorized_dense_logits


def factorized_random_attention(
    r1: Float[Array, "h n r"],
    r2: Float[Array, "h n r"],
    v: Float[Array, "*b s g e"],
    *,
    queries: Int[Array, " t"] | None = None,
    mask: Mask | None = None,
) -> Float[Array, "*b t h e"]:
    """Factorized random logits and attention in one, without keeping h t s logits.

        y_i = sum_j w_ij v_j,   w_i = softmax_j(r1_{p_i} . r2_j),   p = queries

    Equals `synthesizer_attention` of `factorized_random_logits(r1[:, queries], r2)`.

    Cost: O(h t s (r + e)) time, of which the logits and, under a mask without batch
    axes, the softmax are paid once for the whole batch; O(h s) memory a row in a
    block of rows.

    Reference: Tay et al. 2021, Factorized Random Synthesizer.

    Args:
      r1: one row a query position.
      r2: one row a key position.
      v: values; g divides h.
      queries: the positions asked for; None is those of v, 0 to s - 1. Concrete ones
        are checked; under jit a position outside 0 .. n - 1 gives NaN.
      mask: what each query may attend to; None is everything. Its positional rules go
        by their own offset, not by `queries`.

    Returns:
      One vector a query and head, in the dtype of v; logits and softmax are computed
      in at least float32.

    Raises:
      ValueError, TypeError: shapes, dtypes or a mask that do not fit; more keys than
        n; a position outside 0 .. n - 1.
    """
    for name, x in (("r1", r1), ("r2", r2), ("v", v)):
        check_array(name, x)
    check_layouts(r1=(r1, "h n r"), r2=(r2, "h n r"), v=(v, "*b s g e"))
    check_length("r2", r2.shape[1], r2.shape[0], v)
    mask = as_mask(mask)
    if queries is not None:
        check_queries(queries, r1.shape[1])
    return _factorized_random_attention(r1, r2, v, queries, mask)


@jax.jit
def _factorized_random_attention(r1, r2, v, queries, mask):
    h, s = r1.shape[0], v.shape[-3]
    dtype = compute_dtype(r1, r2, v)
    if queries is None:
        r1 = r1[:, :s]
    else:
        r1 = r1.at[:, queries].get(
            mode="fill", fill_value=jnp.nan, wrap_negative_indices=False
        )
    r1, r2 = lift(r1.astype(dtype), v.ndim), lift(r2[:, :s].astype(dtype), v.ndim)
    allowed = allowed_for(mask, v.shape[:-3], h, r1.shape[-2], s)
    if allowed is not None:
        r1 = _hide_rows(r1, jnp.any(allowed, axis=-1))
        r2 = _hide_rows(r2, jnp.any(allowed, axis=-2))

    def logits(s: int, r1: Array) -> Array:
        return jnp.einsum("...ir,...jr->...ij", r1, r2[..., :s, :])

    return attend_by_rows(logits, r1, v, mask=mask, allowed=allowed)


@op()
def factorized_dense_attention(
    a: Float[Array, "*#b h t a"],
    b: Float[Array, "*#b h t b"],
    v: Float[Array, "*b s g e"],
    *,
    mask: Mask | None = None,
) -> Float[Array, "*b t h e"]:
    """Factorized dense logits and attention in one, without keeping h t s logits.

        y_i = sum_j w_ij v_j,   w_i = softmax_j(a_{i, j // b} b_{i, j mod b})

    Equals `synthesizer_attention` of `factorized_dense_logits(a, b)`.

    Cost: O(h t s e) time per example and O(h s) memory a row in a block of rows.

    Reference: Tay et al. 2021, Factorized Dense Synthesizer.

    Args:
      a: one number for each of the a blocks of b positions.
      b: one number for each place inside a block.
      v: values; g divides h.
      mask: what each query may attend to; None is everything.

    Returns:
      One vector a query and head, in the dtype of v; logits and softmax are computed
      in at least float32.

    Raises:
      ValueError, TypeError: shapes, dtypes or a mask that do not fit; more keys than
        a b.
    """
    check_layouts(a=(a, "*b h t a"), b=(b, "*b h t b"), v=(v, "*b s g e"))
    h, t = a.shape[-3:-1]
    check_leading("a", a, v)
    check_leading("b", b, v)
    check_length("a, b", a.shape[-1] * b.shape[-1], h, v)
    dtype = compute_dtype(a, b, v)
    a, b = lift(a.astype(dtype), v.ndim), lift(b.astype(dtype), v.ndim)
    allowed = allowed_for(mask, v.shape[:-3], h, t, v.shape[-3])
    if allowed is not None:
        seeing = jnp.any(allowed, axis=-1)
        a, b = _hide_rows(a, seeing), _hide_rows(b, seeing)

    def logits(s: int, rows: tuple[Array, Array]) -> Array:
        return factorized_dense_logits(*rows)

    return attend_by_rows(logits, (a, b), v, mask=as_mask(mask), allowed=allowed)


def _hide_rows(
    rows: Float[Array, "*#b #h t r"], used: Bool[Array, "*#b #h t"]
) -> Float[Array, "..."]:
    """Rows with 0 where none of the examples and heads that share one uses it."""
    shared = tuple(
        axis
        for axis, (m, n) in enumerate(zip(rows.shape[:-1], used.shape, strict=True))
        if m == 1 < n
    )
    return jnp.where(jnp.any(used, axis=shared, keepdims=True)[..., None], rows, 0)
