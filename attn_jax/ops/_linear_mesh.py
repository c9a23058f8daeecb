"""Linear attention over a mesh: each device has its rows, its heads, its tokens.

Along tokens, what a device needs of the others is the sum over their keys: one
all-gather of a state a device, whose size doesn't depend on the length (Sun et al.
2025, LASP-2). Its gradient is one reduce-scatter of the states' gradients.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float

from attn_jax.ops._linear_context import attend_to_state, context_state
from attn_jax.ops._linear_inputs import LinearState
from attn_jax.ops._linear_masks import is_causal, real_tokens
from attn_jax.ops._mask_rules import Causal, Padding
from attn_jax.ops._mesh import TOKENS, cut, on_each
from attn_jax.ops._shapes import compute_dtype
from attn_jax.ops._softmax_mesh import rule_spec, with_key_ids
from attn_jax.ops.linear_chunked import linear_attention_chunked
from attn_jax.ops.masks import Mask


def over_mesh(
    attend: Callable[..., Float[Array, "*b t h e"]],
    q: Float[Array, "*b t h d"],
    k: Float[Array, "*b s g d"],
    v: Float[Array, "*b s g e"],
    mask: Mask,
    options: dict[str, Any],
) -> Float[Array, "*b t h e"]:
    """attend(q, k, v, mask, **options), in pieces where a mesh divides it.

    Tokens are shared under padding and causality. Under other masks (prefix, offset,
    segments) each device computes whole rows.
    """
    if q.ndim != 4:
        return attend(q, k, v, mask, **options)
    (b, t), (s, g) = q.shape[:2], v.shape[1:3]
    ours = cut(rows=b, tokens=t, heads=g)
    known = all(isinstance(rule, Causal | Padding) for rule in mask.rules)
    looks_back = is_causal(mask, t, s)
    alike = looks_back or not mask.find(Causal)
    if not (known and alike and any(cut(tokens=s))):
        ours = ours._replace(tokens=())
    if not any(ours):
        return attend(q, k, v, mask, **options)
    mask = with_key_ids(mask)

    def local(q: Array, k: Array, v: Array, mask: Mask, eps: Any) -> Array:
        mine = {**options, "eps": eps}
        if not ours.tokens:
            return attend(q, k, v, mask, **mine)
        return _attend_piece(q, k, v, mask, looks_back, **mine)

    keys = "tokens" if ours.tokens else ""
    queries = ours.spec(q.shape, "tokens", "heads", "", b=b)
    places = (
        queries,
        ours.spec(k.shape, keys, "heads", "", b=b),
        ours.spec(v.shape, keys, "heads", "", b=b),
        Mask(tuple(rule_spec(rule, ours, b, keys) for rule in mask.rules)),
        None if options["eps"] is None else PartitionSpec(),
    )
    return on_each(local, ours, places, queries)(q, k, v, mask, options["eps"])


def _attend_piece(
    q: Float[Array, "b t h d"],
    k: Float[Array, "b t g d"],
    v: Float[Array, "b t g e"],
    mask: Mask,
    looks_back: bool,
    *,
    feature_map: Any,
    eps: Any,
    normalize: bool,
) -> Float[Array, "b t h e"]:
    """One device's queries, after the keys before its own, or after all of them."""
    options = {"feature_map": feature_map, "eps": eps, "normalize": normalize}
    leading, t, s = q.shape[:1], q.shape[1], k.shape[1]
    real, queries = real_tokens(mask, leading, t, s)
    dtype = compute_dtype(q, k, v)
    sums = context_state(k, v, real, feature_map, dtype)
    some = jnp.ones((*leading, s), bool) if real is None else real
    some = jnp.any(some, axis=-1, keepdims=True)
    sums, some = jax.lax.all_gather((sums, some), TOKENS)
    if not looks_back:
        state = jax.tree.map(lambda x: jnp.sum(x, axis=0), sums)
        sees = jnp.broadcast_to(jnp.any(some, axis=0), (*leading, t))
        sees = sees if queries is None else sees & queries
        return attend_to_state(q, state, sees, dtype=v.dtype, **options)
    earlier = jnp.arange(len(some)) < jax.lax.axis_index(TOKENS)

    def before(x: Array) -> Array:
        return jnp.sum(x, axis=0, where=earlier.reshape(-1, *(1,) * (x.ndim - 1)))

    state = LinearState(before(sums.kv), before(sums.k))
    out, _ = linear_attention_chunked(
        q, k, v, mask=mask, initial_state=state, **options
    )
    return out
