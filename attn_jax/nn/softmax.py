"""Softmax attention as a mechanism (Vaswani et al. 2017)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn.core import Core, Mechanism
from attn_jax.nn.query_key import QueryKey
from attn_jax.ops import alibi_bias, softmax_attention
from attn_jax.ops._shapes import lift
from attn_jax.ops.masks import Mask
from attn_jax.ops.softmax import dot_product_logits

if TYPE_CHECKING:
    from attn_jax.nn.attention import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class Softmax(Mechanism):
    """Softmax of scaled dot products.

    Attributes:
      logit_cap: bounds the logits smoothly; None is no bound.
      implementation: of `softmax_attention`.
    """

    equation: ClassVar[str] = "y_i = Σ_j softmax_j(q_i·k_j / √d) v_j"
    cost: ClassVar[str] = "O(t s (d + e))"
    function: ClassVar[str] = "softmax_attention"
    paper: ClassVar[str] = "Vaswani et al. 2017, eq. 1"
    cross: ClassVar[bool] = True

    logit_cap: float | None = None
    implementation: str = "auto"

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return SoftmaxCore(self, config, rngs=rngs)


class SoftmaxCore(Core):
    """Queries and keys, compared by a scaled dot product."""

    def __init__(
        self, mechanism: Softmax, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        self.query_key = QueryKey(config, rngs=rngs)
        self.mechanism = mechanism
        self.config = config

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> Array:
        return self.query_key.keys(x, positions)

    def logits(self, x, keys, s, *, positions, seen):
        logits = dot_product_logits(self.query_key.queries(x, positions), keys)
        cap = self.mechanism.logit_cap
        if cap is not None:
            logits = cap * jnp.tanh(logits / cap)
        bias = self._bias(x.shape[-2], s, positions, seen)
        return logits if bias is None else logits + bias

    def attend(self, x, keys, v, *, mask: Mask, positions: Any, seen: Any):
        return softmax_attention(
            self.query_key.queries(x, positions),
            keys,
            v,
            mask=mask,
            bias=self._bias(x.shape[-2], v.shape[-3], positions, seen),
            logit_cap=self.mechanism.logit_cap,
            implementation=self.mechanism.implementation,
        )

    def empty_keys(self, batch: int, length: int, dtype: Any) -> Array:
        shape = (batch, length, self.config.kv_heads, self.config.key_dim)
        return jnp.zeros(shape, dtype)

    def _bias(self, t: int, s: int, positions: Any, seen: Any) -> Array | None:
        """-slope |p_i - p_j|, from positions where they are not 0, 1, 2, ..."""
        if not self.config.alibi:
            return None
        h = self.config.num_heads
        if positions is None and seen is None:
            return alibi_bias(h, t, s)
        p = jnp.arange(t) if positions is None else positions
        j = jnp.arange(s) if seen is None else seen
        ndim = max(p.ndim, j.ndim)
        p, j = lift(p, ndim), lift(j, ndim)
        distance = jnp.abs(p[..., :, None] - j[..., None, :])[..., None, :, :]
        slopes = alibi_bias(h, 1, 2)[:, 0, 1].reshape((1,) * (ndim - 1) + (h, 1, 1))
        return slopes * distance
