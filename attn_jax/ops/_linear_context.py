"""Linear attention to a whole context: one state, summed once and read by any query.

S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j),   y_i = phi(q_i).S / phi(q_i).z
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attn_jax.ops._blocks import fill
from attn_jax.ops._linear_inputs import (
    LinearState,
    features,
    keep,
    normalise,
    split_sums,
    with_ones,
)
from attn_jax.ops.feature_maps import FeatureMap


def context_state(
    k: Float[Array, "*b s g d"],
    v: Float[Array, "*b s g e"],
    real: Bool[Array, "*b s"] | None,
    feature_map: FeatureMap,
    dtype: Any,
) -> LinearState:
    """The sums over the real keys of a context."""
    phi_k = features(k, real, feature_map, dtype)
    values = with_ones(keep(v, real).astype(dtype))
    return split_sums(_sum_over_keys(phi_k, values))


def attend_to_state(
    q: Float[Array, "*b t h d"],
    state: LinearState,
    sees: Bool[Array, "*b t"] | None,
    *,
    feature_map: FeatureMap,
    eps: Any,
    normalize: bool,
    dtype: Any,
) -> Float[Array, "*b t h e"]:
    """What queries read from the sums over a context; 0 where they see no key."""
    phi_q = features(q, sees, feature_map, state.k.dtype)
    phi_q = grouped(phi_q, state.k.shape[-2])
    sums = state.kv
    if normalize:
        sums = jnp.concatenate([sums, state.k[..., None]], axis=-1)
    out = jnp.einsum("...tgrp,...gpe->...tgre", phi_q, sums)
    if normalize:
        out = normalise(out[..., :-1], out[..., -1:], eps)
    out = out.reshape(*q.shape[:-1], out.shape[-1])
    out = out if sees is None else jnp.where(sees[..., None, None], out, 0)
    return out.astype(dtype)


def grouped(phi_q: Float[Array, "*b t h p"], g: int) -> Float[Array, "*b t g r p"]:
    """The query heads of each key/value head side by side."""
    *leading, h, p = phi_q.shape
    return phi_q.reshape(*leading, g, h // g, p)


def _sum_over_keys(
    phi_k: Float[Array, "*b s g p"], values: Float[Array, "*b s g e1"]
) -> Float[Array, "*b g p e1"]:
    """sum_j phi(k_j) v_j^T, 256 keys at a time: fewer roundings than in one go."""
    s = phi_k.shape[-3]
    n = max(1, -(-s // 256))
    size = -(-s // n)
    pieces = [
        fill(x, -3, n * size).reshape(*x.shape[:-3], n, size, *x.shape[-2:])
        for x in (phi_k, values)
    ]
    return jnp.einsum("...nsgp,...nsge->...ngpe", *pieces).sum(-4)
