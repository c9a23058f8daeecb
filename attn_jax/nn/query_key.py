"""Queries and keys: projections, normalisation and rotary positions."""

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._naming import named_rngs
from attn_jax.ops import apply_rotary

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


class QueryKey(nnx.Module):
    """q = norm(x W_q), k = norm(x W_k), turned by their positions where asked.

    shared: whether the queries are all there is, for a mechanism that makes its keys
    of them.
    """

    def __init__(
        self, config: "AttentionConfig", *, rngs: nnx.Rngs, shared: bool = False
    ):
        query, key = named_rngs(rngs, "query", "key")
        width, d = config.d_model, config.key_dim
        options = config.projection_options()
        self.query = nnx.LinearGeneral(
            width, (config.num_heads, d), rngs=query, **options
        )
        if not shared:
            heads = config.kv_heads
            self.key = nnx.LinearGeneral(width, (heads, d), rngs=key, **options)
        self.rotary = config.rotary
        self.rotary_base = config.rotary_base
        self.normed = config.qk_norm
        if config.qk_norm:
            norm = {"dtype": config.dtype, "param_dtype": config.param_dtype}
            self.query_norm = nnx.RMSNorm(d, rngs=query, **norm)
            if not shared:
                self.key_norm = nnx.RMSNorm(d, rngs=key, **norm)

    def queries(
        self, x: Float[Array, "*b t m"], positions: Any
    ) -> Float[Array, "*b t h d"]:
        q = self.query(x)
        return self._turn(self.query_norm(q) if self.normed else q, positions)

    def keys(
        self, x: Float[Array, "*b s m"], positions: Any
    ) -> Float[Array, "*b s g d"]:
        k = self.key(x)
        return self._turn(self.key_norm(k) if self.normed else k, positions)

    def _turn(self, x: Array, positions: Any) -> Array:
        if not self.rotary:
            return x
        if positions is None:
            positions = jnp.broadcast_to(jnp.arange(x.shape[-3]), x.shape[:-2])
        return apply_rotary(x, positions, base=self.rotary_base)
