"""Linear attention in chunks: matmuls inside, sums between."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from attn_jax.ops._linear_inputs import (
    FeatureMap,
    LinearState,
    begins_at,
    causal_inputs,
    elu_plus_one,
    finish,
    initial_sums,
    running_sum,
    split_sums,
)
from attn_jax.ops._linear_masks import linear_op, require_causal
from attn_jax.ops._shapes import lift
from attn_jax.ops.masks import Mask


@linear_op("feature_map", "chunk_size")
def linear_attention_chunked(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b t g d"],
    v: Float[Array, "*b t g e"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap = elu_plus_one,
    eps: float | Float[Array, ""] | None = None,
    chunk_size: int = 64,
    initial_state: LinearState | None = None,
) -> tuple[Float[Array, "*b t h e"], LinearState]:
    """Causal linear attention in chunks of C tokens: a matmul inside, a sum between.

        Y_c = Q_c S_{c-1} + tril(Q_c K_c^T) V_c,   S_c = S_{c-1} + K_c^T V_c

    with Q, K after phi and S_c by `jax.lax.associative_scan` over the chunks. Any
    length: the last chunk is filled with keys of feature 0. Reduces to the quadratic
    form when one chunk holds the sequence, to `linear_attention_scan` when C = 1.

    Cost: O(t C (p + e) + t p e) time, O(t C + t p e / C) memory.

    Reference: Katharopoulos et al. 2020, equations 9-12, a chunk at a time.

    Args:
      q, k, v, mask, feature_map, eps: as in `linear_attention_scan`.
      chunk_size: C.
      initial_state: the sums over the tokens before these, from an earlier call.

    Returns:
      The outputs, and the state after the last real token (of the last segment).

    Raises:
      ValueError: initial_state together with segments; others as in
        `linear_attention_scan`.
    """
    if not isinstance(chunk_size, int) or chunk_size < 1:
        raise ValueError(f"chunk_size: got {chunk_size!r}; expected an int >= 1")
    mask = require_causal(mask, q, k, "linear_attention_chunked")
    x = causal_inputs(q, k, v, mask, feature_map, initial_state is not None)
    before = initial_sums(initial_state, mask, x)
    t = q.shape[-3]
    fill = max(1, -(-t // chunk_size)) * chunk_size - t
    axis = q.ndim - 3
    q_c, k_c, v_c = (_in_chunks(a, axis, fill, chunk_size) for a in x[:3])
    run = None if x.run is None else _in_chunks(x.run, axis, fill, chunk_size)
    carried, after = _chunk_sums(k_c, v_c, run, before)
    similarity = jnp.einsum("...ncgrp,...nsgp->...ngrcs", q_c, k_c)
    inside = jnp.tri(chunk_size, dtype=bool)
    inside = lift(inside, similarity.ndim)
    if run is not None:
        alike = run[..., :, None] == run[..., None, :]
        inside = inside & alike[..., None, None, :, :]
    similarity = jnp.where(inside, similarity, 0)
    out = jnp.einsum("...ngrcs,...nsge->...ncgre", similarity, v_c)
    out = out + _from_before(q_c, carried, run)
    out = out.reshape(*q.shape[:-3], t + fill, *out.shape[-3:])[..., :t, :, :, :]
    return finish(out, x.sees, v, eps), after


def _chunk_sums(
    k: Float[Array, "*b n c g p"],
    v: Float[Array, "*b n c g e"],
    run: Int[Array, "*b n c"] | None,
    before: Float[Array, "*b g p e"] | None,
) -> tuple[Float[Array, "*b n g p e"], LinearState]:
    """The sums carried into each chunk, and those after the last."""
    begins = None
    if run is not None:
        k = jnp.where((run == run[..., -1:])[..., None, None], k, 0)
        begins = begins_at(run[..., -1])
    terms = jnp.einsum("...ncgp,...ncge->...ngpe", k, v)
    sums = running_sum(terms, begins)
    if before is not None:
        sums = sums + before[..., None, :, :, :]
    first = jnp.zeros_like(sums[..., 0, :, :, :]) if before is None else before
    carried = jnp.concatenate(
        [first[..., None, :, :, :], sums[..., :-1, :, :, :]], axis=-4
    )
    return carried, split_sums(sums[..., -1, :, :, :])


def _from_before(
    q: Float[Array, "*b n c g r p"],
    carried: Float[Array, "*b n g p e"],
    run: Int[Array, "*b n c"] | None,
) -> Float[Array, "*b n c g r e"]:
    """Q_c S_{c-1}, for tokens of the segment that the chunk before ended in."""
    if run is None:
        return jnp.einsum("...ncgrp,...ngpe->...ncgre", q, carried)
    ends = jnp.concatenate([jnp.zeros_like(run[..., :1, -1]), run[..., :-1, -1]], -1)
    same = (run == ends[..., None])[..., None, None, None]
    # Twice: sums of another segment may have overflowed, and 0 times inf is NaN.
    out = jnp.einsum("...ncgrp,...ngpe->...ncgre", jnp.where(same, q, 0), carried)
    return jnp.where(same, out, 0)


def _in_chunks(x: Array, axis: int, fill: int, size: int) -> Array:
    """Axis of length t, filled at its end, as axes (n, c)."""
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, fill)
    kind = "edge" if jnp.issubdtype(x.dtype, jnp.integer) else "constant"
    x = jnp.pad(x, widths, mode=kind)
    n = x.shape[axis] // size
    return x.reshape(*x.shape[:axis], n, size, *x.shape[axis + 1 :])
