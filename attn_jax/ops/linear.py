"""Linear attention (Transformers are RNNs, Katharopoulos et al. 2020).

    y_i = phi(q_i) . S_i / phi(q_i) . z_i
    S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   j over the keys i may see

Here stand the mechanism's forms, side by side: `linear_attention_scan` is the
definition. A column of ones beside v makes S and z one array, so that numerator and
denominator come from one pass.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from attn_jax.ops._entry import op
from attn_jax.ops._linear_context import attend_to_state, context_state, grouped
from attn_jax.ops._linear_inputs import (
    LinearState,
    begins_at,
    causal_inputs,
    check_state,
    finish,
    initial_sums,
    normalise,
    running_sum,
    split_sums,
    with_ones,
)
from attn_jax.ops._linear_masks import (
    is_causal,
    linear_op,
    real_tokens,
    require_causal,
)
from attn_jax.ops._linear_mesh import over_mesh
from attn_jax.ops._mask_rules import Causal, Padding
from attn_jax.ops._masking import allowed_for, hide_keys, hide_queries, weighted_sum
from attn_jax.ops._shapes import check_qkv, compute_dtype
from attn_jax.ops.feature_maps import FeatureMap, elu_plus_one
from attn_jax.ops.linear_chunked import linear_attention_chunked
from attn_jax.ops.masks import Mask, UnsupportedMaskError, as_mask, causal, padding

__all__ = [
    "LinearState",
    "elu_plus_one",
    "linear_attention",
    "linear_attention_chunked",
    "linear_attention_recurrent",
    "linear_attention_scan",
    "linear_attention_step",
]


@linear_op("feature_map", "normalize")
def linear_attention(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    v: Float[Array, "*b s g e"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap = elu_plus_one,
    eps: float | Float[Array, ""] | None = None,
    normalize: bool = True,
) -> Float[Array, "*b t h e"]:
    """Attention whose similarity is a dot product of features.

        y_i = sum_j a_ij phi(q_i).phi(k_j) v_j / sum_j a_ij phi(q_i).phi(k_j)

    with a_ij = 1 where the mask lets i see j. There is no 1 / sqrt(d). Reduces to the
    mean of the visible values when all keys are alike, and to their sum, with
    normalize=False, when all similarities are 1.

    Cost: O(t p e) time. Causal self-attention goes through
    `linear_attention_chunked`; attention to all real keys is two contractions. Other
    masks (prefix, offset, segments without causality) use the masked similarities,
    O(t s (p + e)) time and O(h t s) memory.

    Reference: Katharopoulos et al. 2020, equations 4-12.

    Args:
      q: queries.
      k: keys; g divides h.
      v: values.
      mask: full, causal, prefix, padding and segments, with or without offsets. A
        segment id is one contiguous run of real tokens.
      feature_map: phi, from *b t h d to *b t h p, one of `attn_jax.ops.feature_maps` or
        your own; phi(x).phi(y) is nowhere negative, which is tried out, unless nothing
        is divided. Pass the same function object every time: another one is compiled
        anew.
      eps: None clamps the denominator at the smallest normal number; a number is added
        to it, as published code does (1e-6).
      normalize: False gives the numerator alone, phi(q_i).S_i, which grows with the
        number of keys; normalise it by what comes after (`nn.Linear` does).

    Returns:
      One vector a query and head, in the dtype of v; features, sums and division are
      in at least float32. A query that may attend to nothing gives exactly 0.

    Raises:
      UnsupportedMaskError: a window or dense mask, which sums over keys cannot honour.
      ValueError, TypeError: shapes, dtypes or segment ids that do not fit; a feature
        map with which the normaliser could vanish.
    """
    check_qkv(q, k, v)
    options = {"feature_map": feature_map, "eps": eps, "normalize": normalize}
    return over_mesh(_attend, q, k, v, as_mask(mask), options)


def _attend(q, k, v, mask, feature_map, eps, normalize):
    """The form for this mask."""
    t, s = q.shape[-3], k.shape[-3]
    if is_causal(mask, t, s):
        return linear_attention_chunked(
            q, k, v, mask=mask, feature_map=feature_map, eps=eps, normalize=normalize
        )[0]
    if len(mask.find(Padding)) == len(mask.rules):
        return _attend_to_all(q, k, v, mask, feature_map, eps, normalize)
    allowed = allowed_for(mask, q.shape[:-3], q.shape[-2], t, s)
    dtype = compute_dtype(q, k, v)
    phi_q = grouped(feature_map(hide_queries(q, allowed).astype(dtype)), k.shape[-2])
    phi_k = feature_map(hide_keys(k, allowed).astype(dtype))
    similarity = jnp.einsum("...tgrp,...sgp->...grts", phi_q, phi_k)
    similarity = similarity.reshape(*q.shape[:-3], q.shape[-2], t, s)
    if allowed is not None:
        similarity = jnp.where(allowed, similarity, 0)
    sums = weighted_sum(similarity, with_ones(hide_keys(v, allowed).astype(dtype)))
    num, den = sums[..., :-1], sums[..., -1:]
    return (normalise(num, den, eps) if normalize else num).astype(v.dtype)


def _attend_to_all(q, k, v, mask, feature_map, eps, normalize):
    """Every real key for every real query: one sum over keys, read by all queries."""
    leading, t, s = q.shape[:-3], q.shape[-3], k.shape[-3]
    real, sees = real_tokens(mask, leading, t, s)
    if real is not None:
        some = jnp.broadcast_to(jnp.any(real, -1, keepdims=True), (*leading, t))
        sees = some if sees is None else sees & some
    dtype = compute_dtype(q, k, v)
    state = context_state(k, v, real, feature_map, dtype)
    return attend_to_state(
        q,
        state,
        sees,
        feature_map=feature_map,
        eps=eps,
        normalize=normalize,
        dtype=v.dtype,
    )


@linear_op("feature_map", "normalize")
def linear_attention_scan(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b t g d"],
    v: Float[Array, "*b t g e"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap = elu_plus_one,
    eps: float | Float[Array, ""] | None = None,
    normalize: bool = True,
) -> Float[Array, "*b t h e"]:
    """Causal linear attention as a prefix sum over tokens: the definition.

        S_i = S_{i-1} + phi(k_i) v_i^T,   z_i = z_{i-1} + phi(k_i)

    by `jax.lax.associative_scan`, restarted where a segment begins.

    Cost: O(t p e) time and memory, O(log t) depth.

    Reference: Katharopoulos et al. 2020, equations 9-12.

    Args, Returns, Raises: as in `linear_attention`; mask=None means causal(), a mask
      that is not causal raises UnsupportedMaskError.
    """
    mask = require_causal(mask, q, k, "linear_attention_scan")
    x = causal_inputs(q, k, v, mask, feature_map)
    terms = jnp.einsum("...tgp,...tge->...tgpe", x.k, x.v)
    begins = begins_at(x.run)
    begins = None if begins is None else begins[..., None, None, None]
    sums = running_sum(terms, begins, axis=terms.ndim - 4)
    out = jnp.einsum("...tgrp,...tgpe->...tgre", x.q, sums)
    return finish(out, x.sees, v, eps, normalize)


@linear_op("feature_map", "normalize")
def linear_attention_recurrent(
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b t g d"],
    v: Float[Array, "*b t g e"],
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap = elu_plus_one,
    eps: float | Float[Array, ""] | None = None,
    normalize: bool = True,
    initial_state: LinearState | None = None,
) -> tuple[Float[Array, "*b t h e"], LinearState]:
    """Causal linear attention as the recurrent network of the paper's title.

        S_i = S_{i-1} + phi(k_i) v_i^T,   z_i = z_{i-1} + phi(k_i)

    by `jax.lax.scan`, one token after the other.

    Cost: O(t p e) time in t steps, O(p e) memory forward.

    Reference: Katharopoulos et al. 2020, equations 16-20.

    Args, Returns, Raises: as in `linear_attention_chunked`.
    """
    mask = require_causal(mask, q, k, "linear_attention_recurrent")
    x = causal_inputs(q, k, v, mask, feature_map, initial_state is not None)
    state = initial_sums(
        initial_state, mask, (*q.shape[:-3], *x.k.shape[-2:], v.shape[-1]), x.v.dtype
    )
    before = jnp.concatenate([state.kv, state.k[..., None]], axis=-1)

    def token(state, now):
        q_i, k_i, v_i, begins = now
        if begins is not None:
            state = jnp.where(begins[..., None, None, None], 0, state)
        state = state + jnp.einsum("...gp,...ge->...gpe", k_i, v_i)
        return state, jnp.einsum("...grp,...gpe->...gre", q_i, state)

    axis = q.ndim - 3
    begins = begins_at(x.run)
    steps = (jnp.moveaxis(a, axis, 0) for a in (x.q, x.k, x.v))
    steps = (*steps, None if begins is None else jnp.moveaxis(begins, axis, 0))
    after, out = jax.lax.scan(token, before, steps)
    out = jnp.moveaxis(out, 0, axis)
    return finish(out, x.sees, v, eps, normalize), split_sums(after)


@op("feature_map", "normalize", others=("state",))
def linear_attention_step(
    q: Float[Array, "*b h d"],
    k: Float[Array, "*b g d"],
    v: Float[Array, "*b g e"],
    state: LinearState,
    *,
    mask: Mask | None = None,
    feature_map: FeatureMap = elu_plus_one,
    eps: float | Float[Array, ""] | None = None,
    normalize: bool = True,
    valid: Bool[Array, "*b"] | None = None,
) -> tuple[Float[Array, "*b h e"], LinearState]:
    """One token of `linear_attention_recurrent`: update the sums, then read them.

    Cost: O(p e) time and memory, whatever came before.

    Reference: Katharopoulos et al. 2020, equations 18-20.

    Args:
      q, k, v: the token's query, key and value.
      state: the sums over the tokens before it.
      mask: None or causal(); padding is said with `valid`.
      valid: False gives output 0 and leaves the state as it is.
      feature_map, eps, normalize: as in `linear_attention`.

    Returns:
      The output in the dtype of v, and the state that includes this token.
    """
    check_state("state", state)
    mask = as_mask(mask)
    if len(mask.find(Causal)) < len(mask.rules):
        raise UnsupportedMaskError(
            "mask: linear_attention_step takes None or causal(); say padding with "
            "valid=, and start from a zero state where a segment begins"
        )
    if valid is not None:
        if valid.dtype != bool:
            raise TypeError(
                f"valid: got dtype {valid.dtype}; expected Bool[*b], True = real token"
            )
        mask = mask & causal() & padding(valid[..., None], valid[..., None])
    out, state = linear_attention_recurrent(
        q[..., None, :, :],
        k[..., None, :, :],
        v[..., None, :, :],
        mask=mask,
        feature_map=feature_map,
        eps=eps,
        normalize=normalize,
        initial_state=state,
    )
    return out[..., 0, :, :], state
