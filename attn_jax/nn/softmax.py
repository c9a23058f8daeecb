"""Softmax attention as a mechanism (Vaswani et al. 2017)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn.core import ALL_MASKS, Core, Mechanism
from attn_jax.nn.query_key import QueryKey
from attn_jax.ops import softmax_attention
from attn_jax.ops.masks import Mask
from attn_jax.ops.softmax import IMPLEMENTATIONS, dot_product_logits

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


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
    masks: ClassVar[frozenset[str]] = ALL_MASKS
    cross: ClassVar[bool] = True

    logit_cap: float | None = None
    implementation: str = "auto"

    def __post_init__(self) -> None:
        if self.implementation not in IMPLEMENTATIONS:
            raise ValueError(
                f"implementation: got {self.implementation!r}; expected one of "
                f"{', '.join(map(repr, IMPLEMENTATIONS))}"
            )
        if self.logit_cap is not None and not self.logit_cap > 0:
            raise ValueError(
                f"logit_cap: got {self.logit_cap}; expected a number > 0, or None for "
                "no bound"
            )

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return SoftmaxCore(self, config, rngs=rngs)


class SoftmaxCore(Core):
    """Queries and keys, compared by a scaled dot product."""

    def __init__(
        self, mechanism: Softmax, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        super().__init__(config)
        self.query_key = QueryKey(config, rngs=rngs)
        self.mechanism = mechanism

    def keys(self, x: Float[Array, "*b s m"], positions: Any) -> Array:
        return self.query_key.keys(x, positions)

    def queries(self, x, keys, *, mask, positions, seen):
        return jnp.swapaxes(self.query_key.queries(x, positions), -2, -3)

    def logits_of(self, queries, keys, s, *, seen):
        q = jnp.swapaxes(queries, -2, -3)
        logits = dot_product_logits(q, keys[..., :s, :, :])
        cap = self.mechanism.logit_cap
        if cap is not None:
            logits = cap * jnp.tanh(logits / cap)
        return logits

    def attend(self, x, keys, v, *, mask: Mask, positions: Any, seen: Any):
        return softmax_attention(
            self.query_key.queries(x, positions),
            keys,
            v,
            mask=mask,
            bias=self.bias(x.shape[-2], v.shape[-3], positions, seen),
            logit_cap=self.mechanism.logit_cap,
            implementation=self.mechanism.implementation,
        )
