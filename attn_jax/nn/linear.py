"""Linear attention as a mechanism (Katharopoulos et al. 2020)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float, Int

from attn_jax.nn.core import Core, Mechanism
from attn_jax.nn.query_key import QueryKey
from attn_jax.ops import (
    LinearState,
    elu_plus_one,
    linear_attention,
    linear_attention_chunked,
    linear_attention_step,
    masks,
)
from attn_jax.ops._linear_context import attend_to_state, context_state
from attn_jax.ops._linear_masks import check_one_run
from attn_jax.ops._shapes import compute_dtype
from attn_jax.ops.feature_maps import FeatureMap, check_callable
from attn_jax.ops.masks import Mask

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class Linear(Mechanism):
    """Similarity by features: phi(q).phi(k), so that sums over keys serve all queries.

    Attributes:
      feature_map: phi, such as `relu_features`; phi(x).phi(y) is nowhere negative,
        unless nothing is divided.
      eps: added to the denominator; None clamps it instead.
      normalize: False divides by no sum of similarities: what a head reads from its
        state is RMS-normalised instead, with one learnt scale for all heads (Qin et
        al. 2022, The Devil in Linear Transformer, equation 10).
    """

    equation: ClassVar[str] = "y_i = φ(q_i)·Σ_j φ(k_j) v_jᵀ / φ(q_i)·Σ_j φ(k_j)"
    cost: ClassVar[str] = "O(t p e)"
    function: ClassVar[str] = "linear_attention"
    paper: ClassVar[str] = "Katharopoulos et al. 2020, eq. 4-12"
    masks: ClassVar[frozenset[str]] = frozenset(
        {"causal", "prefix", "padding", "segments"}
    )
    cross: ClassVar[bool] = True
    mixes: ClassVar[bool] = False

    feature_map: FeatureMap = elu_plus_one
    eps: float | None = None
    normalize: bool = True

    def __post_init__(self) -> None:
        check_callable(self.feature_map)
        if self.eps is not None and not self.eps >= 0:
            raise ValueError(
                f"eps: got {self.eps}; expected a number >= 0 to add to the "
                "normaliser, or None to clamp it"
            )
        if self.eps is not None and not self.normalize:
            raise ValueError(
                f"eps: got {self.eps} with normalize=False; expected None, since there "
                "is no normaliser to add it to; leave one of them out"
            )

    def check(self, mask: Mask) -> None:
        check_one_run(mask)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        if config.alibi:
            raise ValueError(
                "alibi: linear attention has no logits to add a bias to; use rotary, "
                "sinusoidal or learned positions"
            )
        return LinearCore(self, config, rngs=rngs)


class LinearCore(Core):
    """Queries and keys, compared by their features; the cache is one state a head."""

    def __init__(self, mechanism: Linear, config: "AttentionConfig", *, rngs: nnx.Rngs):
        super().__init__(config)
        self.query_key = QueryKey(config, rngs=rngs)
        self.mechanism = mechanism
        self.key_shape = (config.kv_heads, config.key_dim)
        if not mechanism.normalize:
            self.norm = nnx.RMSNorm(
                config.values_dim,
                dtype=jnp.promote_types(config.dtype, jnp.float32),
                param_dtype=config.param_dtype,
                rngs=rngs,
            )

    @property
    def options(self) -> dict[str, Any]:
        """What every form of the op is told."""
        names = ("feature_map", "eps", "normalize")
        return {name: getattr(self.mechanism, name) for name in names}

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> Array:
        return self.query_key.keys(x, positions)

    def attend(self, x, keys, v, *, mask, positions, seen):
        q = self.query_key.queries(x, positions)
        return linear_attention(q, keys, self.wide(v), mask=mask, **self.options)

    def finish(self, y: Float[Array, "*b t h e"]) -> Float[Array, "*b t h e"]:
        if self.mechanism.normalize:
            return y
        return self.norm(y).astype(self.config.dtype)

    def wide(self, v: Array) -> Array:
        """The values; in float32 where their sums, which may be large, come back."""
        return v if self.mechanism.normalize else v.astype(compute_dtype(v))

    def init_context(self, context, v, *, real, seen):
        """The sums over a context: their size does not depend on its length."""
        k = self.query_key.keys(context, seen)
        feature_map = self.mechanism.feature_map
        return context_state(k, v, real, feature_map, compute_dtype(k, v))

    def attend_context(self, x, context, *, real, positions, seen):
        q = self.query_key.queries(x, positions)
        some = jnp.broadcast_to(jnp.any(real, -1, keepdims=True), x.shape[:-1])
        dtype = self.wide(q).dtype
        return attend_to_state(q, context, some, dtype=dtype, **self.options)

    def init_cache(
        self, batch: int, length: int, v: tuple[int, int], dtype: Any
    ) -> LinearState:
        """Zero sums: their size does not depend on the length."""
        return self.empty_state((batch,), v[1], dtype)

    def empty_state(self, leading: tuple[int, ...], e: int, dtype: Any) -> LinearState:
        """S_0 = 0 and z_0 = 0, for values of e features."""
        g, d = self.key_shape
        dtype = jnp.promote_types(dtype, jnp.float32)
        one = jax.ShapeDtypeStruct((*leading, 1, g, d), dtype)
        p = jax.eval_shape(self.mechanism.feature_map, one).shape[-1]
        sizes = (*leading, g, p)
        return LinearState(kv=jnp.zeros((*sizes, e), dtype), k=jnp.zeros(sizes, dtype))

    def decode(
        self,
        x: Float[Array, "b n m"],
        v: Float[Array, "b n g e"],
        cache: LinearState,
        *,
        length: Int[Array, "b"],
        real: Bool[Array, "b n"],
    ) -> tuple[Float[Array, "b n h e"], LinearState]:
        positions = length[:, None] + jnp.arange(x.shape[1])[None, :]
        q = self.query_key.queries(x, positions)
        k = self.query_key.keys(x, positions)
        v = self.wide(v)
        if x.shape[1] == 1:
            out, cache = linear_attention_step(
                q[:, 0], k[:, 0], v[:, 0], cache, valid=real[:, 0], **self.options
            )
            return out[:, None], cache
        mask = masks.causal() & masks.padding(real, real)
        return linear_attention_chunked(
            q, k, v, mask=mask, initial_state=cache, **self.options
        )
