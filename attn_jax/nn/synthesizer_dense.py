"""Dense Synthesizers: logits from the query's token alone (Tay et al. 2021)."""

from dataclasses import dataclass
from math import isqrt
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from attn_jax.nn._checks import check_optional_sizes
from attn_jax.nn._naming import named_rngs
from attn_jax.nn.core import Core
from attn_jax.nn.synthesizer import (
    PositionIndexed,
    check_length,
    columns_at,
    normal,
)
from attn_jax.ops import (
    dense_synthesizer_logits,
    factorized_dense_attention,
    factorized_dense_logits,
)

if TYPE_CHECKING:
    from attn_jax.nn.attention_config import AttentionConfig


@dataclass(frozen=True, kw_only=True)
class DenseSynthesizer(PositionIndexed):
    """Logits from the query's token alone: two layers, one output a key position.

    Attributes:
      hidden: width of the hidden layer, a head; None is head_dim.
      share_heads: one second layer for all heads.
      bias: biases in both layers.
    """

    equation: ClassVar[str] = "y_i = Σ_j softmax_j((relu(x_i W1 + b1) W2 + b2)_j) v_j"
    cost: ClassVar[str] = "O(t m d + t s (d + e))"
    function: ClassVar[str] = "dense_synthesizer_logits"
    paper: ClassVar[str] = "Tay et al. 2021, Dense"

    hidden: int | None = None
    share_heads: bool = False
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_sizes(hidden=self.hidden)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return DenseCore(self, config, rngs=rngs)


@dataclass(frozen=True, kw_only=True)
class FactorizedDenseSynthesizer(PositionIndexed):
    """Dense logits as a product of two short vectors, C_j = A_{j // b} B_{j mod b}.

    Attributes:
      a, b: lengths of the two vectors, a b >= max_length; None takes the two nearest
        sqrt(max_length).
      hidden, bias: as in `DenseSynthesizer`.
    """

    equation: ClassVar[str] = (
        "y_i = Σ_j softmax_j(A(x_i)_{j // b} B(x_i)_{j mod b}) v_j"
    )
    cost: ClassVar[str] = "O(t m d + t d (a + b) + t s e)"
    function: ClassVar[str] = "factorized_dense_attention"
    paper: ClassVar[str] = "Tay et al. 2021, Factorized Dense"

    a: int | None = None
    b: int | None = None
    hidden: int | None = None
    bias: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_optional_sizes(hidden=self.hidden, a=self.a, b=self.b)

    def build(self, config: "AttentionConfig", *, rngs: nnx.Rngs) -> Core:
        return FactorizedDenseCore(self, config, rngs=rngs)

    def factors(self) -> tuple[int, int]:
        n = self.length()
        a = self.a if self.a is not None else -(-n // self.b) if self.b else None
        a = a if a is not None else isqrt(n - 1) + 1
        b = self.b if self.b is not None else -(-n // a)
        if a < 1 or b < 1 or a * b < n:
            raise ValueError(
                f"a, b: got a = {a} and b = {b}, a b = {a * b}; expected a b >= "
                f"max_length = {n}, one logit a key position"
            )
        return a, b


class DenseCore(Core):
    """A hidden layer and one output a key position."""

    def __init__(
        self, mechanism: DenseSynthesizer, config: "AttentionConfig", *, rngs: nnx.Rngs
    ):
        super().__init__(config)
        n, d = mechanism.length(), mechanism.hidden or config.key_dim
        heads = 1 if mechanism.share_heads else config.num_heads
        first, second = named_rngs(rngs, "w1", "w2")
        self.heads = config.num_heads
        self.w1, self.b1 = _layer(
            first, config.num_heads, config.d_model, d, mechanism.bias, config
        )
        self.w2, self.b2 = _layer(second, heads, d, n, mechanism.bias, config)

    def logits(self, x, keys, s, *, positions, seen):
        w2, b2 = (_per_head(a, self.heads) for a in (self.w2, self.b2))
        logits = dense_synthesizer_logits(
            x, self.w1[...], _per_head(self.b1, self.heads), w2, b2
        )
        check_length(x.shape[-2], logits.shape[-1])
        return columns_at(logits, s, seen)


class FactorizedDenseCore(Core):
    """A hidden layer and two short outputs, repeated and tiled."""

    def __init__(
        self,
        mechanism: FactorizedDenseSynthesizer,
        config: "AttentionConfig",
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(config)
        h, d = config.num_heads, mechanism.hidden or config.key_dim
        a, b = mechanism.factors()
        self.n, self.split = mechanism.length(), a
        first, second = named_rngs(rngs, "w1", "w2")
        self.w1, self.b1 = _layer(first, h, config.d_model, d, mechanism.bias, config)
        self.w2, self.b2 = _layer(second, h, d, a + b, mechanism.bias, config)

    def logits(self, x, keys, s, *, positions, seen):
        logits = factorized_dense_logits(*self._factors(x))
        return columns_at(logits[..., : self.n], s, seen)

    def attend(self, x, keys, v, *, mask, positions, seen):
        if seen is None and not self.config.alibi:
            check_length(v.shape[-3], self.n)
            return factorized_dense_attention(*self._factors(x), v, mask=mask)
        return super().attend(x, keys, v, mask=mask, positions=positions, seen=seen)

    def _factors(self, x: Float[Array, "*b t m"]) -> tuple[Array, Array]:
        """A(x): *b h t a and B(x): *b h t b, from one hidden layer."""
        check_length(x.shape[-2], self.n)
        layers: Any = (self.w1, self.b1, self.w2, self.b2)
        weights: Any = (None if w is None else w[...] for w in layers)
        both = dense_synthesizer_logits(x, *weights)
        return both[..., : self.split], both[..., self.split :]


def _layer(rngs, heads, width, out, bias, config):
    """Weights h in out of fan-in `width`, and biases h out or None."""
    w = nnx.Param(normal(rngs, (heads, width, out), width**-0.5, config))
    b = nnx.Param(jnp.zeros((heads, out), config.param_dtype)) if bias else None
    return w, b


def _per_head(x: nnx.Param | None, heads: int) -> Any:
    if x is None:
        return None
    return jnp.broadcast_to(x[...], (heads, *x.shape[1:]))
